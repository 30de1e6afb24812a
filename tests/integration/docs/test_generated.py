"""Files that follow from the declarations of job fields are current, and a new field reaches all of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.generate import FILES, PARTS, generated
from tests.support.paths import ROOT

_DECLARATION = """
    quiet_ms: Annotated[int, FieldSpec("How long a run is quiet.", low=5, high=60_000)] = 10
    loud: Annotated[bool, FieldSpec("Whether a run is loud.", tool="be loud")] = False
    tune: Annotated[Literal["high", "low"], FieldSpec("The tune of a run.")] = "low"


DEFAULT_POLICY"""
_PROBE = """
import json
from typing import get_type_hints
from typer.main import get_command
from wakeful.api.http.schemas import SCHEMAS
from wakeful.service.cron_tool.values import plain
from wakeful.service.cron_tool.texts import ARGUMENTS
from wakeful.model.job_fields import JobFields
from wakeful.cli.main import app
from wakeful.document import Defaults, policy_to_text, read_definition, write_definition
from wakeful.errors import InvalidArgument
from wakeful.model import Job

def read(**fields):
    document = {"name": "a", "schedule": "@daily", **fields}
    return read_definition(document, now_ms=0, defaults=Defaults())

def error(**fields):
    try:
        read(**fields)
    except InvalidArgument as problem:
        return problem.message

definition = read(quiet="20ms", loud=True)
names = ("quietMs", "quiet", "loud", "tune")
print(json.dumps({
    "stored": policy_to_text(definition.policy),
    "attributes": [definition.policy.quiet_ms, definition.policy.loud, definition.policy.tune],
    "written": {name: write_definition(definition)[name] for name in ("quietMs", "loud", "tune")},
    "errors": error(quietMs=4, loud="yes", tune="flat").splitlines(),
    "request": {name: SCHEMAS["JobPatch"]["properties"][name] for name in names},
    "response": sorted(set(names) & SCHEMAS["Job"]["properties"].keys()),
    "enum": SCHEMAS["Tune"]["enum"],
    "options": {name: str(get_type_hints(JobFields)[name]) for name in ("quiet", "loud", "tune")},
    "model": {name: str(get_type_hints(Job)[name]) for name in ("quiet", "loud", "tune")},
    "coerced": [plain("quietMs", "20"), plain("loud", "yes"), plain("tune", "High")],
    "tool": sorted(set(names) & ARGUMENTS["properties"]["job"]["properties"].keys()),
    "flags": sorted(
        flag for each in get_command(app).commands["add"].params for flag in each.opts
        if flag in ("--quiet", "--loud", "--tune")
    ),
}))
"""


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_current(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "generated: " in text
    assert generated(text) == text, "run `make generate`"


def test_every_part_is_in_a_file():
    texts = "".join((ROOT / name).read_text(encoding="utf-8") for name in FILES)
    assert [name for name in PARTS if f"generated: {name}" not in texts] == []


@pytest.mark.slow
def test_a_field_is_added_by_its_declaration_alone(tmp_path: Path):
    for folder in ("src", "scripts", "docs/reference"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    policy = tmp_path / "src/wakeful/job/policy.py"
    policy.write_text(policy.read_text().replace("\n\n\nDEFAULT_POLICY", _DECLARATION, 1))

    python(tmp_path, "-m", "scripts.generate")
    found = json.loads(python(tmp_path, "-c", _PROBE))

    assert found["stored"] == '{"loud":true,"quietMs":20}'
    assert found["attributes"] == [20, True, "low"]
    assert found["written"] == {"quietMs": 20, "loud": True, "tune": "low"}
    assert found["errors"] == [
        "quietMs: 4 is out of range; it goes from 5 to 60000 ms (1 minute)",
        "loud: 'yes' is neither true nor false; write one of them, without quotes",
        "tune: 'flat' is not known; write 'high' or 'low'",
    ]
    assert found["request"]["quietMs"] == {
        "type": ["integer", "null"],
        "minimum": 5,
        "maximum": 60_000,
        "description": "How long a run is quiet.",
    }
    assert found["request"]["quiet"]["type"] == ["string", "null"]
    assert found["request"]["loud"]["type"] == ["boolean", "null"]
    assert found["response"] == ["loud", "quietMs", "tune"]
    assert found["enum"] == ["high", "low"]
    assert found["options"]["quiet"] == "str | datetime.timedelta | None"
    assert found["options"]["loud"] == "bool | None"
    assert "'high', 'low'" in found["options"]["tune"]
    assert found["model"]["quiet"] == "<class 'datetime.timedelta'>"
    assert found["coerced"] == [20, True, "high"]
    assert found["tool"] == ["loud"]
    assert found["flags"] == ["--loud", "--quiet", "--tune"]
    reference = (tmp_path / "docs/reference/job.md").read_text(encoding="utf-8")
    assert "| `quietMs` | `10` | How long a run is quiet. At most 1 minute. |" in reference
    assert '| `tune` | `"low"` | The tune of a run. One of `high`, `low`. |' in reference
    assert "| `--quiet` |" in (tmp_path / "docs/reference/cli.md").read_text(encoding="utf-8")


def python(root: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
