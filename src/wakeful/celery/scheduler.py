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

import asyncio
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from celery import beat
from celery.utils.log import get_logger as get_celery_logger
from tzlocal import get_localzone_name

from wakeful.app import Wakeful
from wakeful.celery.entries import LABEL, convert_entries, unusable
from wakeful.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
    WakefulError,
)
from wakeful.logs import get_logger
from wakeful.service.auth.access import LOCAL
from wakeful.settings import FILE, Settings, read_settings
from wakeful.store.address import mask_address
from wakeful.values.json_value import Json

#: Seconds that `stop` waits for the thread beyond the grace period of running work.
_STOP_S: Final = 15.0
#: Another beat that starts at the same time may write the same job.
_TRIES: Final = 3
#: Seconds between two checks of whether the engine still runs.
_CHECK_S: Final = 1.0
_DEFAULT_GRACE_S: Final = 10.0

log = get_logger("wakeful.celery")
#: the log of Celery: its settings decide where beat logs
beat_log = get_celery_logger("celery.beat")


class EngineThread:
    """Runs a `Wakeful` from `start` to `stop`, in a thread with an event loop of its own."""

    def __init__(self, app: Wakeful, grace_s: float) -> None:
        self._app = app
        self._grace_s = grace_s
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="wakeful", daemon=True)

    def start(self) -> None:
        """Start, and return when the engine runs. Raises what prevents it."""
        self._thread.start()
        self._started.wait()
        self.check()

    def check(self) -> None:
        """Raise the error that has ended the engine, if it has ended."""
        if self._error is not None:
            raise self._error
        if not self._thread.is_alive():
            raise Unavailable("the scheduler has stopped")

    def stop(self) -> None:
        """Stop launching, let running work end within the grace period, and return."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
            self._thread.join(self._grace_s + _STOP_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._app.on_error = self._stopping.set
        async with self._app:
            self._started.set()
            await self._stopping.wait()
        if self._app.error is not None:
            raise self._app.error


async def sync_jobs(
    app: Wakeful, workspace: str, agent: str, app_name: str, documents: Mapping[str, Mapping[str, Json]]
) -> None:
    """Save the documents (by entry), and delete jobs of this app whose entry is gone.

    All documents are checked before one is saved. Pauses, anchors and the history of jobs stay. Raises
    InvalidArgument that names every entry that cannot be saved.
    """
    service = app.services.jobs
    existing = {job.name: dict(job.labels) for job in await app.jobs.list()}
    problems: list[tuple[str, str]] = []
    for entry, document in documents.items():
        name = str(document["name"])
        if name in existing and existing[name].get(LABEL) != app_name:
            owner = existing[name].get(LABEL)
            whose = f"the app '{owner}' has" if owner else "there is"
            problems.append((entry, f"{whose} a job '{name}' already; rename the entry, or delete the job"))
            continue
        try:
            await service.upsert(LOCAL, workspace, agent, document, dry_run=True)
        except InvalidArgument as error:
            problems.append((entry, error.message))
    if problems:
        raise unusable(problems)
    for document in documents.values():
        await _save(app, workspace, agent, document)
    wanted = {str(document["name"]) for document in documents.values()}
    gone = [name for name, labels in existing.items() if labels.get(LABEL) == app_name and name not in wanted]
    for name in gone:
        try:
            await service.delete(LOCAL, workspace, agent, name)
        except NotFound:  # another beat deleted it
            continue
        log.info("celery.entry_removed", job=name, agent=agent, workspace=workspace)
    log.info("celery.schedule_saved", count=len(documents), removed=len(gone), db_agent=agent)


async def _save(app: Wakeful, workspace: str, agent: str, document: Mapping[str, Json]) -> None:
    for tries in range(1, _TRIES + 1):
        try:
            await app.services.jobs.upsert(LOCAL, workspace, agent, document)
            return
        except (AlreadyExists, FailedPrecondition):
            if tries == _TRIES:
                raise


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
        return f"    . db -> {mask_address(self._url)}"

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
