"""The targets that this process can reach: which launcher takes a run where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wakeful.bounded_cache import MB, bounded_cache, text_size
from wakeful.document import payload_to_text, policy_from_text, work_from_text
from wakeful.document.target import KINDS
from wakeful.engine.in_flight import InFlight
from wakeful.errors import InvalidArgument
from wakeful.job import Json, Work
from wakeful.launch.port import Launch, Launcher, SealedSecrets
from wakeful.launch.precheck import Prechecked, asks
from wakeful.launch.pull import check_pull
from wakeful.logs import get_logger
from wakeful.outcome import Failed, Outcome
from wakeful.policy import DEFAULT_POLICY, Policy
from wakeful.run import NewRun
from wakeful.store.rows import DueJob, TakenRun

log = get_logger("wakeful.engine")


class LauncherRegistry:
    """The launchers by the kind of target they serve."""

    def __init__(self, launchers: Iterable[Launcher] = ()) -> None:
        self._launchers = {launcher.kind: launcher for launcher in launchers}
        #: whether a run that is held may still be started: the engine says so by its lease
        self.may_start: Callable[[], bool] = lambda: True

    def add(self, launcher: Launcher) -> None:
        """Serve one more kind."""
        self._launchers[launcher.kind] = launcher

    def launcher(self, kind: object) -> Launcher | None:
        """The launcher of that kind, if it is to be had here."""
        return self._launchers.get(kind) if isinstance(kind, str) else None

    async def open(self) -> None:
        """Get every launcher ready."""
        for launcher in self._launchers.values():
            await launcher.open()

    async def close(self) -> None:
        """Let every launcher go."""
        for launcher in self._launchers.values():
            await launcher.close()

    def check(self, target: Mapping[str, Json] | None) -> None:
        """Refuse a target that no launcher here could ever reach."""
        kind = target.get("kind") if target else "pull"
        launcher = self.launcher(kind)
        if target and launcher is not None:
            launcher.check(target)
        elif kind == "pull":
            check_pull(target or {})
        else:
            there = sorted(self._launchers.keys() & set(KINDS))
            raise InvalidArgument(f"target: no launcher for '{kind}' here; there are {', '.join(there)}")

    def check_precheck(self, work: Work) -> None:
        """Refuse a precheck that nobody here could ever ask, and that of a job that executors run."""
        precheck = work.precheck
        if precheck is None:
            return
        if work.pulled:
            raise InvalidArgument(
                "precheck: runs of this job wait for an executor, and it decides whether there is anything "
                "to do; give the job a target, or leave the precheck out"
            )
        launcher = self.launcher(precheck.get("kind"))
        if launcher is None:
            raise InvalidArgument(f"precheck: no launcher for '{precheck.get('kind')}' here to ask with")
        asked = {key: value for key, value in precheck.items() if key != "timeoutMs"}
        try:
            launcher.check(asked)
        except InvalidArgument as error:
            raise InvalidArgument(f"precheck: {error.message.removeprefix('target: ')}") from error

    def held(
        self,
        run: NewRun | TakenRun,
        policy: Policy,
        work: Work,
        payload: str | None,
        job: DueJob | TakenRun | None = None,
    ) -> InFlight:
        """A run that was marked as ours, ready to be launched. `job` has its schedule and its secrets."""
        target = work.target or {}
        kind = str(target.get("kind"))
        launcher: Launcher = self._launchers.get(kind) or _unknown(kind)
        launch = Launch(
            run.id, run.job_name, run.job_id, run.workspace, run.agent,
            payload if payload is not None or work.message is None else _message(work.message),
            run.scheduled_ms, run.fire_ms, run.attempt, run.trigger, run.idempotency_key, target,
            policy.timeout_ms, work.stateless,
            None
            if job is None or job.secret is None
            else SealedSecrets(job.secret, job.old_secret, job.old_secret_until_ms),
            None if job is None else job.timing,
            None if job is None else job.anchor_ms,
            run.missed if isinstance(run, TakenRun) else 0,
        )  # fmt: skip
        precheck = work.precheck
        if precheck is not None and asks(run.trigger, run.reason):
            launcher = Prechecked(launcher, self.launcher(precheck.get("kind")), precheck, self.may_start)
        failed_attempts = run.failed_attempts if isinstance(run, TakenRun) else 0
        return InFlight(launch, policy, run.lane, launcher, work, failed_attempts)

    def taken(self, run: TakenRun) -> InFlight:
        """The same, for a run that was taken from among those that were due.

        One whose job cannot be read is set aside: it fails, and those that were taken with it go on.
        """
        try:
            return self.held(run, policy_from_text(run.policy), work_from_text(run.work), run.payload, run)
        except Exception as error:
            log.exception("run.set_aside", run=run.id, job=run.job_name, workspace=run.workspace)
            held = self.held(run, DEFAULT_POLICY, Work(), None)
            held.launcher = _StandIn("", Failed(f"{error}", permanent=True, reason="unreadable"))
            return held


class _StandIn:
    """Stands in for a launcher that is not to be had here, or not to be used, and says why."""

    default_timeout_ms = 1_000

    def __init__(self, kind: str, outcome: Outcome) -> None:
        self.kind = kind
        self._outcome = outcome

    async def open(self) -> None:
        """Nothing to get ready."""

    async def close(self) -> None:
        """Nothing to let go."""

    def check(self, target: Mapping[str, Json]) -> None:
        """Nothing is known of it."""

    async def start(self, run: Launch) -> Outcome:
        """Say what becomes of it."""
        return self._outcome


def _unknown(kind: str) -> _StandIn:
    """For a launcher that this process does not have: it is tried again, and another replica may have it."""
    return _StandIn(
        kind, Failed(f"no launcher for '{kind}' in this process", reason="not_registered", counted=False)
    )


@bounded_cache(4 * MB, lambda payload, message: text_size(message, payload or ""))
def _message(message: str) -> str | None:
    return payload_to_text({"message": message})
