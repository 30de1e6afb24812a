"""Files that follow from declarations are current; a new field or kind of target reaches all interfaces."""

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

#: What is replaced by what in each file; nothing: the file is new.
_Change = dict[str, tuple[str, str]]
_JOB_FIELD: _Change = {
    "job/policy.py": (
        "\n\n\nDEFAULT_POLICY",
        """
    quiet_ms: Annotated[int, FieldSpec("How long a run is quiet.", low=5, high=60_000)] = 10
    loud: Annotated[bool, FieldSpec("Whether a run is loud.", tool="be loud")] = False
    tune: Annotated[Literal["high", "low"], FieldSpec("The tune of a run.")] = "low"


DEFAULT_POLICY""",
    )
}
_MIGRATIONS = "store/migrations"
_NEXT = len(list((ROOT / "src/wakeful" / _MIGRATIONS / "sqlite").glob("*.sql"))) + 1
_MIGRATION = "-- compatible: a new column\nALTER TABLE runs ADD COLUMN mood TEXT;\n"
_RUN_FIELD: _Change = {
    f"{_MIGRATIONS}/sqlite/{_NEXT:04}_mood.sql": ("", _MIGRATION),
    f"{_MIGRATIONS}/postgres/{_NEXT:04}_mood.sql": ("", _MIGRATION),
    "store/rows.py": (
        "    waiting: str | None = None\n\n    @property\n    def verifying",
        "    waiting: str | None = None\n    mood: str | None = None\n\n    @property\n    def verifying",
    ),
    "model/run.py": (
        "    #: its attempts in order;",
        "    #: how it feels\n    mood: str | None = None\n    #: its attempts in order;",
    ),
}
_KIND: _Change = {
    "job/target_kinds.py": (
        """        TargetKind(
            "echo",
""",
        """        TargetKind(
            "fax",
            "Fax: a page of paper",
            "../how-to/fax.md",
            (TargetField("number", "Number", placeholder="0123"),),
            "{number}",
        ),
        TargetKind(
            "echo",
""",
    ),
    "launch/fax.py": (
        "",
        """
from wakeful.errors import InvalidArgument
from wakeful.launch.echo import EchoLauncher
from wakeful.run.outcome import Succeeded

class FaxLauncher(EchoLauncher):
    kind = "fax"

    def check(self, target):
        if not target.get("number"):
            raise InvalidArgument("target: a fax needs a number")

    async def start(self, run):
        return Succeeded(f"sent to {run.target['number']}")
""",
    ),
    "app/launchers.py": (
        "            EchoLauncher(),\n",
        "            EchoLauncher(),\n"
        "            __import__('wakeful.launch.fax', fromlist=['FaxLauncher']).FaxLauncher(),\n",
    ),
}
_TABLE = """-- compatible: a new table
CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT NOT NULL, created_at BIGINT);
"""
_RESOURCE: _Change = {
    f"{_MIGRATIONS}/sqlite/{_NEXT + 1:04}_notes.sql": ("", _TABLE),
    f"{_MIGRATIONS}/postgres/{_NEXT + 1:04}_notes.sql": ("", _TABLE),
    "model/admin.py": (
        "@resource()\n@dataclass(frozen=True, slots=True, kw_only=True)\nclass Quota:",
        """@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    '''What a person wrote down.'''

    id: str
    #: what it says
    text: str
    created_at: datetime | None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    '''All notes.'''

    notes: tuple[Note, ...]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:""",
    ),
    "store/sql/admin.py": (
        "    async def set_quota(",
        """    async def notes(self, ids=None):
        statement = "SELECT id, text, created_at FROM notes"
        rows = await self._read(lambda session: session.rows(statement))
        return [tuple(row) for row in rows if ids is None or row[0] in ids]

    async def set_quota(""",
    ),
    "service/admin/limits.py": (
        "class QuotaService:\n",
        """class QuotaService:
    async def notes(self, *ids):
        from wakeful.model.admin import Note
        from wakeful.model.codec import from_ms

        rows = await self._store.notes(ids or None)
        return tuple(Note(id=id, text=text, created_at=from_ms(ms)) for id, text, ms in rows)

""",
    ),
    "api/http/admin.py": (
        "# --- quotas ---",
        """@router.operation("GET /notes", "List notes", "Notes", tag="notes")
async def list_notes(about: WorkspaceDep) -> Response:
    '''All notes.'''
    from wakeful.model.admin import Notes

    return JsonResponse(to_json(Notes(notes=await about.services.admin.quotas.notes())))


@router.operation("GET /notes/{note_id}", "Read a note", "Note", tag="notes")
async def get_note(note_id: str, about: WorkspaceDep) -> Response:
    '''One note.'''
    return JsonResponse(to_json((await about.services.admin.quotas.notes(note_id))[0]))


# --- quotas ---""",
    ),
}
_RESOURCE_PROBE = """
import asyncio, inspect, json, sqlite3
from typing import get_type_hints
from wakeful import Wakeful
from wakeful.api.http import admin
from wakeful.api.http.dependencies import WorkspaceRequest
from wakeful.client.endpoints import Endpoints
from wakeful.client.types import NoteShape
from wakeful.server.http_app import create_app
from wakeful.service.auth.access import LOCAL

async def read():
    async with Wakeful("sqlite:///notes.db") as app:
        with sqlite3.connect("notes.db") as database:
            database.execute("INSERT INTO notes VALUES ('n1', 'hello', 1800000000000)")
        paths = create_app(app.services).openapi()
        about = WorkspaceRequest(None, app.services, LOCAL, "default")
        listed = await admin.list_notes(about)
        got = await admin.get_note("n1", about)
        return paths, json.loads(listed.body), json.loads(got.body)

document, listed, got = asyncio.run(read())
print(json.dumps({
    "listed": listed,
    "got": got,
    "paths": sorted(path.rpartition("{workspace}")[2] for path in document["paths"] if "notes" in path),
    "schema": document["components"]["schemas"]["Note"]["properties"]["text"],
    "client": [str(inspect.signature(getattr(Endpoints, name))) for name in ("list_notes", "get_note")],
    "shape": sorted(get_type_hints(NoteShape)),
}))
"""
_RUN_PROBE = """
import asyncio, json, sqlite3
from typing import get_type_hints
from wakeful import Run, Wakeful
from wakeful.api.http.schemas import SCHEMAS
from wakeful.client.types import RunShape
from wakeful.model.codec import from_json
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import serialize_run

async def read():
    async with Wakeful("sqlite:///mood.db") as app:
        job = await app.jobs.create("a", schedule="@yearly", target={"kind": "echo"})
        run = await app.jobs.run(job.name)
        with sqlite3.connect("mood.db") as database:
            database.execute("UPDATE runs SET mood = 'calm'")
        return await app.runs.get(run.id), await app.store.run(run.id)

run, row = asyncio.run(read())
print(json.dumps({
    "model": run.mood,
    "json": serialize_run(row)["mood"],
    "read": from_json(Run, serialize_run(row)).mood,
    "schema": SCHEMAS["Run"]["properties"]["mood"],
    "responses": sorted(name for name, each in SCHEMAS.items() if "mood" in each.get("properties", {})),
    "shape": str(get_type_hints(RunShape)["mood"]),
}))
"""
_KIND_PROBE = """
import asyncio, json
from wakeful import Wakeful
from wakeful.api.http.schemas import SCHEMAS
from wakeful.dashboard.job_controls import target_control
from wakeful.errors import InvalidArgument
from wakeful.job.target_kinds import describe_target

FAX = {"kind": "fax", "number": "555"}

async def refused(app, target):
    try:
        await app.jobs.create("b", schedule="@yearly", target=target)
    except InvalidArgument as error:
        return error.message

async def work():
    async with Wakeful("sqlite:///fax.db") as app:
        job = await app.jobs.create("a", schedule="@yearly", target=FAX)
        run = await app.jobs.run(job.name)
        while not (run := await app.runs.get(run.id)).finished_at:
            await asyncio.sleep(0.01)
        tested = await app.jobs.test_target(target=FAX)
        return run, tested, await refused(app, {"kind": "fax"}), await refused(app, {"kind": "?"})

run, tested, no_number, unknown = asyncio.run(work())
control = target_control(FAX, None)
[form] = [each for each in control.kinds if each.kind == control.chosen]
print(json.dumps({
    "outputs": [run.output],
    "schema": next(each for each in SCHEMAS["TargetKind"]["enum"] if each == "fax"),
    "form": [form.kind, form.title, [each.name for each in form.parts], form.parts[0].value],
    "shown": describe_target(FAX),
    "refused": no_number,
    "unknown": unknown,
    "tested": [tested["ok"], tested["message"]],
}))
"""
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


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with a new job field, run field, target kind and resource."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("src", "scripts", "docs/reference"):
        shutil.copytree(ROOT / folder, tree / folder)
    for change in (_JOB_FIELD, _RUN_FIELD, _KIND, _RESOURCE):
        for name, (before, after) in change.items():
            path = tree / "src/wakeful" / name
            text = path.read_text(encoding="utf-8") if before else ""
            assert before in text, name
            path.write_text(text.replace(before, after, 1) if before else after, encoding="utf-8")
    python(tree, "-m", "scripts.generate")
    return tree


