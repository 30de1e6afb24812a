"""The tool `cron` in runs of the agent: from a scheduled run it adds one-time jobs only."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.conftest import NewApp
from tests.support.api_client import ApiClient, served
from tests.support.waiting import eventually, over
from wakeful import Wakeful
from wakeful.job.targets import Command
from wakeful.service.auth.access import LOCAL

pytest.importorskip("mcp")

from tests.support.mcp_agent import Agent, over_http, over_stdio

WEEKLY = {"schedule": "every monday at 9", "message": "Remind Ada."}
CLAIM = {"worker": "w", "agents": ["writer"], "limit": 1, "waitMs": 20_000}


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Use SQLite only: the tool does not depend on the store."""
    return f"sqlite:///{tmp_path}/wakeful.db"


@pytest.fixture
async def operator(new_app: NewApp) -> AsyncIterator[ApiClient]:
    app = new_app(commands=["*"])
    async with app, served(app) as caller:
        await app.services.agents.put(LOCAL, "default", "writer", {"queue": {"debounceMs": 0}})
        yield caller


async def scheduled_run(operator: ApiClient) -> str:
    """Return a scheduled run that an executor has claimed."""
    check = {"name": "check", "schedule": "every 1s", "message": "Look at the inbox."}
    await operator("PUT", "/agents/writer/jobs/check", check)
    (run,) = (await operator("POST", "/runs/claim", CLAIM)).body["runs"]
    assert run["trigger"] == "schedule"
    await operator("POST", "/agents/writer/jobs/check/pause")
    return str(run["id"])


async def jobs_of(agent: Agent) -> list[str]:
    return [job["name"] for job in (await agent("list"))["jobs"] if job["name"] != "check"]


async def add_what_a_prompt_injection_asks_for(agent: Agent) -> None:
    """Try every way to a recurring job, and to many jobs."""
    for job in (WEEKLY, {**WEEKLY, "schedule": "every 1m"}, {"after": "check", "message": "And then."}):
        assert "one-time jobs" in await agent.refused(action="add", job={"name": "remind", **job})
    await agent("add", name="once", schedule="in 20 minutes", message="Look again.")
    for fields in ({"schedule": "every 1m"}, {"every_minutes": 1}):
        assert "one-time jobs" in await agent.refused(action="update", jobId="once", job=fields)
    for number in range(4):
        await agent("add", schedule="in 20 minutes", message=f"Look again {number}.")
        await agent("remove", jobId=f"look-again-{number}")
    for _ in range(3):
        full = await agent.refused(action="add", schedule="in 20 minutes", message="Once more.")
        assert full.startswith("resource-exhausted: ")
    assert (await agent.refused(action="run", jobId="once")).startswith("resource-exhausted: ")
    assert await jobs_of(agent) == ["once"]


async def test_over_http_a_scheduled_run_adds_one_time_jobs_only(operator: ApiClient):
    writer = await operator.new("agent", agent="writer")
    run_id = await scheduled_run(operator)
    async with over_http(writer, run_id=run_id) as agent:
        await add_what_a_prompt_injection_asks_for(agent)
        # A job that the agent paused before cannot come back by an end of its pause.
        async with over_http(writer) as outside:
            await outside("add", name="weekly", **WEEKLY)
            await outside("pause", jobId="weekly")
        assert "one-time jobs" in await agent.refused(action="resume", jobId="weekly")
        assert "one-time jobs" in await agent.refused(action="pause", jobId="weekly", until="in 1 minute")
        await operator("POST", f"/runs/{run_id}/complete", {"attempt": 1, "status": "succeeded"})
        ended = await agent.refused(action="add", schedule="in 1 minute", message="Too late.")
        assert ended.startswith("failed-precondition: ")


async def test_over_stdio_the_run_is_that_of_the_environment(operator: ApiClient, tmp_path: Path):
    writer = await operator.new("agent", agent="writer")
    run_id = await scheduled_run(operator)
    async with over_stdio(writer.url, writer.key, tmp_path, run_id=run_id) as agent:
        await add_what_a_prompt_injection_asks_for(agent)


async def test_in_a_conversation_the_tool_adds_any_job_which_delivers_there(operator: ApiClient):
    writer = await operator.new("agent", agent="writer")
    said = {"message": "Remind me every Monday.", "session": "s1", "channel": "telegram", "to": "123"}
    await operator("POST", "/agents/writer/messages", said)
    (turn,) = (await operator("POST", "/runs/claim", CLAIM)).body["runs"]
    async with over_http(writer, run_id=turn["id"]) as agent:
        job = (await agent("add", name="weekly", **WEEKLY))["job"]
    assert (job["deliver"], job["channel"], job["to"]) == (True, "telegram", "123")
    assert (job["origin"]["session"], job["catchupPolicy"], job["depth"]) == ("s1", "latest", 1)


async def test_a_job_that_needs_approval_says_so(operator: ApiClient):
    await operator("PUT", "/agents/writer", {"approval": "required"})
    async with over_http(await operator.new("agent", agent="writer")) as agent:
        added = await agent("add", name="weekly", **WEEKLY)
        assert "waits for approval" in added["text"]
        assert "only a person" in await agent.refused(action="resume", jobId="weekly")
        assert "waits for approval" in await agent.refused(action="run", jobId="weekly")
        edited = await agent("update", jobId="weekly", job={"schedule": "every 1m"})
        assert edited["job"]["disabledReason"] == "approval"


async def test_a_command_makes_its_jobs_in_its_run(operator: ApiClient, tmp_path: Path):
    """The command line and the client of a command send its run, without any settings."""
    app: Wakeful = operator.app
    key = tmp_path / "key"
    key.write_text(str((await operator.new("agent", agent="writer")).key))
    script = f"""
        export WAKEFUL_URL={operator.url} WAKEFUL_KEY=$(cat {key}) HOME={tmp_path}
        python -m wakeful add once --agent writer -s 'in 20m' -m 'Look again.' --json
        python -m wakeful add weekly --agent writer -s '0 9 * * 1' -m 'Remind Ada.' 2>&1
        python -c "from wakeful import Client
with Client(agent='writer') as client:
    print(client.jobs.create('again', schedule='in 30m', message='Again.').depth)
with Client(agent='writer', run_id='') as client:
    print(client.jobs.create('outside', schedule='every 1h', message='x').schedule)"
        true"""
    script = script.replace("python ", f"{sys.executable} ")
    jobs = app.jobs.of("writer")
    await jobs.create(
        "shell",
        schedule="every 1s",
        start_at=datetime.now(UTC) + timedelta(seconds=1),
        max_runs=1,
        max_attempts=1,
        target=Command("sh", "-c", script),
    )
    (tick, *_) = await eventually(lambda: jobs.runs("shell"))
    run = await over(app, tick.id)
    assert run.state == "succeeded", run
    assert "only one-time jobs may be made" in (run.output or "")
    found = {job.name: job for job in await jobs.list() if job.name != "shell"}
    assert sorted(found) == ["again", "once", "outside"]
    assert {job.depth for job in found.values()} == {1}
