"""`wakeful suggestions`: list, show, apply, dismiss, roll back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.command_line import serving
from tests.support.suggestions import suggest
from wakeful.store.connect import store_at


def _suggest(database: Path, name: str) -> str:
    """Suggest a longer timeout for a job of `ada` in the database of a server."""

    async def add() -> str:
        store = store_at(f"sqlite:///{database}")
        await store.open()
        try:
            return await suggest(store, "ada", name)
        finally:
            await store.close()

    return asyncio.run(add())


def test_suggestions_are_listed_shown_applied_and_rolled_back(tmp_path: Path) -> None:
    with serving(tmp_path) as machine:
        machine.wakeful("agents", "put", "ada", "--evolution", "suggest", "--create-agent")
        assert machine.wakeful("agents", "show", "ada", "--json").json["evolution"] == "suggest"
        jobs = machine.wakeful("list", "--agent", "ada", "--json").json["jobs"]
        assert [job["name"] for job in jobs] == ["wakeful-analysis", "wakeful-evaluation"]
        assert machine.wakeful("run", "wakeful-analysis", "--agent", "ada", "--wait").code == 0
        assert machine.wakeful("suggestions").out.strip() == "no open suggestions"

        machine.wakeful("add", "work", "--agent", "ada", "-s", "@daily", "--target", '{"kind": "echo"}')
        (database,) = tmp_path.rglob("*.db")
        suggestion_id = _suggest(database, "work")
        (listed,) = machine.wakeful("suggestions", "--json").json["suggestions"]
        assert (listed["id"], listed["rule"], listed["status"]) == (suggestion_id, "raise_timeout", "open")
        shown = machine.wakeful("suggestions", "--job", "work", "--agent", "ada")
        assert suggestion_id in shown.out
        assert "wakeful suggestions apply SUGGESTION" in shown.out + shown.err
        assert "ended at the timeout of 30 seconds" in machine.wakeful("suggestions", suggestion_id).out

        applied = machine.wakeful("suggestions", "apply", suggestion_id, "--json")
        assert (applied.code, applied.json["status"]) == (0, "applied")
        job = machine.wakeful("show", "work", "--agent", "ada", "--json").json
        assert job["timeoutMs"] == 60_000
        assert "applied" in machine.wakeful("suggestions", "--status", "all").out
        back = machine.wakeful("suggestions", "rollback", suggestion_id)
        assert "rolled back" in back.out
        assert machine.wakeful("show", "work", "--agent", "ada", "--json").json["timeoutMs"] is None

        for arguments, code, said in (
            (("apply",), 2, "give one suggestion"),
            (("a", "b"), 2, "give one suggestion"),
            ((suggestion_id, "--status", "open"), 2, "work for the list only"),
            (("--status", "broken"), 2, "status: 'broken' is not one of open, applied"),
            (("dismiss", suggestion_id), 5, "is rolled back since"),
            (("01980000-0000-7000-8000-000000000000",), 3, "no suggestion"),
        ):
            refused = machine.wakeful("suggestions", *arguments)
            assert (refused.code, said in refused.err) == (code, True), (arguments, refused)
