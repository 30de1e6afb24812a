"""Excluded days: computed off the event loop, refused if they leave no tick."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import holidays
import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support import prefork
from tests.support.api_client import JOBS, ApiClient
from tests.support.waiting import epoch_ms, stored
from wakeful import InvalidArgument

#: Creates, edits, plans and reads a job with holidays, and prints the threads that used the library.
_SCRIPT = """
import asyncio, json, sys, threading
from wakeful import Wakeful

used = set()

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "holidays":
            used.add(threading.current_thread().name)

sys.meta_path.insert(0, Spy())

def watch():
    import holidays
    real = holidays.country_holidays
    def spy(*given, **named):
        used.add(threading.current_thread().name)
        return real(*given, **named)
    holidays.country_holidays = spy

async def main(database, step):
    app = Wakeful(database, secret_key="a key for tests")
    ran = asyncio.Event()

    @app.function()
    async def note(run):
        ran.set()

    regions = [f"holidays:{name}" for name in ("DE-BY", "US", "FR", "GB", "JP")]
    async with app:
        if step == "make":
            target = {"kind": "function", "name": "note"}
            job = {"schedule": "0 9 * * *", "exclude": regions, "target": target}
            await app.jobs.create("digest", **job)
            watch()
            await app.jobs.update("digest", schedule="0 10 * * *")
            await app.jobs.upsert("digest", **job)
            await app.jobs.create("tick", schedule="every 1s", exclude="holidays:CH", target=target)
            await app.jobs.pause("digest")
            await app.jobs.resume("digest")
        await asyncio.wait_for(ran.wait(), 100)
        job = await app.jobs.get("digest")
        assert len(job.next_ticks) == 5
    print(json.dumps(sorted(used)))

asyncio.run(main(*sys.argv[1:]))
"""


def test_holidays_are_not_computed_on_the_event_loop(database: str, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    for step in ("make", "plan after a restart"):
        done = subprocess.run(
            prefork.command(str(script), database, step), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        used = set(json.loads(done.stdout.splitlines()[-1]))
        assert used, step
        assert used <= {"calendars_0", "calendars-planner_0"}, (
            f"{step}: not the event loop, not a database thread"
        )


@pytest.mark.parametrize(
    ("schedule", "exclude"),
    [
        ("0 9 25 12 *", ["holidays:DE"]),
        ("0 9 25 12 *", ["12-24/12-26"]),
        ("0 9 * * SAT", ["weekends"]),
        ("30 2 * * *", ["cron:* 2-4 * * *"]),
        ("every 15m", ["weekdays", "weekends"]),
    ],
)
@on_one_store
async def test_a_job_whose_every_tick_is_excluded_is_refused(
    ask: ApiClient, schedule: str, exclude: list[str]
):
    refused = await ask("POST", JOBS, {"name": "never", "schedule": schedule, "exclude": exclude})
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert "it never fires" in refused.body["detail"]
    assert (await ask("GET", f"{JOBS}/never")).status == 404


@on_one_store
async def test_a_job_with_more_than_ten_regions_is_refused(ask: ApiClient):
    countries = list(holidays.list_supported_countries())[:100]
    document: dict[str, Any] = {"name": "busy", "schedule": "0 9 * * *"}
    refused = await ask("POST", JOBS, {**document, "exclude": [f"holidays:{name}" for name in countries]})
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert "holidays from 100 regions; at most 10" in refused.body["detail"]


async def test_every_kind_of_exclusion_is_accepted_stored_and_applied(new_app: NewApp):
    exclude = ["2099-12-31", "12-24/12-26", "weekends", "holidays:DE-BY", "cron:* 2-4 * * *"]
    async with new_app() as app:
        await app.jobs.create("digest", schedule="0 */2 * * *", tz="UTC", exclude=exclude)
        job = await app.jobs.get("digest")
        assert job.exclude == tuple(exclude)
        ticks = (await stored(app, "digest")).ticks
        assert ticks is not None
        hours = {ms // 3_600_000 % 24 for ms in ticks.upcoming(epoch_ms(job.next_at), 50)}
        assert hours == {0, *range(6, 24, 2)}, "two and four o'clock are left out"
        with pytest.raises(InvalidArgument, match="'02-30' is not a date"):
            await app.jobs.update("digest", exclude=["02-30"])
