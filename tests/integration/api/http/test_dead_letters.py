"""Dead letters by cause over HTTP: groups, lists, replaying and discarding those that match."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import JOBS, ApiClient
from tests.support.waiting import over
from wakeful import Launch, Permanent, Wakeful
from wakeful.service.runs import dead_letters

FUNCTION = {"kind": "function", "name": "picky"}


class Picky:
    """A function that fails with the error of its payload, until it is mended."""

    def __init__(self, app: Wakeful) -> None:
        self.mended = False
        app.function("picky")(self)

    async def __call__(self, run: Launch) -> str:
        if self.mended:
            return "done"
        assert isinstance(run.payload, dict)
        raise Permanent(str(run.payload["error"]))


async def _dead(ask: ApiClient, job: str, *errors: str) -> list[str]:
    """Fail a run of the job for each error; return their ids."""
    await ask("PUT", f"{JOBS}/{job}", {"schedule": SELDOM, "target": FUNCTION})
    ids = []
    for error in errors:
        ids.append((await ask("POST", f"{JOBS}/{job}/run", {"payload": {"error": error}})).body["id"])
    for run_id in ids:
        await over(ask.app, run_id)
    return ids


async def test_dead_letters_are_grouped_by_job_and_cause(ask: ApiClient):
    Picky(ask.app)
    refused = await _dead(ask, "orders", "order 17 refused", "order 18 refused", "no space left")
    other = await _dead(ask, "mails", "order 17 refused")
    reply = await ask("GET", "/dead-letters/groups")
    assert (reply.status, reply.body["counted"], reply.body["more"]) == (200, 4, False)
    found = {(group["job"], group["cause"]): group for group in reply.body["groups"]}
    assert {key: group["count"] for key, group in found.items()} == {
        ("orders", "order # refused"): 2,
        ("orders", "no space left"): 1,
        ("mails", "order # refused"): 1,
    }
    group = found["orders", "order # refused"]
    assert (group["newestRunId"], group["error"]) == (max(refused[:2]), "order 18 refused")
    assert reply.body["groups"][0]["newestRunId"] == other[0], "the newest failure is first"
    only = await ask("GET", "/dead-letters/groups", job="mails")
    assert [each["job"] for each in only.body["groups"]] == ["mails"]
    assert (await ask("GET", "/dead-letters/groups", agent="nobody")).status == 404


async def test_a_group_is_listed_replayed_and_discarded(ask: ApiClient):
    picky = Picky(ask.app)
    ids = await _dead(
        ask, "orders", "order 17 refused", "order 18 refused", "no space left", "order 19 refused"
    )
    group = {"job": "orders", "cause": "order # refused"}
    listed = await ask("GET", "/dead-letters", **group)  # type: ignore[arg-type]
    assert [run["id"] for run in listed.body["deadLetters"]] == [ids[3], ids[1], ids[0]]

    counted = await ask("POST", "/dead-letters/replay", {**group, "dryRun": True})
    assert counted.body == {"replayed": [], "selected": 3, "cursor": None}
    assert len((await ask("GET", "/dead-letters")).body["deadLetters"]) == 4

    picky.mended = True
    replayed = await ask("POST", "/dead-letters/replay", {**group, "through": ids[1]})
    assert replayed.body == {"replayed": ids[:2], "selected": 2, "cursor": None}
    left = [run["id"] for run in (await ask("GET", "/dead-letters")).body["deadLetters"]]
    assert left == [ids[3], ids[2]]

    discarded = await ask("POST", "/dead-letters/discard", {"cause": "no space left"})
    assert discarded.body == {"discarded": [ids[2]], "selected": 1, "cursor": None}
    assert (await ask("GET", f"/runs/{ids[2]}")).body["state"] == "failed"


async def test_replays_that_fail_again_are_not_selected_twice(ask: ApiClient):
    Picky(ask.app)
    ids = await _dead(ask, "orders", "refused", "refused")
    body = {"all": True, "through": max(ids)}
    first = await ask("POST", "/dead-letters/replay", body)
    for run in (await ask("GET", "/runs", trigger="replay")).body["runs"]:
        await over(ask.app, run["id"])
    assert sorted(first.body["replayed"]) == sorted(ids)
    again = await ask("POST", "/dead-letters/replay", body)
    assert again.body == {"replayed": [], "selected": 0, "cursor": None}
    assert len((await ask("GET", "/dead-letters")).body["deadLetters"]) == 2


@on_one_store
async def test_a_large_selection_continues_at_its_cursor(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    Picky(ask.app)
    ids = await _dead(ask, "orders", "a", "b", "a", "a", "b")
    monkeypatch.setattr(dead_letters, "_BATCH", 2)
    monkeypatch.setattr(dead_letters, "SCANNED", 2)
    monkeypatch.setattr(dead_letters, "LISTED", 2)
    body: dict[str, object] = {"cause": "a"}
    found: list[str] = []
    for _ in range(4):
        reply = await ask("POST", "/dead-letters/discard", body)
        found += reply.body["discarded"]
        if reply.body["cursor"] is None:
            break
        body["cursor"] = reply.body["cursor"]
    assert found == [ids[0], ids[2], ids[3]]

    pages, cursor = [], None
    for _ in range(4):
        reply = await ask("GET", "/dead-letters", cause="b", **({"cursor": cursor} if cursor else {}))
        pages += [run["id"] for run in reply.body["deadLetters"]]
        cursor = reply.body["cursor"]
        if cursor is None:
            break
    assert pages == [ids[4], ids[1]]


@on_one_store
@pytest.mark.parametrize(
    "body",
    [
        {"cause": 5}, {"cause": "x" * 201}, {"through": "no"}, {"all": True, "through": "no"},
        {"cause": "a", "ids": []}, {"cause": "a", "cursor": "no"}, {"cause": "a", "dryRun": "yes"},
        {"casue": "a"}, {"all": "yes"},
    ],
)  # fmt: skip
async def test_an_invalid_selection_is_refused(ask: ApiClient, body: dict[str, object]):
    for verb in ("replay", "discard"):
        reply = await ask("POST", f"/dead-letters/{verb}", body)
        assert (reply.status, reply.code) == (422, "invalid-argument")


@on_one_store
async def test_roles(ask: ApiClient):
    Picky(ask.app)
    await _dead(ask, "orders", "refused")
    await ask("PUT", "/agents/writer", {})
    member, agent = await ask.new("member"), await ask.new("agent", agent="writer")
    assert len((await member("GET", "/dead-letters/groups")).body["groups"]) == 1
    assert (await member("POST", "/dead-letters/replay", {"cause": "refused"})).status == 403
    assert (await member("POST", "/dead-letters/discard", {"cause": "refused", "dryRun": True})).status == 403
    assert (await agent("GET", "/dead-letters/groups")).body["groups"] == []
    assert (await agent("GET", "/dead-letters/groups", agent="default")).status == 404
