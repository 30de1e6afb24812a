"""Executes the runs of `pull` jobs as Jobs of Kubernetes, one for each attempt.

- **Once**: the name of a Job follows from the run and the attempt. The API server refuses a second one.
- **Restarts**: the executor stops without its Jobs. Its successor adopts those whose leases it can renew.
- **Outages**: requests to the API server are repeated. Leases are renewed meanwhile, and no runs are claimed.
- **The end of a lease**: a Job whose run was stopped, timed out or given to another executor is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from wakeful.errors import NotFound, Permanent, WakefulError
from wakeful.logs import get_logger
from wakeful.model import Run
from wakeful.model.codec import from_json
from wakeful.remote.handlers import Result
from wakeful.remote.kubernetes.api import KubernetesApi, KubernetesError
from wakeful.remote.kubernetes.states import (
    DEADLINE,
    AttemptKey,
    JobCompletion,
    JobView,
    current_attempts,
    failure,
    job_view,
    log_tail,
    newest_pod,
    outdated_jobs,
    start_delay,
    stuck_reason,
)
from wakeful.remote.kubernetes.templates import (
    Manifest,
    choose_template,
    job_manifest,
    job_name,
    main_container,
)
from wakeful.remote.kubernetes.watcher import JobWatcher
from wakeful.remote.worker import Worker

T = TypeVar("T")

#: What the run of a suspended Job waits for.
SUSPENDED: Final = "its Job is suspended, until a queue of the cluster or a person resumes it"

#: After so many faults a log is given up: its node may be gone, and the outcome of the Job is known.
LOG_FAULTS: Final = 5

log = get_logger("wakeful.remote")


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """The timing of an executor, in seconds."""

    #: between two searches for Jobs that this executor does not follow
    adopt_s: float = 10.0
    #: between two looks at a pod that has not started
    start_check_s: float = 15.0
    #: how long a pod may be unable to start, such as `ImagePullBackOff`, before its run fails
    start_grace_s: float = 120.0
    #: at the end: how long deletions may take
    close_s: float = 5.0


class KubernetesExecutor:
    """Runs a `Worker` whose handler is a Job. `serve` closes `api`."""

    def __init__(
        self,
        worker: Worker,
        api: KubernetesApi,
        templates: Mapping[str, Manifest],
        *,
        name: str,
        config: ExecutorConfig | None = None,
    ) -> None:
        self._worker = worker
        self._api = api
        self._templates = templates
        self._name = name
        self._config = config or ExecutorConfig()
        self._backoff = worker.config.backoff
        self.watcher = JobWatcher(api, name, self._backoff)
        #: the attempts that handlers follow, and the Jobs that need no more attention
        self._followed: set[AttemptKey] = set()
        self._adopted: set[AttemptKey] = set()
        self._settled: set[str] = set()
        #: what the start of a Job waits for, as its run shows it
        self._delays: dict[str, str] = {}
        self._deletions: dict[str, asyncio.Task[None]] = {}
        self._searched = asyncio.Event()
        worker.handler(self._execute)
        worker.before_claim(self._wait_until_ready)

    @property
    def ready(self) -> bool:
        """Whether Wakeful and the API server answered the last requests."""
        return self._worker.reachable and self.watcher.reachable

    @property
    def running(self) -> int:
        """How many Jobs are followed."""
        return self._worker.running

    def stop(self) -> None:
        """Claim no more runs, leave the Jobs running, and let `serve` return."""
        self._worker.stop()

    async def serve(self, *, signals: bool = False) -> None:
        """Execute runs until `stop` is called, or with `signals` until SIGTERM or SIGINT."""
        background = [
            asyncio.create_task(self.watcher.run(), name="wakeful-kubernetes-watch"),
            asyncio.create_task(self._adoptions(), name="wakeful-kubernetes-adopt"),
        ]
        try:
            await self._worker.serve(signals=signals)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._end_deletions()
            await self._api.close()

    async def _wait_until_ready(self) -> None:
        """Wait until runs may be claimed: the API server is reachable, and earlier Jobs are adopted."""
        await self._searched.wait()
        await self.watcher.wait_listed()

    # --- one run ----------------------------------------------------------------------------------

    async def _execute(self, run: Run) -> Result:
        """Create or adopt the Job of a run, and return how it ended."""
        attempt = AttemptKey(run.id, run.attempt)
        name = job_name(run)
        self._followed.add(attempt)
        try:
            refused = None if attempt in self._adopted else await self._create(run)
            result = refused or await self._follow(run, name)
            self._settled.add(name)
            return result
        except asyncio.CancelledError:
            if self._worker.is_lost(run):
                self._delete_later(name, "its run was stopped, timed out or is no longer this executor's")
            raise
        finally:
            self._followed.discard(attempt)
            self._adopted.discard(attempt)
            self._delays.pop(name, None)

    async def _create(self, run: Run) -> Result | None:
        """Create the Job of a run. Return why it cannot be created now; None: it exists."""
        manifest = job_manifest(choose_template(self._templates, run), run, self._name)
        name = str(manifest["metadata"]["name"])
        try:
            created = await self._persist(lambda: self._api.create_job(manifest))
            log.info("kubernetes.created", run_id=run.id, attempt=run.attempt, name=name)
        except KubernetesError as error:
            if error.status in (400, 413, 422):
                raise Permanent(f"the Job was refused: {error.message}") from error
            quota = error.exceeded_quota
            if error.status == 403 and quota is None:
                return Result(error=self._forbidden_text(error))
            if error.status not in (403, 409):
                raise
            # Also of a quota: this Job itself may have used it up, if the answer to its creation was lost.
            found = await self._existing(name)
            if found is None and quota is not None:
                log.warning("kubernetes.over_quota", run_id=run.id, attempt=run.attempt, quota=quota)
                return Result(error=f"the cluster has no room: exceeded quota: {quota}", counted=False)
            if found is None:  # it was deleted meanwhile, which `_follow` reports
                return None
            view = job_view(found)
            if view is None or (view.run_id, view.attempt) != (run.id, run.attempt):
                raise Permanent(f"there is another Job of the name '{name}'; delete it") from error
            log.info("kubernetes.adopted", run_id=run.id, attempt=run.attempt, name=name)
            created = found
        self.watcher.learn(created)
        return None

    def _forbidden_text(self, error: KubernetesError) -> str:
        """Return the error for a Job that a Role or an admission rule forbids."""
        return (
            f"the executor may not create this Job in namespace '{self._api.namespace}': {error.message}; "
            "check its Role (deploy/kubernetes/executor.yaml) and the admission rules of the cluster"
        )

    async def _follow(self, run: Run, name: str) -> Result:
        """Wait for the end of a Job, and return it as the result of its run."""
        loop = asyncio.get_running_loop()
        stuck_since: float | None = None
        delay: str | None = None
        while True:
            changed = self.watcher.change(name)
            view = self.watcher.job(name) or await self._read(name)
            if view is None:
                return Result(error="its Job was deleted before it had finished")
            if view.end is not None:
                return await self._result(name, view.end, delay)
            if view.ready or view.suspended:
                delay = SUSPENDED if view.suspended else None
                self._show_delay(run, name, delay)
                await changed.wait()
                continue
            try:
                async with asyncio.timeout(self._config.start_check_s):
                    await changed.wait()
                continue
            except TimeoutError:
                pods = await self._persist(lambda: self._api.pods(name))
            # Before a Job ends its pods are deleted: then the reason stays.
            if pods or delay in (None, SUSPENDED):
                delay = start_delay(pods)
            self._show_delay(run, name, delay)
            why = stuck_reason(pods)
            if why is None:
                stuck_since = None
            elif stuck_since is None:
                stuck_since = loop.time()
            elif loop.time() - stuck_since >= self._config.start_grace_s:
                self._delete_later(name, why)
                return Result(error=f"its pod cannot start: {why}")

    def _show_delay(self, run: Run, name: str, delay: str | None) -> None:
        """Show at the run what the start of its Job waits for; None: it does not wait."""
        if delay != self._delays.get(name):
            if delay is None:
                log.info("kubernetes.started", run_id=run.id, name=name)
                self._delays.pop(name)
            else:
                log.warning("kubernetes.waiting", run_id=run.id, name=name, reason=delay)
                self._delays[name] = delay
            self._worker.show_waiting(run, delay)

    async def _read(self, name: str) -> JobView | None:
        """Return a Job that the watch does not know; None: it does not exist."""
        manifest = await self._existing(name)
        if manifest is None:
            return None
        self.watcher.learn(manifest)
        return job_view(manifest)

    async def _existing(self, name: str) -> Mapping[str, Any] | None:
        try:
            return await self._persist(lambda: self._api.job(name))
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    async def _result(self, name: str, end: JobCompletion, delay: str | None) -> Result:
        pods = await self._persist(lambda: self._api.pods(name))
        output = await self._output(newest_pod(pods))
        if end.succeeded:
            return Result(output)
        error = failure(end, pods)
        late = delay is not None and end.reason == DEADLINE
        return Result(output, error=f"{error}; it had not started: {delay}" if late else error)

    async def _output(self, pod: Mapping[str, Any] | None) -> str | None:
        """Return the last part of the log of a pod; None: there is none."""
        if pod is None:
            return None
        name, container = str(pod["metadata"]["name"]), main_container(pod)
        try:
            return log_tail(await self._persist(lambda: self._api.log(name, container), LOG_FAULTS)) or None
        except KubernetesError as error:
            if error.status not in (400, 404):  # the container has not started, or its pod was deleted
                log.warning("kubernetes.log_unreadable", name=name, error=error.message)
            return None

    async def _persist(
        self, request: Callable[[], Coroutine[object, object, T]], most_faults: int | None = None
    ) -> T:
        """Repeat a request while the API server cannot answer it; raise its last fault after so many."""
        failures = faults = 0
        while True:
            try:
                return await request()
            except KubernetesError as error:
                faults += error.status >= 500
                if not error.is_transient or faults == most_faults:
                    raise
                failures += 1
                delay_s = max(self._backoff.delay(failures), error.retry_after_s)
            await asyncio.sleep(delay_s)

    # --- Jobs that no handler follows -------------------------------------------------------------

    async def _adoptions(self) -> None:
        """Search for Jobs of a predecessor, at the start and then from time to time."""
        failures = 0
        while True:
            await self.watcher.wait_listed()
            try:
                await self.adopt()
            except Exception as error:  # also of a response that cannot be read
                if self._worker.stopping:  # its connections are closed
                    return
                failures += 1
                if failures == 1:
                    log.warning("kubernetes.adoption_failed", error=str(error) or type(error).__name__)
                if isinstance(error, WakefulError):
                    self._end_search_on_error(error)
                await asyncio.sleep(self._backoff.delay(failures))
                continue
            failures = 0
            self._searched.set()
            await asyncio.sleep(self._config.adopt_s)

    def _end_search_on_error(self, error: WakefulError) -> None:
        """Let the claim report an error that does not go away, such as a wrong key."""
        if error.code != "unavailable":
            self._searched.set()

    async def adopt(self) -> None:
        """Follow the Jobs whose leases can be renewed, and delete the others that have not finished.

        They are those of a predecessor, and those whose deletion failed.
        """
        jobs = self.watcher.jobs()
        self._settled &= {job.name for job in jobs}
        unattended = [
            job
            for job in jobs
            if job.name not in self._settled and AttemptKey(job.run_id, job.attempt) not in self._followed
        ]
        if not unattended:
            return
        for job in outdated_jobs(unattended):
            self._abandon(job)
        current = current_attempts(unattended)
        renewed = await self._renew([*current])
        for attempt, job in current.items():
            if attempt in self._followed:
                continue  # its run was claimed meanwhile
            if attempt.run_id not in renewed:
                self._abandon(job)
                continue
            run = await self._readable(attempt.run_id)
            if run is None:
                self._abandon(job)
            elif run.attempt == attempt.number and attempt not in self._followed:
                log.info("kubernetes.adopted", run_id=run.id, attempt=run.attempt, name=job.name)
                self._adopted.add(attempt)
                self._followed.add(attempt)
                self._worker.adopt(run)

    async def _readable(self, run_id: str) -> Run | None:
        """Return a run; None: it was deleted, or this version cannot read it. That is not tried again."""
        try:
            found = await self._worker.client.get_run(run_id)
        except NotFound:
            return None
        try:
            return from_json(Run, found)
        except WakefulError as error:
            log.warning("kubernetes.adoption_failed", run_id=run_id, error=error.message)
            return None

    async def _renew(self, attempts: list[AttemptKey]) -> set[str]:
        """Renew leases; return the ids of the runs that are still to be executed."""
        renewed: set[str] = set()
        for start in range(0, len(attempts), 1_000):
            part = [{"id": each.run_id, "attempt": each.number} for each in attempts[start : start + 1_000]]
            beat = await self._worker.client.heartbeat_runs(runs=part)
            renewed.update(beat["renewed"])
        return renewed

    def _abandon(self, job: JobView) -> None:
        """Delete a Job without a lease. One that has finished stays until its time to live ends."""
        if job.end is None:
            self._delete_later(job.name, "its run is over, or no longer this executor's")
        else:
            self._settled.add(job.name)

    def _delete_later(self, name: str, reason: str) -> None:
        if name not in self._deletions:
            log.info("kubernetes.deleted", name=name, reason=reason)
            task = asyncio.create_task(self._delete(name), name=f"wakeful-kubernetes-delete-{name}")
            self._deletions[name] = task

    async def _delete(self, name: str) -> None:
        try:
            await self._persist(lambda: self._api.delete_job(name))
        except KubernetesError as error:
            log.warning("kubernetes.deletion_failed", name=name, error=error.message)
        finally:
            self._deletions.pop(name, None)

    async def _end_deletions(self) -> None:
        """Wait for the deletions under way. The successor deletes what is left."""
        tasks = [*self._deletions.values()]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._config.close_s)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
