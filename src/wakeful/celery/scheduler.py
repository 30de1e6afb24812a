"""A scheduler for Celery beat that keeps the schedule, and what became of each tick, in Wakeful's database.

    app.conf.beat_scheduler = "wakeful.celery:Scheduler"

The entries of `beat_schedule`, and those of `add_periodic_task`, become jobs with `celery` targets when beat
starts. Any number of beats may run: each tick is sent once. Missed ticks are caught up by the policy of their
job, and every run has its result, if the app has a result backend.

Settings of the app: `wakeful_db` (else `WAKEFUL_DB`, else `sqlite:///wakeful.db`), `wakeful_workspace` and
`wakeful_agent` (both `default`), `wakeful_grace` (10 seconds), `wakeful_name_app` (the targets of its jobs
name the app).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from celery import beat
from celery.utils.log import get_logger
from tzlocal import get_localzone_name

from wakeful.app import Wakeful
from wakeful.celery.engine_thread import EngineThread
from wakeful.celery.entries import convert_entries
from wakeful.celery.job_sync import sync_jobs
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.job.job import Json
from wakeful.settings import FILE, Settings, read_settings
from wakeful.store.address import shown_address

#: Seconds between two checks of whether the engine still runs.
_CHECK_S: Final = 1.0
_DEFAULT_GRACE_S: Final = 10.0

#: the log of Celery: its settings decide where beat logs
beat_log = get_logger("celery.beat")


class Scheduler(beat.Scheduler):  # type: ignore[misc]
    """Plans the entries of a beat schedule with Wakeful's engine, in a thread of beat."""

    def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
        self._engine: EngineThread | None = None
        self._settings = read_settings(os.environ, FILE)
        super().__init__(app, *args, **kwargs)

    def setup_schedule(self) -> None:
        """Convert the entries, save them as jobs, and start the engine. An error ends the process.

        Celery prints hundreds of lines for an exception here, in which the message is not found.
        """
        try:
            self._start_engine()
        except WakefulError as error:
            beat_log.critical("%s", error.message)
            raise SystemExit(1) from error

    def _start_engine(self) -> None:
        self.app.finalize()
        entries = dict(self.app.conf.beat_schedule)
        self.install_default_entries(entries)
        documents = convert_entries(
            {**self._default_entries(), **entries},
            self.app_name,
            self.timezone,
            in_target=self._names_app,
        )
        self._engine = EngineThread(self._wakeful(documents), self._grace_s)
        self._engine.start()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Check the engine, which sends the tasks. Returns the seconds until the next check."""
        if self._engine is not None:
            self._engine.check()
        return min(_CHECK_S, float(self.max_interval))

    def close(self) -> None:
        """Stop the engine."""
        if self._engine is not None:
            self._engine.stop()
        super().close()

    @property
    def app_name(self) -> str:
        """The name of the app, which its jobs have in a label."""
        return str(self.app.main or "celery")

    @property
    def _names_app(self) -> bool:
        """Whether the targets of the jobs name the app, so that no process with another app takes them."""
        named = bool(self.app.conf.get("wakeful_name_app"))
        if named and not self.app.main:
            raise InvalidArgument("wakeful_name_app: the app has no name; name it, as in Celery('shop')")
        return named

    @property
    def timezone(self) -> str:
        """The IANA name of the zone of crontabs: that of the app."""
        conf = self.app.conf
        if conf.timezone is None and not conf.enable_utc:
            return str(get_localzone_name())
        zone = self.app.timezone
        return str(getattr(zone, "key", None) or getattr(zone, "zone", None) or zone)

    @property
    def info(self) -> str:
        """A line for the banner of beat."""
        return f"    . db -> {shown_address(self._url)}"

    def _default_entries(self) -> Mapping[str, Any]:
        """Return the entries that beat adds by itself, such as the cleanup of expired results."""
        return {
            name: {"task": entry.task, "schedule": entry.schedule, "options": entry.options}
            for name, entry in self.schedule.items()
        }

    @property
    def _url(self) -> str:
        return str(self.app.conf.get("wakeful_db") or self._settings.db)

    @property
    def _grace_s(self) -> float:
        return float(self.app.conf.get("wakeful_grace") or _DEFAULT_GRACE_S)

    def _wakeful(self, documents: Mapping[str, Mapping[str, Json]]) -> Wakeful:
        workspace = str(self.app.conf.get("wakeful_workspace") or "default")
        agent = str(self.app.conf.get("wakeful_agent") or "default")
        wakeful = Wakeful(
            self._url,
            workspace=workspace,
            agent=agent,
            settings=self._allowing(documents),
            celery=self.app,
            grace=self._grace_s,
            wait_for_db=self._settings.wait_for_db,
        )

        async def sync() -> None:
            await sync_jobs(wakeful, workspace, agent, self.app_name, documents)

        wakeful.before_start = sync
        return wakeful

    def _allowing(self, documents: Mapping[str, Mapping[str, Json]]) -> Settings:
        """Return the settings; tasks of the entries are allowed, also if an allowlist does not name them."""
        allowed = self._settings.celery_tasks
        if not allowed:
            return self._settings
        targets = [each["target"] for each in documents.values()]
        own = {str(target["task"]) for target in targets if isinstance(target, dict)}
        return replace(self._settings, celery_tasks=(*allowed, *sorted(own)))
