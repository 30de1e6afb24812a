"""Permissions over HTTP: every path, requested by every role.

Each row is a request and the expected status for each role. `ok` is 2xx or 409, which does not depend on the
role. Resources of others are not found, own resources that are not allowed are denied, and requests without a
valid key are unauthenticated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Container
from typing import NamedTuple

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, served
from tests.support.effort import part
from tests.support.factories import alone, asked, asleep, ended, held
from tests.support.instances import agent_class
from tests.support.openapi import openapi_document
from tests.support.suggestions import suggest
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.services import Services
from wakeful.settings import Settings
from wakeful.store.accounts import KeyRow
from wakeful.store.port import Store
from wakeful.store.sql.incidents import IncidentFilter
from wakeful.store.sql.people import PersonRow
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.store.sql.web_sessions import WebSessionRow
from wakeful.values.ids import new_id

_OK, _DENIED, _MISSING = "ok", 403, 404
#: admin of the workspace, operator of all, member, own agent, other agent, admin of another workspace
_ROLES = ("admin", "operator", "member", "own", "foreign", "elsewhere")
_NOBODY = ("none", "expired", "revoked")


class Row(NamedTuple):
    method: str
    path: str
    body: object
    #: in the order of `_ROLES`
    answers: tuple[object, ...]


def _all(foreign: object = _MISSING) -> tuple[object, ...]:
    return (_OK, _OK, _OK, _OK, foreign, _MISSING)


def _admins(own: object = _DENIED, foreign: object = _MISSING) -> tuple[object, ...]:
    return (_OK, _OK, _DENIED, own, foreign, _MISSING)


_PEOPLE = (_OK, _OK, _OK, _DENIED, _MISSING, _MISSING)
_OWN = f"{HOME}/agents/writer"
_JOB = f"{_OWN}/jobs/digest"
_INSTANCE = f"{_OWN}/instances/eu"
_SIGNAL = {"specversion": "1.0", "id": "1", "source": "/tests", "type": "text.write"}
_DOCUMENT = {"schedule": SELDOM, "target": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}

#: Paths of a whole workspace are not found only for other workspaces: an agent sees its own part.
TABLE = [
    Row("GET", "/api/workspaces", None, (_OK,) * 6),
    Row("GET", HOME, None, _all(_OK)),
    Row("PUT", HOME, {}, (_DENIED, _OK, _DENIED, _DENIED, _DENIED, _MISSING)),
    Row("GET", f"{HOME}/agents", None, _all(_OK)),
    Row("GET", _OWN, None, _all()),
    Row("PUT", _OWN, {"target": {"kind": "pull"}}, _admins()),
    Row("PATCH", _OWN, {"description": "x"}, _admins()),
    Row("POST", f"{_OWN}/rotate-secret", None, _admins()),
    Row("DELETE", _OWN, None, _admins()),
    Row("GET", f"{HOME}/jobs", None, _all(_OK)),
    Row("GET", f"{HOME}/search", None, _all(_OK)),
    Row("GET", f"{HOME}/jobs/digest", None, _all()),
    Row("POST", f"{HOME}/jobs/pause", {"all": True}, (_OK, _OK, _DENIED, _OK, _OK, _MISSING)),
    Row("POST", f"{HOME}/jobs/resume", {"all": True}, (_OK, _OK, _DENIED, _OK, _OK, _MISSING)),
    Row("POST", f"{HOME}/jobs/run", {"all": True}, (_OK, _OK, _OK, _OK, _OK, _MISSING)),
    Row("POST", f"{HOME}/jobs/delete", {"all": True}, (_OK, _OK, _DENIED, _OK, _OK, _MISSING)),
    Row("GET", f"{_OWN}/jobs", None, _all()),
    Row(
        "POST", f"{_OWN}/jobs", {"name": "digest", **_DOCUMENT}, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)
    ),
    Row(
        "POST",
        f"{_OWN}/jobs/bulk",
        {"jobs": [{"name": "more", "schedule": SELDOM}]},
        (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING),
    ),
    Row("POST", f"{HOME}/schedules/preview", {"schedule": SELDOM}, _all(_OK)),
    Row("POST", f"{_OWN}/jobs/snippets", {"name": "digest"}, _all()),
    Row(
        "POST",
        f"{_OWN}/jobs/test-target",
        {"target": {"kind": "echo"}},
        (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING),
    ),
    Row("GET", _JOB, None, _all()),
    Row("PUT", _JOB, _DOCUMENT, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("PATCH", _JOB, {"description": "x"}, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("DELETE", _JOB, None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_JOB}/pause", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_JOB}/skip-next", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_JOB}/resume", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_JOB}/rotate-secret", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_JOB}/hook", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("GET", f"{_JOB}/hook", None, _all()),
    Row("DELETE", f"{_JOB}/hook", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_JOB}/run", None, _all()),
    Row("POST", f"{_JOB}/backfill", {"start": 0, "end": 1}, _all()),
    Row("GET", f"{_JOB}/runs", None, _all()),
    Row("GET", f"{_OWN}/runs", None, _all()),
    Row("POST", f"{_OWN}/runs", None, _admins()),
    Row("POST", f"{_OWN}/messages", {"message": "hello"}, _all()),
    Row("GET", f"{_OWN}/sessions", None, _all()),
    Row("GET", f"{_OWN}/sessions/main", None, _all()),
    Row("DELETE", f"{_OWN}/sessions/main", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_OWN}/signals?instance=eu", _SIGNAL, _all()),
    Row("GET", f"{HOME}/instances", None, _all(_OK)),
    Row("GET", f"{HOME}/instances?agent=writer", None, _all()),
    Row("GET", f"{_OWN}/instances", None, _all()),
    Row("GET", _INSTANCE, None, _all()),
    Row("POST", f"{_INSTANCE}/start", {}, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_INSTANCE}/hibernate", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("POST", f"{_INSTANCE}/pause", {"note": "x"}, _admins()),
    Row("POST", f"{_INSTANCE}/resume", None, _admins()),
    Row("POST", f"{_INSTANCE}/stop", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("DELETE", _INSTANCE, None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("DELETE", f"{_INSTANCE}?erase=true", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row(
        "POST",
        f"{_OWN}/instances/start",
        {"instances": [{"id": "us"}]},
        (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING),
    ),
    Row("GET", f"{HOME}/runs", None, _all(_OK)),
    Row("GET", f"{HOME}/runs?agent=writer", None, _all()),
    Row("GET", f"{HOME}/runs/{{run}}", None, _all()),
    Row("POST", f"{HOME}/runs/{{run}}/cancel", None, _all()),
    Row("POST", f"{HOME}/runs/{{run}}/stop", None, _all()),
    Row("POST", f"{HOME}/runs/{{run}}/complete", {"status": "succeeded", "attempt": 1}, _all()),
    Row("POST", f"{HOME}/runs/{{run}}/verify", {"verified": True}, _PEOPLE),
    Row("POST", f"{HOME}/runs/{{run}}/heartbeat", {"attempt": 1}, _all()),
    Row("POST", f"{HOME}/runs/heartbeat", {"runs": []}, _all(_OK)),
    Row("POST", f"{HOME}/runs/release", {"worker": "w1", "runs": []}, _all(_OK)),
    Row("POST", f"{HOME}/runs/complete", {"runs": []}, _all(_OK)),
    Row("POST", f"{HOME}/runs/{{run}}/replay", None, _admins()),
    Row("POST", f"{HOME}/runs/claim", {"worker": "w", "agents": ["writer"]}, _all()),
    Row("GET", f"{HOME}/incidents", None, _all(_OK)),
    Row("GET", f"{HOME}/incidents?agent=writer", None, _all()),
    Row("GET", f"{HOME}/incidents/{{incident}}", None, _all()),
    Row("POST", f"{HOME}/incidents/{{incident}}/ack", None, _PEOPLE),
    Row("GET", f"{HOME}/inbox", None, _all(_OK)),
    Row("GET", f"{HOME}/inbox/counts", None, _all(_OK)),
    Row("GET", f"{HOME}/inbox?agent=writer", None, _all()),
    Row("POST", f"{HOME}/inbox/incident:{{incident}}/approve", None, _PEOPLE),
    Row("POST", f"{HOME}/inbox/verification:{{run}}/reject", None, _PEOPLE),
    Row("GET", f"{HOME}/suggestions", None, _all(_OK)),
    Row("GET", f"{HOME}/suggestions?agent=writer", None, _all()),
    Row("GET", f"{HOME}/suggestions/{{suggestion}}", None, _all()),
    Row("POST", f"{HOME}/suggestions/{{suggestion}}/apply", None, _admins()),
    Row("POST", f"{HOME}/suggestions/{{suggestion}}/dismiss", None, _admins()),
    Row("POST", f"{HOME}/suggestions/{{suggestion}}/rollback", None, _admins()),
    Row("GET", f"{_JOB}/revisions", None, _all()),
    Row("POST", f"{_JOB}/revisions/{{revision}}/restore", None, (_OK, _OK, _DENIED, _OK, _MISSING, _MISSING)),
    Row("GET", f"{HOME}/dead-letters/groups", None, _all(_OK)),
    Row("GET", f"{HOME}/dead-letters", None, _all(_OK)),
    Row("GET", f"{HOME}/dead-letters?agent=writer", None, _all()),
    Row("POST", f"{HOME}/dead-letters/replay", {"all": True}, _admins(foreign=_DENIED)),
    Row("POST", f"{HOME}/dead-letters/discard", {"ids": []}, _admins(foreign=_DENIED)),
    Row("GET", f"{HOME}/workflows/invoices/1", None, _all(_OK)),
    Row("PUT", f"{HOME}/workflows/invoices/1", {"nodes": []}, _admins(foreign=_DENIED)),
    Row("GET", f"{HOME}/keys", None, _admins(foreign=_DENIED)),
    Row("POST", f"{HOME}/keys", {"name": "new", "role": "member"}, _admins(foreign=_DENIED)),
    Row("DELETE", f"{HOME}/keys/{{key}}", None, _admins(foreign=_DENIED)),
    Row("GET", f"{HOME}/people", None, _admins(foreign=_DENIED)),
    Row("DELETE", f"{HOME}/people/{{person}}", None, (_DENIED, _OK, _DENIED, _DENIED, _DENIED, _MISSING)),
    Row("GET", f"{HOME}/keys/{{key}}/sessions", None, _admins(foreign=_DENIED)),
    Row("DELETE", f"{HOME}/keys/{{key}}/sessions", None, _admins(foreign=_DENIED)),
    Row("DELETE", f"{HOME}/keys/{{key}}/sessions/{{web_session}}", None, _admins(foreign=_DENIED)),
    Row("POST", "/api/sign-in-links", None, (_OK,) * 6),
    Row("GET", f"{HOME}/quotas", None, _all(_OK)),
    Row("GET", f"{HOME}/subscriptions", None, _all(_OK)),
    Row("GET", f"{HOME}/subscriptions?agent=writer", None, _all()),
    Row(
        "DELETE",
        f"{HOME}/subscriptions/{{subscription}}",
        None,
        (_OK, _OK, _MISSING, _MISSING, _MISSING, _MISSING),
    ),
    Row(
        "PUT",
        f"{HOME}/quotas",
        {"bucket": "scheduler.liveJobs", "limit": 9},
        (_DENIED, _OK, _DENIED, _DENIED, _DENIED, _MISSING),
    ),
    Row("GET", f"{HOME}/cost", None, _all(_OK)),
    Row("GET", f"{HOME}/cost?agent=writer", None, _all()),
    Row("GET", f"{HOME}/workers", None, _admins(foreign=_DENIED)),
    Row("GET", f"{HOME}/channels", None, _admins(foreign=_DENIED)),
    Row("POST", f"{HOME}/channels/log/test", None, _admins(foreign=_DENIED)),
    Row("GET", f"{HOME}/settings", None, (_DENIED, _OK, _DENIED, _DENIED, _DENIED, _MISSING)),
    Row("GET", f"{HOME}/audit", None, _admins(foreign=_DENIED)),
    Row("GET", f"{HOME}/audit/verify", None, _admins(foreign=_DENIED)),
    Row("GET", f"{HOME}/status", None, _all(_OK)),
    Row("GET", f"{HOME}/slo", None, _all(_OK)),
    Row("GET", f"{HOME}/peaks", None, _all(_OK)),
    Row("GET", f"{HOME}/peaks?agent=writer", None, _all()),
    Row("GET", f"{HOME}/doctor", None, _admins(foreign=_DENIED)),
]


_NAMES = ("key", "person", "revision", "incident", "suggestion", "subscription")


@pytest.fixture
async def people(new_app: NewApp) -> AsyncIterator[dict[str, ApiClient]]:
    """Yield a client for each role."""
    app = new_app(settings=Settings(channels={"log": "json://127.0.0.1:1/"}))
    async with app, served(app) as operator:
        services = app.services
        await services.agents.workspaces.put(LOCAL, "acme", {})
        people = {
            "operator": operator,
            "admin": await operator.new("admin"),
            "member": await operator.new("member"),
            "own": await operator.new("agent", agent="writer"),
            "foreign": await operator.new("agent", agent="painter"),
            "elsewhere": await operator.new("admin", "acme"),
            "none": operator.with_key(None),
            "revoked": await operator.new("admin", name="revoked"),
            "expired": operator.with_key(await _expired(services)),
        }
        (row,) = [row for row in await services.auth.keys.list(LOCAL, "default") if row.name == "revoked"]
        await services.auth.keys.revoke(LOCAL, "default", row.id)
        await services.agents.put(LOCAL, "default", "painter", {})
        yield people


async def _expired(services: Services) -> str:
    """Add a key that expires now and return its text."""
    text, now_ms = "wk_" + "x" * 43, services.store.clock.now_ms()
    key_id, hashed = new_id(now_ms), hashlib.sha256(text.encode()).digest()
    row = KeyRow(
        key_id, "default", "expired", "admin", None, hashed, now_ms - 1_000, "python", now_ms, None, None
    )
    await services.store.add_key(row, [LOCAL.entry("default", "key.create", key_id)])
    return text


@on_one_store
async def test_every_path_responds_to_every_role_as_in_the_table(people: dict[str, ApiClient]):
    wrong, things = [], dict[str, str]()
    for row in part(TABLE):
        # The most privileged roles come last: they may delete the resource.
        for role, expected in reversed(list(zip(_ROLES, row.answers, strict=True))):
            named = set(re.findall(r"\{(\w+)\}", row.path))
            if not things or not named <= things.keys():
                things = await _things(people["operator"], named)
            reply = await people[role](row.method, row.path.format(**things), row.body)
            found = _OK if reply.status < 300 or reply.status == 409 else reply.status
            if found != expected:
                wrong.append(f"{row.method} {row.path} as {role}: {found}, not {expected}: {reply.body}")
            if row.method != "GET" and reply.status < 300:
                things = {}  # the request may have changed them
    assert not wrong, "\n".join(wrong)


@on_one_store
async def test_every_path_is_unauthenticated_without_a_valid_key(people: dict[str, ApiClient]):
    things = await _things(people["operator"])
    while (await people["expired"]("GET", HOME)).status == 200:
        pass
    for row in TABLE:
        for role in _NOBODY:
            reply = await people[role](row.method, row.path.format(**things), row.body)
            assert (reply.status, reply.code) == (401, "unauthenticated"), (row, role)


def test_the_table_contains_every_path():
    told = {
        (method.upper(), path)
        for path, methods in openapi_document()["paths"].items()
        for method in methods
        if path.startswith("/api") and not path.endswith("/events")
    }
    assert len(told) == len({(row.method, row.path.partition("?")[0]) for row in TABLE})


async def _things(operator: ApiClient, named: Container[str] = _NAMES) -> dict[str, str]:
    """Create the resources that the table refers to, and those of these names; return their ids."""
    services = operator.app.services
    await services.agents.put(LOCAL, "default", "writer", {"target": {"kind": "pull"}})
    own = Principal("key:writer", "agent", "default", "writer")
    await services.jobs.upsert(own, "default", "writer", {"name": "digest", **_DOCUMENT})
    await services.jobs.hooks.create(own, "default", "writer", "digest")
    await services.store.put_class(agent_class(agent="writer"), services.store.clock.now_ms())
    await services.agents.instances.start(LOCAL, "default", "writer", "eu")
    await services.admin.workflows.put(LOCAL, "default", "invoices", 1, {"nodes": []})
    run = await services.agents.wakes.wake(LOCAL, "default", "writer")
    await services.agents.messages.send(
        LOCAL, "default", "writer", {"message": "/stop"}
    )  # adds the session `main`
    made = {"run": run.id}
    if "key" in named:
        key, text = await services.auth.keys.create(LOCAL, "default", {"name": "spare", "role": "member"})
        await services.auth.web_sessions.sign_in(text)
        (web_session,) = await services.auth.web_sessions.list(LOCAL, "default", key.id)
        made |= {"key": key.id, "web_session": web_session.id}
    if "person" in named:
        now_ms = services.store.clock.now_ms()
        person = PersonRow("1f", "https://id.example", "ada", "Ada", None, {"*": "admin"}, now_ms, now_ms)
        session = WebSessionRow(new_id(now_ms).encode(), person.actor, now_ms, now_ms, now_ms + 1_000, None)
        await services.store.sign_in_person(person, session)
        made["person"] = person.id
    if "revision" in named:
        (revision, *_) = await services.jobs.revisions.list(LOCAL, "default", "writer", "digest")
        made["revision"] = str(revision.version)
    if "subscription" in named:
        made["subscription"] = await _subscription(services.store)
    if "incident" in named:
        made["incident"] = await _incident(services.store)
    if "suggestion" in named:
        made["suggestion"] = await suggest(services.store, "writer", "digest")
    return made


async def _subscription(store: Store) -> str:
    """Return the id of a new subscription of somebody else."""
    identity = f"sub_{new_id(0)}"
    job = asleep(identity.replace("_", "-"), agent="writer")
    row = SubscriptionRow(
        identity,
        "default",
        "writer",
        "key:else",
        "schedule.tick",
        "{}",
        "https://a.example/",
        job.id,
        0,
        0,
        0,
    )
    await store.subscribe(row, job, lambda written: [])
    return identity


async def _incident(store: Store) -> str:
    """Let a run of the job fail, and return the incident."""
    job = await store.job("default", "writer", "digest")
    assert job is not None
    failed = held(asked(job))
    await store.add_runs([failed])
    await store.finish("w1", [ended(failed, "failed")], alone)
    (incident, *_) = await store.incidents(
        IncidentFilter("default", "writer", states=("open", "acknowledged"))
    )
    return incident.id


async def test_an_agent_key_does_not_see_other_agents(people: dict[str, ApiClient]):
    things = await _things(people["operator"])
    run = await people["own"]("GET", f"/runs/{things['run']}")
    assert run.body["agentId"] == "writer"
    lists = ("jobs", "runs", "instances", "incidents", "suggestions", "dead-letters", "agents", "quotas")
    for path in (f"/{name}" for name in lists):
        mine, theirs = await people["own"]("GET", path), await people["foreign"]("GET", path)
        assert (mine.status, theirs.status) == (200, 200)
        assert "writer" not in str(theirs.body), path
        assert "painter" not in str(mine.body), path
    assert (await people["foreign"]("POST", "/runs/claim", {"worker": "w", "limit": 9})).body == {"runs": []}
    claimed = await people["own"]("POST", "/runs/claim", {"worker": "w", "limit": 9})
    assert [each["id"] for each in claimed.body["runs"]] == [things["run"]]
