"""Every command against a server, or a proxy, that answers something else: an exit code and one sentence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.cli.test_help import ALL
from tests.support.command_line import Machine
from tests.support.effort import part
from tests.unit.client.test_wrong_responses import BODIES
from wakeful.client.connection import Connection
from wakeful.errors import Unavailable

#: they start a server, or need a terminal, an editor or files
OTHER = {"demo", "serve", "worker", "executor", "migrate", "edit", "import", "mcp"}
ONE_JOB = {"name": "digest", "schedule": "0 7 * * *", "target": {"kind": "pull"}}


@pytest.mark.parametrize("what", part(["nothing", "another object", "lists are [null]", "lists are [{}]"]))
def test_a_command_ends_with_one_sentence(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "jobs.yaml").write_text(json.dumps([ONE_JOB]))
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    async def answer(self: Connection, method: str, path: str, **given: Any) -> tuple[int, Any]:
        asked.append(path)
        reply = self._read_json(SimpleNamespace(status=200), BODIES[what])  # type: ignore[arg-type]
        if not isinstance(reply, dict) and not given.get("optional") and method != "DELETE":
            raise Unavailable("not as Wakeful does")
        return 200, reply

    def stream(self: Connection, path: str, **given: Any) -> Any:
        raise Unavailable("not as Wakeful does")

    monkeypatch.setattr(Connection, "request", answer)
    monkeypatch.setattr(Connection, "stream", stream)
    wrong: dict[str, str] = {}
    for name, command in ALL.items():
        if name.split()[1] in OTHER:
            continue
        for example in command.epilog.splitlines()[1:]:
            words = shlex.split(example)[1:]
            try:
                done = Machine(tmp_path, "http://model").wakeful(*words, stdin="")
            except BaseException as error:
                wrong[example.strip()] = repr(error)
            else:
                assert "Traceback" not in done.err
    assert not wrong, "\n".join(f"{command}: {error}" for command, error in wrong.items())
    assert len(asked) > 50
