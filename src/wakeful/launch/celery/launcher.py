"""The launcher of Celery targets: sends tasks in threads, and reads their results.

A launch ends when the broker has the task. The run awaits the result, which any replica with the app can
read: each one asks the result backend for the tasks that it sent, and at intervals for all tasks whose runs
await a result, so that the result of a task is found if the process that sent it has died.

A task whose run has ended otherwise (stopped, replaced, timed out) is revoked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from wakeful.document import work_from_text
from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.job.start_rules import CELERY, celery_requirement, is_celery
from wakeful.launch.broker import ApplyReport, RecordMessage, await_report, no_services, not_recorded
from wakeful.launch.celery.client import BROKER_S, ENDED, CeleryClient, CeleryHealth, Sending, Sent
from wakeful.launch.celery.results import SHORTEST_S, Awaited, TaskState, Tracker, task_report
from wakeful.launch.celery.target import TaskAllowlist, build_task, check_target, is_configured, load_app
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch, NotAllowed, truncate
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.settings import Settings
from wakeful.store.port import Store
from wakeful.store.rows import AwaitingRun
from wakeful.values.json_value import Json

#: Seconds within which the broker must accept a task.
SEND_S: Final = 30.0
#: Seconds between two looks at the runs of all replicas that await a result.
SWEEP_S: Final = 5.0
#: How many tasks are asked for at once.
_BATCH: Final = 500
#: How many runs of all replicas are read at once.
_PAGE: Final = 1_000
_SENDERS: Final = 8
#: Seconds before the next try if the result backend or the database is unavailable.
_RETRY_S: Final = 1.0

log = get_logger("wakeful.celery")


class CeleryLauncher:
    """Sends runs as tasks of a Celery app. `connect` loads the app; None: this process has none."""

    kind = "celery"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def __init__(
        self,
        store: Store,
        connect: Callable[[], CeleryClient] | None,
        *,
        allowlist: TaskAllowlist | None = None,
        record: RecordMessage = not_recorded,
    ) -> None:
        self._store = store
        self._connect = connect
        self._record = record
        self._allowlist = allowlist or TaskAllowlist((), trusted=True)
        #: set by the services of the process
        self.apply_report: ApplyReport = no_services
        self.on_capabilities_changed: Callable[[], object] = lambda: None
        self._client: CeleryClient | None = None
        self._tracker = Tracker()
        self._senders: ThreadPoolExecutor | None = None
        self._reader: ThreadPoolExecutor | None = None
        self._watching: asyncio.Task[None] | None = None
        self._added = asyncio.Event()
        self._revoking: set[asyncio.Task[None]] = set()
        #: whether the last read of results failed: it is logged once
        self._unreadable = False

    def capabilities(self) -> Mapping[str, int]:
        """Return that this process has a Celery app, if it has one. Its name is known once it is open."""
        if self._connect is None:
            return {}
        name = self._app_name
        return {CELERY: 0} if name is None else {CELERY: 0, celery_requirement(name): 0}

    @property
    def _app_name(self) -> str | None:
        return None if self._client is None else self._client.app_name

    async def examine(self) -> CeleryHealth | None:
        """Return the state of the app; None: this process has none. Raises Unavailable with the cause."""
        if self._client is None or self._senders is None:
            return None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._senders, self._client.examine)
        except Exception as error:  # of kombu, its transports, and the drivers of result backends
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    async def open(self) -> None:
        """Load the app, and read results from now on. Nothing is done if this process has no app."""
        if self._connect is None:
            return
        self._senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="wakeful-celery-send")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="wakeful-celery-read")
        loop = asyncio.get_running_loop()
        self._client = await loop.run_in_executor(self._reader, self._connect)
        self._added = asyncio.Event()
        if self._client.has_results:
            self._watching = loop.create_task(self._watch(self._client), name="wakeful-celery-results")

    async def close(self) -> None:
        """Stop reading results. Another replica, or the next start, finds those that are left."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        if self._revoking:
            await asyncio.wait(self._revoking, timeout=_RETRY_S)
        if self._client is not None and self._reader is not None:
            closing = asyncio.get_running_loop().run_in_executor(self._reader, self._client.close)
            await asyncio.wait({closing}, timeout=_RETRY_S)
        for threads in (self._senders, self._reader):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)
        self._senders = self._reader = self._client = None

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for a target that can never be launched, NotAllowed for its task."""
        check_target(target)
        if self._client is not None and not self._is_own(target):
            return  # a process that has that app checks the task when it is launched
        try:
            self._check_task(str(target["task"]))
        except NotAllowed as error:
            raise NotAllowed(f"target: {error.message}") from error

    def _is_own(self, target: Mapping[str, Json]) -> bool:
        """Return whether the app of this process is meant: it is named, or none is."""
        return target.get("app") in (None, self._app_name)

    def _check_task(self, task: str) -> None:
        self._allowlist.check(task, None if self._client is None else self._client.registered)

    # --- sending ---------------------------------------------------------------------------------

    async def start(self, run: Launch) -> Outcome:
        """Send the run as a task. It awaits the result if the app has a result backend."""
        client, senders = self._client, self._senders
        if client is None or senders is None:
            return Failed("no Celery app in this process", reason="not_registered", counted=False)
        if not self._is_own(run.target):  # planned by an older replica, or the job was edited
            return Failed(
                truncate(f"this process does not have the Celery app '{run.target['app']}'"),
                reason="not_registered",
                counted=False,
            )
        try:
            task = build_task(run)
            self._check_task(task.name)
        except NotAllowed as error:
            return Failed(truncate(error.message), permanent=True, reason="not_allowed")
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True, reason="invalid_target")
        outcome = await self._send(run, Sending(task), client, senders)
        self._record(self.kind, not isinstance(outcome, Failed))
        return outcome

    async def _send(
        self, run: Launch, sending: Sending, client: CeleryClient, senders: ThreadPoolExecutor
    ) -> Outcome:
        """Send a task. When this returns a failure, the task is not sent any more."""
        task_id = sending.task.id
        call = asyncio.get_running_loop().run_in_executor(senders, client.send, sending)
        try:
            await asyncio.wait({call}, timeout=SEND_S)
            if not call.done() and not sending.withdraw():
                await asyncio.wait({call}, timeout=2 * BROKER_S)  # the broker is just getting it
        except asyncio.CancelledError:
            self._give_up(call, sending)
            raise
        if not call.done() and sending.sent is None:
            self._give_up(call, sending)
            return _unavailable(f"it did not accept the task within {SEND_S:g} s", sending.may_be_sent)
        try:
            sent = sending.sent or call.result()
        except (TypeError, ValueError, OverflowError) as error:
            return Failed(
                truncate(f"the task cannot be sent: {error}"), permanent=True, reason="invalid_target"
            )
        except Exception as error:  # of kombu, its transports, and the drivers of result backends
            return _unavailable(f"{type(error).__name__}: {error}", sending.may_be_sent)
        if sent.adopted:
            log.info("celery.task_adopted", **run.log_fields, task_id=task_id)
        if not sent.awaits_result:
            return Succeeded(
                f"sent as task {task_id}; the Celery app keeps no result of it, so its outcome is not known"
            )
        self._await(Awaited(run.id, run.attempt, task_id))
        return await_report(run)

    def run_stopped(self, run_id: str) -> None:
        """Revoke the task of a run that was stopped."""
        stopped = self._tracker.of_run(run_id)
        for each in stopped:
            self._tracker.drop(each.task_id)
        self._revoke([each.task_id for each in stopped])

    def _await(self, awaited: Awaited) -> None:
        self._tracker.add(awaited, asyncio.get_running_loop().time(), own=True)
        self._added.set()

    def _give_up(self, call: asyncio.Future[Sent], sending: Sending) -> None:
        """Do not send a task; if the broker is just getting it, revoke it then: its run does not await it."""

        def revoke_sent(done: asyncio.Future[Sent]) -> None:
            if sending.sent is not None:
                self._revoke([sending.task.id])
            if not done.cancelled():
                done.exception()  # it has no other reader

        if sending.withdraw():
            call.cancel()
        call.add_done_callback(revoke_sent)

    def _revoke(self, task_ids: Sequence[str]) -> None:
        """Revoke tasks in the background. A task that cannot be revoked runs: its result has no effect."""
        if not task_ids or self._client is None or self._senders is None:
            return
        client, senders, loop = self._client, self._senders, asyncio.get_running_loop()

        async def revoke() -> None:
            try:
                await loop.run_in_executor(senders, client.revoke, task_ids)
                log.info("celery.tasks_revoked", count=len(task_ids), task_id=task_ids[0])
            except Exception as error:
                log.warning(
                    "celery.revoke_failed", count=len(task_ids), task_id=task_ids[0], error=str(error)
                )

        revoking = loop.create_task(revoke())
        self._revoking.add(revoking)
        revoking.add_done_callback(self._revoking.discard)

    # --- results ---------------------------------------------------------------------------------

    async def _watch(self, client: CeleryClient) -> None:
        """Read the results of awaited tasks until cancelled."""
        loop = asyncio.get_running_loop()
        next_sweep = loop.time()
        while True:
            try:
                await self._read_due(client)
                if loop.time() >= next_sweep:
                    await self._sweep(client)
                    next_sweep = loop.time() + SWEEP_S
                self._unreadable = False
            except Exception as error:  # of the driver of the backend, or of the database
                if not self._unreadable:
                    self._unreadable = True
                    log.warning("celery.results_unavailable", error=str(error), awaited=len(self._tracker))
                await asyncio.sleep(_RETRY_S)
            due = self._tracker.next_due()
            until = next_sweep if due is None else min(due, next_sweep)
            self._added.clear()
            delay = max(until - loop.time(), SHORTEST_S / 2)
            try:
                async with asyncio.timeout(delay):
                    await self._added.wait()
            except TimeoutError:
                pass

    async def _read_due(self, client: CeleryClient) -> None:
        loop, reader = asyncio.get_running_loop(), self._reader
        assert reader is not None
        due = self._tracker.due(loop.time())
        for start in range(0, len(due), _BATCH):
            batch = due[start : start + _BATCH]
            states = await loop.run_in_executor(reader, client.read, [each.task_id for each in batch])
            reports = [self._report_state(each, states.get(each.task_id)) for each in batch]
            errors = await asyncio.gather(*reports, return_exceptions=True)  # those of one affect no other
            for each, error in zip(batch, errors, strict=True):
                if isinstance(error, Exception) and not isinstance(error, Unavailable):
                    log.error("celery.result_error", run_id=each.run_id, task_id=each.task_id, exc_info=error)
            for error in errors:
                if isinstance(error, Unavailable):
                    raise error

    async def _report_state(self, awaited: Awaited, state: TaskState | None) -> None:
        """Report the state of a task about its run, if it has changed.

        The process that sent a task reports its result. Another one does so only if the run still awaits the
        result at its next look, which comes after a sweep: then the sender has died.
        """
        loop, task_id = asyncio.get_running_loop(), awaited.task_id
        sighting = self._tracker.record_query(
            task_id, loop.time(), None if state is None else state.fingerprint
        )
        if sighting is None or state is None:
            return
        ended = state.meta.get("status") in ENDED
        if ended and not sighting.own and sighting.changed:
            self._tracker.postpone(task_id, loop.time() + 2 * SWEEP_S)
            return
        if not ended and not sighting.changed:
            return
        try:
            result = await self.apply_report(
                self.kind, task_report(awaited.run_id, awaited.attempt, state.meta)
            )
        except Exception:
            if sighting.own:
                self._tracker.forget_state(task_id)
            raise
        if ended or not result.applied:
            self._tracker.drop(task_id)
        if not ended and not result.applied:
            self._revoke([task_id])

    def _may_have_sent(self, row: AwaitingRun) -> bool:
        """Return whether the run may await a task of the app of this process."""
        if row.edited:  # there is no result if it was sent to another target
            return True
        if is_celery(row.requires):
            return row.requires in self.capabilities()
        return _is_celery(row.work)

    async def _sweep(self, client: CeleryClient) -> None:
        """Await the tasks of all replicas, and revoke those whose runs have ended."""
        loop = asyncio.get_running_loop()
        began, awaiting, after = loop.time(), set[str](), ""
        while page := await self._store.awaiting_runs(after, _PAGE):
            for row in page:
                task_id = f"{row.idempotency_key}-{row.attempt}"
                awaiting.add(task_id)
                if self._may_have_sent(row):
                    self._tracker.add(Awaited(row.run_id, row.attempt, task_id), loop.time(), own=False)
            after = page[-1].run_id
        over: list[str] = []
        for each in self._tracker.missing(awaiting, began):
            run = await self._store.run(each.run_id)
            if run is None or run.state != "running" or run.attempt != each.attempt or run.verifying:
                self._tracker.drop(each.task_id)
                over.append(each.task_id)
        if over:
            states = await loop.run_in_executor(self._reader, client.read, over)
            ended = {task_id for task_id, state in states.items() if state.meta.get("status") in ENDED}
            self._revoke([task_id for task_id in over if task_id not in ended])


def celery_launcher(
    store: Store, settings: Settings, app: object | None, record: RecordMessage = not_recorded
) -> CeleryLauncher:
    """Return the launcher for an app, else for that of the settings, else one that launches nothing.

    `record` counts the tasks that are sent.
    """

    def connect() -> CeleryClient:
        return CeleryClient(
            load_app(settings) if app is None else app,
            terminate=settings.celery_terminate,
            has_code=app is not None or settings.celery_app is not None,
        )

    allowlist = TaskAllowlist(settings.celery_tasks, trusted=app is not None)
    known = app is not None or is_configured(settings)
    return CeleryLauncher(store, connect if known else None, allowlist=allowlist, record=record)


def _unavailable(why: str, sent: bool) -> Failed:
    """Return the failure of an attempt whose task the broker did not confirm. It counts if it may have it."""
    return Failed(
        truncate(f"the Celery broker is unavailable: {why}"), reason="broker_unavailable", counted=sent
    )


def _is_celery(work: str) -> bool:
    try:
        return work_from_text(work).broker == CeleryLauncher.kind
    except WakefulError:
        return False
