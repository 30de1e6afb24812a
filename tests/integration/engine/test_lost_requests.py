"""Requests that were lost with their process are sent again at once: they cannot have killed it."""

from __future__ import annotations

from tests.integration.conftest import SELDOM, NewApp
from tests.support.factories import asked, held
from wakeful import Webhook
from wakeful.run.consequences import consequences

#: What the worker of the app does not have, so that it leaves the runs.
_ELSEWHERE = "function:elsewhere"


async def test_lost_webhooks_are_no_suspects(new_app: NewApp):
    async with new_app() as app:
        hook = await app.jobs.create("hook", schedule=SELDOM, target=Webhook("https://agent.example"))
        checked = await app.jobs.create(
            "checked",
            schedule=SELDOM,
            target=Webhook("https://agent.example"),
            precheck={"kind": "function", "name": "look"},
        )
        now_ms = app.store.clock.now_ms()
        runs = []
        for job in (hook, checked):
            row = await app.store.job_by_id(job.id)
            assert row is not None
            runs += [
                held(asked(row, now_ms, serial=False, requires=_ELSEWHERE), "w1", since=now_ms)
                for _ in range(2)
            ]
        await app.store.add_runs(runs)
        assert app._engine is not None
        later = now_ms + 10_000
        await app.store.rescue(later, later, 10, app._engine._rescuer._judge, consequences)
        due_ms = later + 60_000
        taken = await app.store.take(due_ms, "w2", {"cron": 10}, {_ELSEWHERE: 0})
        assert {run.job_name for run in taken} == {"hook"}
        assert [run.failed_attempts for run in taken] == [0, 0]
        suspects = await app.store.take_suspects(due_ms, "w2", ["cron"], {_ELSEWHERE: 0}, limit=10)
        assert {run.job_name for run in suspects} == {"checked"}
