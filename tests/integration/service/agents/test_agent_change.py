"""A process that dies while it changes an agent leaves all jobs changed, or none."""

from __future__ import annotations

import asyncio
import signal

import pytest
from standardwebhooks import Webhook as StandardWebhook

from tests.integration.conftest import SELDOM, NewApp
from tests.support import prefork
from tests.support.api_client import ApiClient
from tests.support.paths import ROOT
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful.service.auth.access import LOCAL
from wakeful.store.rows import JobFilter

JOBS = 200


@pytest.mark.parametrize("when", ["deciding", "writing", "done"])
async def test_a_process_killed_while_it_deactivates_an_agent_disables_all_jobs_or_none(
    database: str, new_app: NewApp, when: str
):
    app = new_app()
    await app.store.open()
    documents = [{"name": f"job-{number}", "schedule": "every 1h"} for number in range(JOBS)]
    await app.services.jobs.create_many(LOCAL, "default", "ada", documents)
    process = await asyncio.create_subprocess_exec(
        *prefork.command(str(ROOT / "tests/support/agent_change.py"), database, when)
    )
    assert await process.wait() == -signal.SIGKILL
    agent = await app.store.agent("default", "ada")
    rows = await app.store.jobs(JobFilter("default", "ada"))
    assert agent is not None
    assert agent.active == (when != "done")
    assert [row.enabled for row in rows] == [agent.active] * JOBS
    assert [row.wake_ms is not None for row in rows] == [agent.active] * JOBS
    await app.services.agents.put(LOCAL, "default", "ada", {"active": False})
    assert not any(row.enabled for row in await app.store.jobs(JobFilter("default", "ada")))
    await app.store.close()


async def test_the_secret_of_an_agent_is_shown_once_and_signs_inherited_webhooks(
    ask: ApiClient, receiver: Receiver
):
    document = {"target": {"kind": "webhook", "url": receiver.url}}
    made = await ask("PUT", "/agents/ada", document)
    assert made.status == 201
    first = made.body["secret"]
    for reply in (await ask("PUT", "/agents/ada", document), await ask("GET", "/agents/ada")):
        assert "secret" not in reply.body
    created = await ask("POST", "/agents/ada/jobs", {"name": "job", "schedule": SELDOM})
    assert "secret" not in created.body
    for path in ("/agents/ada/jobs/job/run", "/agents/ada/runs"):
        run = (await ask("POST", path)).body["id"]
        await over(ask, run)
        verify(receiver, first)
    rotated = await ask("POST", "/agents/ada/rotate-secret")
    assert (rotated.status, rotated.body["version"]) == (200, 2)
    await over(ask, (await ask("POST", "/agents/ada/jobs/job/run")).body["id"])
    for secret in (first, rotated.body["secret"]):
        verify(receiver, secret)
    refused = await ask("POST", "/agents/ada/jobs/job/rotate-secret")
    assert (refused.status, refused.code) == (409, "failed-precondition")
    assert "rotate that one: POST /agents/ada/rotate-secret" in refused.body["detail"]


async def over(ask: ApiClient, run_id: str) -> None:
    async def succeeded() -> bool:
        return bool((await ask("GET", f"/runs/{run_id}")).body["state"] == "succeeded")

    await eventually(succeeded)


def verify(receiver: Receiver, secret: str) -> None:
    """Check the signature of the newest request, as receivers do."""
    StandardWebhook(secret).verify(receiver.bodies[-1], receiver.headers)