@pytest.mark.slow
def test_a_run_field_is_a_change_of_four_files(changed: Path):
    assert len(_RUN_FIELD) <= 4
    found = json.loads(python(changed, "-c", _RUN_PROBE))
    assert found["model"] == "calm"
    assert found["json"] == "calm"
    assert found["read"] == "calm"
    assert found["schema"] == {"type": ["string", "null"], "description": "How it feels."}
    assert found["responses"] == ["ClaimedRun", "Run", "RunWithAttempts", "SentSignal"]
    assert found["shape"] == "str | None"


@pytest.mark.slow
def test_a_target_kind_is_a_change_of_three_files(changed: Path):
    assert len(_KIND) <= 3
    found = json.loads(python(changed, "-c", _KIND_PROBE))
    assert found["outputs"] == ["sent to 555"]
    assert found["schema"] == "fax"
    assert found["form"] == ["fax", "Fax: a page of paper", ["number"], "555"]
    assert found["shown"] == "fax 555"
    assert found["refused"] == "target: a fax needs a number"
    assert "'fax'" in found["unknown"]
    assert found["tested"] == [True, "its fields are valid; a test does not launch it"]
    assert "[`fax`](../how-to/fax.md)" in (changed / "docs/reference/job.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_resource_with_list_and_get_is_a_change_of_six_files(changed: Path):
    assert len(_RESOURCE) <= 6
    found = json.loads(python(changed, "-c", _RESOURCE_PROBE))
    note = {"id": "n1", "text": "hello", "createdAt": "2027-01-15T08:00:00.000Z"}
    assert found["listed"] == {"notes": [note]}
    assert found["got"] == note
    assert found["paths"] == ["/notes", "/notes/{note_id}"]
    assert found["schema"] == {"type": "string", "description": "What it says."}
    results = [each.rpartition("-> ")[2].strip("'") for each in found["client"]]
    assert results == ["list[NoteShape]", "NoteShape"]
    assert found["shape"] == ["createdAt", "id", "text"]


@pytest.mark.slow
def test_a_job_field_is_added_by_its_declaration_alone(changed: Path):
    assert len(_JOB_FIELD) == 1
    found = json.loads(python(changed, "-c", _PROBE))

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
    reference = (changed / "docs/reference/job.md").read_text(encoding="utf-8")
    assert "| `quietMs` | `10` | How long a run is quiet. At most 1 minute. |" in reference
    assert '| `tune` | `"low"` | The tune of a run. One of `high`, `low`. |' in reference
    assert "| `--quiet` |" in (changed / "docs/reference/cli.md").read_text(encoding="utf-8")


def python(root: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
