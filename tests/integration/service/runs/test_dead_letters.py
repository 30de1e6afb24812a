"""Dead letters: failed runs that are kept until they are replayed or discarded."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import epoch_ms, over
from wakeful import FailedPrecondition, Function, Launch, NotFound, Permanent, ResourceExhausted, Wakeful
from wakeful.model import Run
from wakeful.run.outcome import Failed
from wakeful.service.auth.access import LOCAL


class Work:
    """A function that fails until `mended` is set."""

    def __init__(self, app: Wakeful) -> None:
        self.mended = False
        self.calls: list[Launch] = []
        app.function("work")(self)

    async def __call__(self, run: Launch) -> str:
        self.calls.append(run)
        if not self.mended:
            raise RuntimeError("not yet")
        return "done"


async def a_dead_letter(app: Wakeful) -> Run:
    await app.jobs.create(
        "job",
        schedule=SELDOM,
        target=Function("work"),
        max_attempts=2,
        backoff={"base": "10ms", "max": "10ms"},
    )
    return await over(app, (await app.jobs.run("job", payload={"n": 1})).id)


async def test_a_run_that_fails_its_last_attempt_is_a_dead_letter(new_app: NewApp):
    app = new_app()
    Work(app)
    async with app:
        run = await a_dead_letter(app)
        assert (run.state, run.dead, run.attempt, run.error) == ("failed", True, 2, "RuntimeError: not yet")
        assert [letter.id for letter in await app.runs.dead_letters()] == [run.id]
        assert (await app.jobs.get("job")).failures == 1


async def test_a_replay_is_a_new_run_with_the_same_key_and_the_next_attempt(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        dead = await a_dead_letter(app)
        work.mended = True
        replayed = await app.runs.replay(dead.id)
        run = await over(app, replayed.id)
        old = await app.runs.get(dead.id)
        assert await app.runs.dead_letters() == []
        assert (await app.jobs.get("job")).failures == 0
    assert run.id != dead.id
    assert (run.state, run.trigger, run.replay_of, run.attempt) == ("succeeded", "replay", dead.id, 3)
    assert (run.idempotency_key, epoch_ms(run.scheduled_at)) == (
        dead.idempotency_key,
        epoch_ms(dead.scheduled_at),
    )
    assert (old.state, old.dead, old.error) == ("failed", False, dead.error)
    assert [(call.attempt, call.payload) for call in work.calls] == [(n, {"n": 1}) for n in (1, 2, 3)]


async def test_a_failed_replay_is_a_dead_letter(new_app: NewApp):
    app = new_app()
    Work(app)
    async with app:
        dead = await a_dead_letter(app)
        again = await over(app, (await app.runs.replay(dead.id)).id)
        assert (again.state, again.dead, again.attempt, again.failed_attempts) == ("failed", True, 4, 2)
        assert [letter.id for letter in await app.runs.dead_letters()] == [again.id]
        third = await over(app, (await app.runs.replay(again.id)).id)
    assert (third.attempt, third.replay_of) == (6, again.id)
    assert third.idempotency_key == dead.idempotency_key


async def test_only_a_dead_letter_can_be_replayed_and_only_once(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        dead = await a_dead_letter(app)
        work.mended = True
        fine = await over(app, (await app.runs.replay(dead.id)).id)
        for run in (dead, fine):
            with pytest.raises(FailedPrecondition, match="not a dead letter"):
                await app.runs.replay(run.id)
        assert len(await app.runs.list()) == 2


async def test_a_dead_letter_can_be_discarded_once(new_app: NewApp):
    app = new_app()
    Work(app)
    async with app:
        dead = await a_dead_letter(app)
        await app.runs.discard(dead.id)
        assert await app.runs.dead_letters() == []
        assert (await app.runs.get(dead.id)).state == "failed"
        with pytest.raises(FailedPrecondition, match="not a dead letter"):
            await app.runs.discard(dead.id)
        with pytest.raises(FailedPrecondition):
            await app.runs.replay(dead.id)


async def test_a_dead_letter_of_a_deleted_job_can_be_replayed(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        dead = await a_dead_letter(app)
        await app.jobs.delete("job")
        assert [letter.id for letter in await app.runs.dead_letters()] == [dead.id]
        work.mended = True
        run = await over(app, (await app.runs.replay(dead.id)).id)
    assert (run.state, run.output) == ("succeeded", "done")
    assert work.calls[-1].job == "job"


async def test_a_dead_letter_can_be_replayed_after_a_restart(new_app: NewApp):
    app = new_app()
    Work(app)
    async with app:
        dead = await a_dead_letter(app)
    app = new_app()
    Work(app).mended = True
    async with app:
        assert [letter.id for letter in await app.runs.dead_letters()] == [dead.id]
        assert (await over(app, (await app.runs.replay(dead.id)).id)).state == "succeeded"


async def test_a_permanent_failure_is_a_dead_letter(new_app: NewApp):
    app = new_app()

    @app.function("work")
    async def work() -> None:
        raise Permanent("never")

    async with app:
        dead = await a_dead_letter(app)
        assert (dead.state, dead.dead, dead.attempt) == ("failed", True, 1)


async def test_a_dead_letter_of_another_workspace_is_not_found(new_app: NewApp):
    app, stranger = new_app(), new_app(workspace="other")
    Work(app)
    Work(stranger)
    async with app, stranger:
        dead = await a_dead_letter(app)
        assert await stranger.runs.dead_letters() == []
        for asking in (stranger.runs.replay(dead.id), stranger.runs.discard(dead.id)):
            with pytest.raises(NotFound):
                await asking
        assert (await app.runs.get(dead.id)).dead


async def test_a_replay_uses_the_current_target_of_its_job(new_app: NewApp):
    app = new_app()
    Work(app)
    async with app:
        dead = await a_dead_letter(app)
        await app.jobs.update("job", target={"kind": "pull", "claimTimeoutMs": 7_200_000})
        replayed = await app.runs.replay(dead.id)
        assert (replayed.state, replayed.lane) == ("pending", "cron")
        assert epoch_ms(replayed.until_at) == epoch_ms(replayed.fire_at) + 7_200_000


async def test_a_replay_of_many_leaves_out_dead_letters_over_budget(new_app: NewApp):
    app = new_app()

    @app.function("spend")
    async def spend() -> Failed:
        return Failed("no", permanent=True, usage='{"tokens":60}')

    async with app:
        runs, letters = app.services.runs, []
        for name, most in (("rich", 1_000), ("poor", 50)):
            await app.jobs.create(
                name, schedule=SELDOM, target=Function("spend"), budget={"tokens_per_day": most}
            )
            letters.append((await over(app, (await app.jobs.run(name)).id)).id)
        assert await runs.replay_many(LOCAL, "default", [letters[1], letters[0]]) == [letters[0]]
        with pytest.raises(ResourceExhausted, match="job 'poor' has used its budget of 50 tokens a day"):
            await runs.replay_many(LOCAL, "default", [letters[1]])
        assert letters[1] in await runs.discard_many(LOCAL, "default")
