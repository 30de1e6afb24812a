"""Each text that describes a job creates that job: YAML, curl, the command line and Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.command_line import Machine, serving
from tests.support.tools import tool
from wakeful.document.definition import DEFINITION
from wakeful.service.jobs.job_snippets import Snippets, snippets

HOSTILE = (
    "'; touch pwned; echo \"$(touch pwned)\" `touch pwned` $HOME !! \\ \\' \n#\r\n\t\x1b]0;x\x07 \u202egnp "
    "'''\"\"\" {{7*7}} <script>alert(1)</script> --help @file %s \x7f\u2028 grün 日本 🙂 off: - ~ null"
)
DOCUMENTS: dict[str, dict[str, Any]] = {
    "plain": {"name": "a", "schedule": "0 9 * * 1-5", "tz": "Europe/Berlin", "message": "hello"},
    "paused": {"name": "b", "schedule": "every 90s", "enabled": False, "target": {"kind": "pull"}},
    "once": {"name": "once", "schedule": "2099-03-01T09:00:00.250", "tz": "Asia/Tokyo", "deliver": True},
    "kept-once": {"name": "kept", "schedule": "2099-03-01T09:00", "deleteAfterRun": False},
    "every-field": {
        "name": "every-field",
        "schedule": "30 2 * * *",
        "tz": "America/New_York",
        "startAt": "2030-01-01T00:00",
        "endAt": 2_000_000_000_123,
        "exclude": ["2030-12-24", "holidays:DE-BY"],
        "dstGap": "skip",
        "dstOverlap": "both",
        "target": {"kind": "webhook", "url": "http://127.0.0.1:9/a?b=$c&d='e'", "headers": {"x-a": "$(b)"}},
        "payload": {"n": [1, 1.0, -0.5, 1e300, 12345678901234567890, None, True, {}], "": "x" * 120},
        "message": "-m starts with a hyphen",
        "stateless": True,
        "channel": "ops",
        "to": "me",
        "deliver": True,
        "lane": "main",
        "activeHours": "08:00-22:00",
        "verify": "manual",
        "evidence": ["external_id"],
        "budget": {"tokensPerDay": 9000},
        "overlapPolicy": "queue",
        "maxQueued": 7,
        "catchupPolicy": "latest",
        "catchupWindowMs": 3_600_000,
        "misfireGraceMs": 1500,
        "jitterMs": 61_001,
        "maxAttempts": 2,
        "backoff": {"baseMs": 100, "maxMs": 2000},
        "timeoutMs": 90_500,
        "maxRuns": 5,
        "onLost": "fail",
        "disableAfter": 3,
        "deleteAfterRun": True,
        "claimTimeoutMs": 1,
        "description": "two\nlines",
        "labels": {"team": "a=b c", "x": ""},
    },
    "hostile": {
        "name": "hostile",
        "schedule": "@daily",
        "message": HOSTILE,
        "description": HOSTILE,
        "payload": {HOSTILE: [HOSTILE]},
        "labels": {"a=b": HOSTILE[:100], "it's": "$(x)"},
    },
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("snippets")) as machine:
        yield machine


@pytest.fixture(scope="module")
def key(machine: Machine) -> str:
    found = re.search(r"WAKEFUL_KEY='?(wk_[\w-]+)", machine.wakeful("keys", "env").out)
    assert found is not None
    return found[1]


def ask(key: str, method: str, url: str, body: object = None) -> Any:
    """Send a request and return the JSON of the response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {key}"}, method=method)
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read() or "null")


def in_bash(machine: Machine, key: str, text: str) -> str:
    """Run a text in bash and return its output."""
    done = subprocess.run(
        ["bash", "-eu", "-c", text],
        env={**machine.environment, "WAKEFUL_KEY": key, "LC_ALL": "C"},
        cwd=machine.home,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.decode()


def create_with(name: str, texts: Snippets, machine: Machine, key: str) -> None:
    if name == "yaml":
        (machine.home / "jobs.yaml").write_text(texts.yaml)
        done = machine.wakeful("apply", str(machine.home / "jobs.yaml"))
        assert done.code == 0, done.err
    elif name == "curl":
        tool("curl")
        in_bash(machine, key, texts.curl)
    elif name == "cli":
        # bash interprets the text, and this process runs the command.
        words = in_bash(machine, key, f'wakeful() {{ printf "%s\\0" "$@"; }}\n{texts.cli}').split("\0")[:-1]
        done = machine.wakeful(*words)
        assert done.code == 0, done.err
    else:
        with patch.dict(os.environ, {**machine.environment, "WAKEFUL_KEY": key}, clear=True):
            exec(compile(texts.python, "snippet", "exec"), {})


@pytest.mark.parametrize("way", Snippets._fields)
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_text_creates_the_same_job(machine: Machine, key: str, document: dict[str, Any], way: str):
    agent = f"agent-{way}"
    where = f"{machine.url}/api/workspaces/default/agents/{agent}/jobs"
    created = ask(key, "POST", where, document)
    ask(key, "DELETE", f"{where}/{document['name']}")
    texts = snippets(created, "default", agent, str(machine.url))
    create_with(way, texts, machine, key)
    found = ask(key, "GET", f"{where}/{document['name']}")
    names = (*DEFINITION, "enabled")
    assert {name: repr(found[name]) for name in names} == {name: repr(created[name]) for name in names}
    assert not Path(machine.home / "pwned").exists()
