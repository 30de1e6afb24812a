"""Jobs that an event of an MCP server starts (`on`): how they are saved and shown."""

from __future__ import annotations

from tests.integration.conftest import NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient, served
from wakeful.settings import Settings
from wakeful.settings.event_servers import EventServer

_ON = {"server": "crm", "event": "ticket.created", "arguments": {"queue": "billing"}}


async def test_a_job_that_only_an_event_starts_needs_no_schedule(ask: ApiClient):
    path = f"{JOBS}/triage"
    made = await ask("PUT", path, {"name": "triage", "on": _ON, "target": {"kind": "pull"}})
    assert (made.status, made.body["schedule"], made.body["nextAt"], made.body["on"]) == (
        201,
        None,
        None,
        _ON,
    )
    assert made.body["explain"] == "On the event ticket.created of crm"
    assert "the operator sets it with WAKEFUL_EVENT_SERVER_CRM" in str(made.body["warnings"])
    read = (await ask("GET", path)).body
    assert "WAKEFUL_EVENT_SERVER_CRM" in str(read["warnings"])
    assert (await ask("PUT", path, read)).body["revision"] == 1, "the same document again"
    changed = await ask("PATCH", path, {"on": {**_ON, "event": "ticket.closed"}})
    assert (changed.body["revision"], changed.body["on"]["event"]) == (2, "ticket.closed")
    assert (await ask("PATCH", path, {"on": None})).status == 422
    assert (await ask("PATCH", path, {"on": None, "after": "other"})).body["on"] is None


@on_one_store
async def test_an_agent_that_the_operator_has_not_listed_gets_a_warning(new_app: NewApp):
    servers = {"crm": EventServer("https://crm.example.com/mcp", agents=("support",))}
    async with new_app(settings=Settings(event_servers=servers)) as app, served(app) as ask:
        other = await ask("PUT", f"{JOBS}/triage", {"name": "triage", "on": _ON, "target": {"kind": "pull"}})
        assert "WAKEFUL_EVENT_AGENTS_CRM" in str(other.body["warnings"])
        document = {"name": "triage", "on": _ON, "target": {"kind": "pull"}}
        assert (await ask("PUT", "/agents/support", {})).status in (200, 201)
        allowed = await ask("PUT", "/agents/support/jobs/triage", document)
        assert "EVENT" not in str(allowed.body.get("warnings")), allowed
