"""`may` says exactly what the services do not refuse: each operation on each kind of object, by each role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, served
from tests.support.factories import FalseClock, alone, asked, ended, held
from tests.support.instances import agent_class
from tests.support.rpc_client import calling
from tests.support.statements import recorded
from tests.support.suggestions import suggest
from wakeful.service import rights
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.settings import Settings
from wakeful.store.sql.incidents import IncidentFilter

Calls = dict[str, tuple[str, str, object]]

_WEBHOOK: Final = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
#: Operation: method, the rest of the path, body. The ones that end the object come last.
JOB: Final[Calls] = {
    "run": ("POST", "/run", None),
    "run-with-payload": ("POST", "/run", {"payload": {"n": 1}}),
    "edit": ("PATCH", "", {"description": "changed"}),
    "skip-next": ("POST", "/skip-next", None),
    "backfill": ("POST", "/backfill", {"start": 0, "end": 1}),
    "rotate-secret": ("POST", "/rotate-secret", None),
    "hook": ("POST", "/hook", None),
    "pause": ("POST", "/pause", None),
    "resume": ("POST", "/resume", None),
    "delete": ("DELETE", "", None),
}
RUN: Final[Calls] = {
    "complete": ("POST", "/complete", {"status": "succeeded", "attempt": 1}),
    "verify": ("POST", "/verify", {"verified": True}),
    "replay": ("POST", "/replay", None),
    "discard": ("POST", f"{HOME}/dead-letters/discard", {"ids": []}),
    "stop": ("POST", "/stop", None),
    "cancel": ("POST", "/cancel", None),
}
INSTANCE: Final[Calls] = {
    "start": ("POST", "/start", {}),
    "signal": ("POST", f"{HOME}/agents/writer/signals?instance=eu", {"type": "text.write"}),
    "pause": ("POST", "/pause", None),
    "resume": ("POST", "/resume", None),
    "hibernate": ("POST", "/hibernate", None),
    "stop": ("POST", "/stop", None),
    "delete": ("DELETE", "", None),
}
AGENT: Final[Calls] = {
    "add-job": ("POST", "/jobs", {"name": "more", "schedule": SELDOM}),
    "message": ("POST", "/messages", {"message": "/stop"}),
    "signal": ("POST", "/signals?instance=eu", {"type": "text.write"}),
    "start-instance": ("POST", "/instances/us/start", {}),
    "wake": ("POST", "/runs", None),
    "edit": ("PATCH", "", {"description": "changed"}),
    "rotate-secret": ("POST", "/rotate-secret", None),
    "delete": ("DELETE", "", None),
}
INCIDENT: Final[Calls] = {"acknowledge": ("POST", "/ack", None)}
SUGGESTION: Final[Calls] = {name: ("POST", f"/{name}", None) for name in rights.SUGGESTION}
WORKSPACE: Final[Calls] = {
    "add-agent": ("PUT", "/agents/new", {}),
    "add-key": ("POST", "/keys", {"name": "new", "role": "member"}),
    "set-quota": ("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": 999}),
    "edit": ("PUT", "", {}),
}
KEY: Final[Calls] = {"revoke": ("DELETE", "", None)}


def test_each_operation_is_tried():
    tried = JOB, RUN, AGENT, INSTANCE, INCIDENT, SUGGESTION, WORKSPACE, KEY
    declared = (
        rights.JOB, rights.RUN, rights.AGENT, rights.INSTANCE, rights.INCIDENT, rights.SUGGESTION,
        rights.WORKSPACE, rights.KEY,
    )  # fmt: skip
    assert [each.keys() for each in tried] == [each.keys() for each in declared]


@pytest.fixture
async def people(new_app: NewApp) -> AsyncIterator[dict[str, ApiClient]]:
    """Yield a client for each role; the agents `bound` and `shy` need approval, or may act only in runs."""
    async with new_app(settings=Settings()) as app, served(app) as operator:
        app.store.clock = app.services.store.clock
        for agent, more in (
            ("writer", {}),
            ("bound", {"approval": "required"}),
            ("shy", {"selfScheduling": {"outsideRuns": False}}),
        ):
            document = {"target": {"kind": "pull"}, "heartbeat": {"every": "1h"}, **more}
            await app.services.agents.put(LOCAL, "default", agent, document)
        await app.store.put_class(agent_class(agent="writer"), app.store.clock.now_ms())
        await app.services.agents.instances.start(LOCAL, "default", "writer", "eu")
        yield {
            "operator": operator,
            "admin": await operator.new("admin"),
            "member": await operator.new("member"),
            **{name: await operator.new("agent", agent=name) for name in ("writer", "bound", "shy")},
        }


def _key(content: dict[str, Any]) -> Any:
    return content.get("id") or content["name"]


async def _wrong(person: ApiClient, path: str, calls: Calls, listed: str = "") -> list[str]:
    """Try each operation on one object; return those for which `may` says something else than the service.

    `listed` is the list with the object: its rights are the same there.
    """
    wrong = []
    for name, (method, rest, body) in calls.items():
        found = await person("GET", path)
        if found.status == 404:
            break
        may = found.body["may"]
        if listed:
            content = (await person("GET", listed)).body.values()
            rows = next(each for each in content if isinstance(each, list))
            (row,) = [row for row in rows if _key(row) == _key(found.body)]
            assert row["may"] == may, (path, name)
            listed = ""
        reply = await person(method, rest if rest.startswith("/api") else path + rest, body)
        internal = "is an internal job of Wakeful" in str(reply.body)
        if (name in may) == (reply.status in (403, 404) or internal):  # 404: a new agent, for an agent's key
            wrong.append(f"{method} {path}{rest}: {reply.status} although may is {may}: {reply.body}")
    return wrong


JOBS: Final[dict[str, tuple[Any, dict[str, object]]]] = {
    "of an admin": ("admin", {}),
    "of the agent": ("own", {}),
    "of the agent, with the webhook of an admin": ("own", {"target": _WEBHOOK}),
    "that waits for approval": ("waiting", {}),
}


@on_one_store
@pytest.mark.parametrize("agent", ["writer", "bound", "shy"])
async def test_a_job_says_what_each_role_may_do_with_it(people: dict[str, ApiClient], agent: str):
    wrong: list[str] = []
    store, jobs = people["operator"].app.store, people["operator"].app.services.jobs
    for role in ("operator", "admin", "member", agent) if agent == "writer" else (agent,):
        for number, (creator, more) in enumerate(JOBS.values()):
            name = f"job-{number}"
            await jobs.upsert(LOCAL, "default", agent, {"name": name, "schedule": SELDOM, **more})
            row = await store.job("default", agent, name)
            assert row is not None
            await store.delete_job(row.id, row.created_ms, "deleted")
            if creator == "waiting":
                row = row._replace(enabled=False, disabled_reason="approval", next_ms=None)
            by = "admin:key:1" if creator == "admin" else "agent:key:2"
            await store.create_jobs([row._replace(id=row.id[:-4] + "0000", created_by=by)])
            path = f"/agents/{agent}/jobs/{name}"
            wrong += await _wrong(people[role], path, JOB, f"/jobs?agent={agent}&include_disabled=true")
            await people["operator"]("DELETE", path)
        heartbeat = f"/agents/{agent}/jobs/heartbeat"
        wrong += await _wrong(people[role], heartbeat, JOB, f"/jobs?agent={agent}&include_disabled=true")
    assert not wrong, "\n".join(wrong)


@on_one_store
async def test_a_run_says_what_each_role_may_do_with_it(people: dict[str, ApiClient]):
    wrong: list[str] = []
    operator, own = people["operator"], people["writer"]
    services = operator.app.services
    alerts = {"alerts": {"url": "http://127.0.0.1:9/"}, "target": {"kind": "pull"}}
    await services.agents.put(LOCAL, "default", "writer", alerts)
    await own("POST", "/agents/writer/jobs", {"name": "mine", "schedule": SELDOM})
    await operator(
        "POST", "/agents/writer/jobs", {"name": "theirs", "schedule": SELDOM, "overlapPolicy": "allow"}
    )
    for role in ("operator", "admin", "member", "writer"):
        for starter, job in (("operator", "mine"), ("operator", "theirs"), ("writer", "theirs")):
            started = await people[starter]("POST", f"/agents/writer/jobs/{job}/run")
            if started.status == 429:
                continue
            wrong += await _wrong(people[role], f"/runs/{started.body['id']}", RUN, "/runs?limit=1")
        woken = await operator("POST", "/agents/writer/runs")
        wrong += await _wrong(people[role], f"/runs/{woken.body['id']}", RUN)
        alert = next(
            each for each in (await operator("GET", "/agents/writer/jobs?include_disabled=true")).body["jobs"]
            if "alert" in each["name"]
        )  # fmt: skip
        run = await operator("POST", f"/agents/writer/jobs/{alert['id']}/run")
        wrong += await _wrong(people[role], f"/runs/{run.body['id']}", RUN)
    assert not wrong, "\n".join(wrong)


@on_one_store
async def test_other_objects_say_what_each_role_may_do_with_them(people: dict[str, ApiClient]):
    wrong: list[str] = []
    operator = people["operator"]
    services, store = operator.app.services, operator.app.store
    principal = Principal("key:writer", "agent", "default", "writer")
    await services.jobs.upsert(principal, "default", "writer", {"name": "digest", "schedule": SELDOM})
    job = await store.job("default", "writer", "digest")
    assert job is not None
    for role in ("writer", "member", "admin", "operator"):
        failed = held(asked(job))
        await store.add_runs([failed])
        await store.finish("w1", [ended(failed, "failed")], alone)
        (incident, *_) = await store.incidents(IncidentFilter("default", "writer"))
        suggestion = await suggest(store, "writer", "digest")
        person = people[role]
        wrong += await _wrong(person, f"/incidents/{incident.id}", INCIDENT, "/incidents")
        wrong += await _wrong(person, f"/suggestions/{suggestion}", SUGGESTION, "/suggestions")
        wrong += await _wrong(person, "/agents/writer/instances/eu", INSTANCE, "/instances")
        wrong += await _wrong(person, "/agents/writer", AGENT, "/agents")
        wrong += await _wrong(person, "/api/workspaces/default", WORKSPACE, "/api/workspaces")
        await services.agents.instances.start(LOCAL, "default", "writer", "eu")
    for role in ("bound", "shy"):
        wrong += await _wrong(people[role], f"/agents/{role}", AGENT, "/agents")
    keys = (await people["admin"]("GET", "/keys")).body["keys"]
    assert [key["may"] for key in keys] == [["revoke"]] * len(keys)
    assert not wrong, "\n".join(wrong)


@on_one_store
async def test_rights_take_no_statement_for_each_row(new_app: NewApp):
    app = new_app()  # without an engine, whose statements are not counted
    app.store.clock = FalseClock()  # what is kept for a second is known from an earlier request
    await app.store.open()
    fewest: list[int] = []
    try:
        async with served(app) as operator:
            own = await operator.new("agent", agent="default")
            for number in range(12):
                document = {"name": f"job-{number}", "schedule": SELDOM, "overlapPolicy": "allow"}
                await operator("POST", "/agents/default/jobs", document)
                await operator("POST", f"/agents/default/jobs/job-{number}/run")
                if number not in (1, 11):
                    continue
                counts = []
                for _ in range(4):  # a notification that arrives late makes one of them read what is kept
                    with recorded(app.store) as texts:
                        jobs = (await own("GET", "/jobs")).body["jobs"]
                        runs = (await own("GET", "/runs")).body["runs"]
                    counts.append(len(texts))
                fewest.append(min(counts))
            assert (len(jobs), len(runs)) == (12, 12)
            assert fewest == [2, 2], texts
    finally:
        await app.store.close()


@on_one_store
async def test_the_rpc_and_a_python_program_see_the_rights_too(people: dict[str, ApiClient]):
    operator = people["operator"]
    await operator("POST", "/agents/writer/jobs", {"name": "theirs", "schedule": SELDOM})
    async with calling(people["writer"]) as call:
        jobs = (await call("cron.list", agentId="writer"))["jobs"]
    (job,) = [each for each in jobs if each["name"] == "theirs"]
    assert job["may"] == ["run"]
    (found,) = (await people["writer"]("GET", "/search", q="theirs")).body["jobs"]
    assert found["may"] == ["run"]
    mine = await operator.app.jobs.of("writer").get("theirs")
    assert mine.may == tuple(rights.JOB)
