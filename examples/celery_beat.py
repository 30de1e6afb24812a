"""Celery beat on Wakeful: a durable schedule with history, for the tasks of an existing Celery app.

    redis-server                                  # or set REDIS_URL
    celery -A celery_beat worker                  # in examples/, each in a terminal of its own
    celery -A celery_beat beat

Then `wakeful serve` in the same directory shows the jobs, and the result of each run. Start a second beat:
each tick is still sent once. Stop both for a while: the newest missed tick of each job is caught up.
"""

import os

from celery import Celery
from celery.schedules import crontab

REDIS = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")

app = Celery("celery_beat", broker=REDIS, backend=REDIS)
app.conf.timezone = "Europe/Berlin"
app.conf.beat_scheduler = "wakeful.celery:Scheduler"  # the only setting that is new
app.conf.wakeful_db = "sqlite:///wakeful.db"  # postgresql://… for more than one machine
app.conf.beat_schedule = {
    "each-second": {"task": "celery_beat.report", "schedule": 1.0, "args": ["check"]},
    "digest": {
        "task": "celery_beat.report",
        "schedule": crontab(minute=0, hour=7, day_of_week="mon-fri"),
        "args": ["digest"],
        "options": {"wakeful": {"maxAttempts": 3, "timeout": "5m"}},
    },
}


@app.task
def report(name):
    return f"the {name} is done"
