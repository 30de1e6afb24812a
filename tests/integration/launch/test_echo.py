"""Jobs with the target echo, and the agent `default` of a new database, on every store."""

from __future__ import annotations

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient
from wakeful import Echo
from wakeful.launch.echo import ECHO
from wakeful.service.auth.access import LOCAL


@on_one_store
async def test_a_run_of_an_echo_job_succeeds_with_its_message(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("hello", schedule=SELDOM, target=Echo(), message="good morning")
        run = await app.runs.wait((await app.jobs.run("hello")).id)
        assert (run.state, run.output, run.attempt) == ("succeeded", "good morning", 1)
        run = await app.runs.wait((await app.jobs.run("hello", payload={"to": "me"})).id)
        assert run.output == '{"to":"me"}'


@on_one_store
async def test_an_agents_key_may_use_echo_and_a_wrong_field_is_refused(ask: ApiClient):
    await ask("PUT", "/agents/writer", {})
    writer = await ask.new("agent", agent="writer")
    job = {"name": "hello", "schedule": SELDOM, "target": {"kind": "echo"}}
    assert (await writer("POST", "/agents/writer/jobs", job)).status == 201
    wrong = await ask("POST", JOBS, {**job, "target": {"kind": "echo", "text": "hi"}})
    assert (wrong.status, wrong.body["detail"]) == (
        422,
        "target: an echo target has no field 'text'; set a message or a payload",
    )


async def test_the_default_agent_of_a_new_database_gets_the_target_once(new_app: NewApp):
    async with new_app() as app:
        agents = app.services.agents
        assert await agents.give_first_target(ECHO)
        assert (await app.agents.get("default")).target == ECHO
        assert not await agents.give_first_target(ECHO)
        await app.agents.put("default", {})
        assert not await agents.give_first_target(ECHO), "a person removed it"
        assert (await app.agents.get("default")).target is None


async def test_a_database_with_a_key_is_not_new(new_app: NewApp):
    async with new_app() as app:
        await app.services.auth.keys.first_key()
        assert not await app.services.agents.give_first_target(ECHO)


async def test_a_database_with_a_job_is_not_new(new_app: NewApp):
    async with new_app() as app:
        await app.services.jobs.create(LOCAL, "default", "writer", {"name": "a", "schedule": SELDOM})
        assert not await app.services.agents.give_first_target(ECHO)
        assert (await app.agents.get("default")).target is None
