"""A Celery app with a beat schedule for tests; a file in the environment has the entries as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from celery import Celery, signals
from celery.schedules import crontab

app = Celery("beat-tests", broker=os.environ.get("TEST_REDIS"), backend=os.environ.get("TEST_REDIS"))
app.conf.update(
    beat_scheduler="wakeful.celery:Scheduler",
    wakeful_db=os.environ.get("TEST_DATABASE"),
    # Without the variables, a test of the documentation only imports it.
    beat_schedule=json.loads(Path(os.environ.get("TEST_SCHEDULE", os.devnull)).read_text() or "{}"),
    timezone="Europe/Berlin",
)


@app.on_after_finalize.connect
def _add(sender: Any, **_: object) -> None:
    sender.add_periodic_task(crontab(minute=0, hour=7), sender.signature("tests.add", (1, 2)), name="Morning")


@signals.beat_init.connect
def _ready(**_: object) -> None:
    Path(os.environ["TEST_READY"]).touch()
