"""Cost reports, over HTTP, from runs that report what they used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import ApiClient
from wakeful.service.auth.access import LOCAL
from wakeful.service.report_serializers import cost_csv


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


async def _used(ask: ApiClient, agent: str, job: str, tokens: int, cost: float, **fields: object) -> None:
    """Run a job of an agent once, with this usage."""
    document = {"schedule": SELDOM, "target": {"kind": "pull"}, **fields}
    assert (await ask("PUT", f"/agents/{agent}/jobs/{job}", document)).status in (200, 201)
    assert (await ask("POST", f"/agents/{agent}/jobs/{job}/run")).status == 201
    claim = await ask("POST", "/runs/claim", {"worker": "w", "agents": [agent]})
    (run,) = claim.body["runs"]
    body = {"attempt": run["attempt"], "status": "succeeded", "usage": {"tokens": tokens, "cost": cost}}
    assert (await ask("POST", f"/runs/{run['id']}/complete", body)).status == 200


async def test_usage_is_reported_by_day_agent_and_job(ask: ApiClient):
    await _used(ask, "writer", "cheap", 10, 0.5)
    await _used(ask, "writer", "dear", 100, 2.0)
    await _used(ask, "painter", "only", 7, 1.0)
    found = (await ask("GET", "/cost")).body
    assert (found["tokens"], found["cost"], found["to"]) == (117, 3.5, _today())
    assert len(found["days"]) == 30
    assert found["days"][-1] == {"date": _today(), "tokens": 117, "cost": 3.5}
    assert found["days"][0]["tokens"] == 0
    assert [(each["agentId"], each["cost"]) for each in found["agents"]] == [
        ("writer", 2.5),
        ("painter", 1.0),
    ]
    assert [(each["job"], each["cost"], each["deleted"]) for each in found["jobs"]] == [
        ("dear", 2.0, False),
        ("only", 1.0, False),
        ("cheap", 0.5, False),
    ]
    assert found["jobs"][0]["days"] == [{"date": _today(), "tokens": 100, "cost": 2.0}]
    assert [each["job"] for each in (await ask("GET", "/cost", limit=1)).body["jobs"]] == ["dear"]
    of_agent = (await ask("GET", "/cost", agent="painter")).body
    assert (of_agent["agentId"], of_agent["cost"], of_agent["agents"]) == ("painter", 1.0, [])
    assert [each["job"] for each in of_agent["jobs"]] == ["only"]


@on_one_store
async def test_an_agent_key_sees_its_own_agent(ask: ApiClient):
    await _used(ask, "writer", "dear", 100, 2.0)
    await _used(ask, "painter", "only", 7, 1.0)
    await ask("PUT", "/agents/writer", {"budget": {"costPerDay": 5}})
    key = await ask.new("agent", agent="painter")
    found = (await key("GET", "/cost")).body
    assert (found["agentId"], found["cost"], found["budgets"]) == ("painter", 1.0, [])
    assert [each["job"] for each in found["jobs"]] == ["only"]
    assert (await key("GET", "/cost", agent="writer")).code == "not-found"
    assert (await ask("GET", "/cost", agent="nobody")).code == "not-found"


@on_one_store
async def test_a_report_of_an_agent_has_its_budget_however_many_others_there_are(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.service.admin.cost._BUDGETS", 1)
    for agent in ("painter", "writer"):
        await ask("PUT", f"/agents/{agent}", {"budget": {"costPerDay": 5}})
        await _used(ask, agent, "capped", 150, 1.0, budget={"tokensPerDay": 100})
    days: dict[str, Any] = {"from": "2027-03-01", "to": "2027-03-01"}
    found = (await ask("GET", "/cost", agent="writer", **days)).body
    caps = [(each["agentId"], each["job"], each["cap"]) for each in found["budgets"]]
    assert caps == [("writer", "capped", "tokensPerDay"), ("writer", None, "costPerDay")]


@on_one_store
async def test_budgets_say_what_is_left_today(ask: ApiClient):
    await ask("PUT", "/api/workspaces/default", {"budget": {"costPerDay": 8}})
    await ask("PUT", "/agents/writer", {"budget": {"tokensPerDay": 1_000}})
    await _used(ask, "writer", "capped", 150, 2.0, budget={"tokensPerDay": 100})
    await _used(ask, "writer", "roomy", 50, 0.0, budget={"tokensPerDay": 100})
    budgets = (await ask("GET", "/cost")).body["budgets"]
    shown = [
        (each["agentId"], each["job"], each["cap"], each["used"], each["remaining"], each["exhausted"])
        for each in budgets
    ]
    assert shown == [
        ("writer", "capped", "tokensPerDay", 150, 0, True),
        ("writer", "roomy", "tokensPerDay", 50, 50, False),
        (None, None, "costPerDay", 2.0, 6.0, False),
        ("writer", None, "tokensPerDay", 200, 800, False),
    ]


@on_one_store
async def test_a_deleted_job_stays_in_the_report(ask: ApiClient):
    await _used(ask, "writer", "gone", 5, 1.0)
    await ask("DELETE", "/agents/writer/jobs/gone")
    (job,) = (await ask("GET", "/cost")).body["jobs"]
    assert (job["job"], job["deleted"], job["cost"]) == ("gone", True, 1.0)


@on_one_store
@pytest.mark.parametrize(
    "query",
    [
        {"from": "yesterday"},
        {"to": "20270301"},
        {"from": "2027-13-01"},
        {"from": "2027-03-02", "to": "2027-03-01"},
        {"from": "2027-01-01", "to": "2027-12-31"},
        {"from": "1969-12-31", "to": "1970-01-02"},
        {"to": "9999-99-99"},
    ],
)
async def test_a_wrong_range_is_refused(ask: ApiClient, query: dict[str, str]):
    reply = await ask("GET", f"/cost?{urlencode(query)}")
    assert reply.code == "invalid-argument"
    assert reply.body["detail"].startswith(("from: ", "to: "))


@on_one_store
async def test_a_range_of_other_days_is_empty(ask: ApiClient):
    await _used(ask, "writer", "dear", 100, 2.0)
    yesterday = (datetime.now(UTC).date() - timedelta(days=1)).isoformat()
    found = (await ask("GET", f"/cost?from={yesterday}&to={yesterday}")).body
    assert (found["cost"], found["jobs"], found["agents"], len(found["days"])) == (0, [], [], 1)
    late = (await ask("GET", "/cost", to="9999-12-31")).body
    assert late["cost"] == 0


@on_one_store
async def test_the_report_is_available_as_csv(ask: ApiClient):
    await _used(ask, "writer", "dear", 100, 2.0)
    lines = cost_csv(await ask.app.services.admin.cost.report(LOCAL, "default")).splitlines()
    job = (await ask("GET", "/agents/writer/jobs/dear")).body["id"]
    assert lines == [
        "date,level,agent,job,job_id,tokens,cost",
        f"{_today()},workspace,,,,100,2.0",
        f"{_today()},agent,writer,,,100,2.0",
        f"{_today()},job,writer,dear,{job},100,2.0",
    ]
