"""The storm benchmark with APScheduler 3, if it is installed."""

from __future__ import annotations

import importlib.util
import threading
import time
from datetime import UTC, datetime

_called: list[float] = []
_all_called = threading.Event()
_wanted = 0


def nothing() -> None:
    """Do nothing. APScheduler finds this function by its name."""
    _called.append(time.time())
    if len(_called) == _wanted:
        _all_called.set()


def has_apscheduler() -> bool:
    """Return whether APScheduler is installed."""
    return all(importlib.util.find_spec(name) for name in ("apscheduler", "sqlalchemy", "psycopg2"))


def apscheduler_rate(url: str, jobs: int) -> float:
    """Return the jobs per second, from the due instant to the last call."""
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from apscheduler.schedulers.background import BackgroundScheduler

    global _wanted
    _called.clear()
    _all_called.clear()
    _wanted = jobs
    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=url.replace("postgresql://", "postgresql+psycopg2://"))},
        executors={"default": ThreadPoolExecutor(20)},
        job_defaults={"misfire_grace_time": None},
        timezone=UTC,
    )
    scheduler.start(paused=True)
    due = datetime.now(UTC)
    for _ in range(jobs):
        scheduler.add_job(nothing, "interval", hours=1, next_run_time=due)
    began = time.perf_counter()
    scheduler.resume()
    _all_called.wait(600)
    took = time.perf_counter() - began
    scheduler.shutdown(wait=True)
    return jobs / took
