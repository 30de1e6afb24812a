"""The launchers of this process, by the kind of target that they serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Final

from wakeful.document import payload_to_text, policy_from_text, work_from_text
from wakeful.document.guards import MANUAL
from wakeful.document.target import AGENT_KIND
from wakeful.engine.in_flight import InFlight, Lease
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.job.job import NO_WORK, Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.job.start_rules import BUDGET, NO_CAPABILITIES, Capabilities, Requirement, can_take
from wakeful.job.target_kinds import CHECK_KINDS, TARGET_KINDS, find_kind
from wakeful.launch.broker import ApplyReport, BrokerLauncher
from wakeful.launch.chat.request import with_prompt
from wakeful.launch.function import error_text
from wakeful.launch.port import Launch, Launcher, SealedSecrets, SelectiveLauncher, SignalLaunch
from wakeful.launch.precheck import PRECHECK_FAILED, PrecheckedLauncher, RecordCheck, needs_precheck
from wakeful.launch.verify import VerifiedLauncher
from wakeful.launch.workflow import check_pull
from wakeful.logs import get_logger
from wakeful.run.consequences import JOB_DELETED
from wakeful.run.outcome import TAKEN_OVER, Failed, Outcome
from wakeful.run.prechecks import Checked, Watch, check_from_text
from wakeful.run.run import NewRun
from wakeful.store.plans import DueJob
from wakeful.store.rows import TakenRun
from wakeful.values.bounded_cache import MB, bounded_cache, text_size
from wakeful.values.json_value import Json

log = get_logger("wakeful.engine")


class LauncherRegistry:
    """The launchers by kind. It prepares runs for launching."""

    def __init__(self, launchers: Iterable[Launcher]) -> None:
        self._launchers: dict[str, Launcher] = {}
        # By kind, as a check of a protocol takes long.
        self._selective: dict[str, SelectiveLauncher] = {}
        self._brokers: dict[str, BrokerLauncher] = {}
        for launcher in launchers:
            self.add(launcher)
        #: set by the engine: records the answers of prechecks
        self.record_check: RecordCheck = _no_engine

    def add(self, launcher: Launcher) -> None:
        """Add a launcher. It replaces one of the same kind."""
        kind = launcher.kind
        self._launchers[kind] = launcher
        self._selective.pop(kind, None)
        self._brokers.pop(kind, None)
        if isinstance(launcher, SelectiveLauncher):
            self._selective[kind] = launcher
        if isinstance(launcher, BrokerLauncher):
            self._brokers[kind] = launcher

    def launcher(self, kind: object) -> Launcher | None:
        """Return the launcher of that kind, if this process has one."""
        return self._launchers.get(kind) if isinstance(kind, str) else None

    def capabilities(self) -> Capabilities:
        """Return what runs this process can launch."""
        found = dict(NO_CAPABILITIES)
        for launcher in self._selective.values():
            found.update(launcher.capabilities())
        return found

    def can_launch(self, requirement: Requirement) -> bool:
        """Return whether this process can launch a run with this requirement."""
        return can_take(NO_CAPABILITIES, requirement) or any(
            can_take(launcher.capabilities(), requirement) for launcher in self._selective.values()
        )

    def on_capabilities_changed(self, call: Callable[[], object]) -> None:
        """Call this when the capabilities change, from any thread."""
        for launcher in self._selective.values():
            launcher.on_capabilities_changed = call

    def receive_reports(self, apply: ApplyReport) -> None:
        """Apply what workers of brokers report about runs with this function."""
        for launcher in self._brokers.values():
            launcher.apply_report = apply

    def run_stopped(self, run_id: str) -> None:
        """Tell the brokers that a run was stopped."""
        for launcher in self._brokers.values():
            launcher.run_stopped(run_id)

    async def open(self) -> None:
        """Open every launcher."""
        for launcher in self._launchers.values():
            await launcher.open()

    async def close(self) -> None:
        """Close every launcher, also if one fails or is cancelled meanwhile."""
        async with AsyncExitStack() as stack:
            for launcher in self._launchers.values():
                stack.push_async_callback(launcher.close)

    def check(self, target: Mapping[str, Json] | None) -> None:
        """Raise InvalidArgument for a target that no launcher of this process could launch."""
        kind = target.get("kind") if target else "pull"
        launcher = self.launcher(kind)
        if target and launcher is not None:
            launcher.check(target)
        elif kind == "pull":
            check_pull(target or {})
        elif kind == AGENT_KIND:
            pass  # runs wait for a process that has the class
        else:
            available = sorted(self._launchers.keys() & set(TARGET_KINDS))
            raise InvalidArgument(f"target: no launcher for '{kind}' here; available: {', '.join(available)}")

    def check_precheck(self, work: Work) -> None:
        """Raise InvalidArgument for a precheck that cannot run here."""
        precheck = work.precheck
        if precheck is None:
            return
        launcher = self.launcher(precheck.get("kind"))
        if launcher is None:
            raise InvalidArgument(f"precheck: no launcher for '{precheck.get('kind')}' here")
        target = {key: value for key, value in precheck.items() if key != "timeoutMs"}
        try:
            launcher.check(target)
        except InvalidArgument as error:
            raise InvalidArgument(f"precheck: {error.message.removeprefix('target: ')}") from error

    def verifier(self, kind: object) -> Launcher | None:
        """Return the launcher that verifies runs with checks of that kind, if this process has one."""
        return self.launcher("webhook" if kind == "http" else kind)

    def check_verify(self, work: Work) -> None:
        """Raise InvalidArgument for a verification that cannot run here."""
        verify = work.verify
        if verify is None:
            return
        kind = verify.get("kind")
        if kind == MANUAL:
            if work.instance is not None:
                raise InvalidArgument(
                    "verify: the mailbox of an agent class cannot wait for a person; use another kind"
                )
            return
        launcher = self.verifier(kind)
        if launcher is None:
            raise InvalidArgument(f"verify: no launcher for '{kind}' here")
        own = {name for check in CHECK_KINDS.values() for name in check.names}
        target = {**{key: verify[key] for key in verify if key in own}, "kind": launcher.kind}
        try:
            launcher.check(target)
        except InvalidArgument as error:
            raise type(error)(f"verify: {error.message.removeprefix('target: ')}") from error

    def prepare(
        self,
        run: NewRun | TakenRun,
        policy: Policy,
        work: Work,
        payload: str | None,
        job: DueJob | TakenRun | None,
        lease: Lease,
    ) -> InFlight:
        """Return a run of this worker, ready to launch. For `job` see `build_launch`.

        A precheck takes time, so the target is launched only if the lease is still valid after it.
        """
        launch = build_launch(run, policy, work, payload, job)
        kind = AGENT_KIND if launch.instance_id is not None else str(launch.target.get("kind"))
        launcher: Launcher = self._launchers.get(kind) or _missing(kind)
        if kind == AGENT_KIND and launch.instance_id is None:
            launcher = _NO_INSTANCE
        elif work.pulled and launch.instance_id is None:
            launcher = _NO_EXECUTOR
        precheck = work.precheck
        if precheck is not None and launch.unchecked:
            checker = self.launcher(precheck.get("kind"))
            launcher = PrecheckedLauncher(launcher, checker, precheck, lambda: lease.valid, self.record_check)
        if work.verify is not None or work.evidence:
            launcher = VerifiedLauncher(launcher, self._checker(work.verify), work)
        failed_attempts = run.failed_attempts if isinstance(run, TakenRun) else 0
        return InFlight(launch, policy, run.lane, launcher, work, failed_attempts)

    def _checker(self, verify: Mapping[str, Json] | None) -> Launcher | None:
        return None if verify is None else self.verifier(verify.get("kind"))

    def prepare_taken(self, run: TakenRun, lease: Lease) -> InFlight:
        """Return a claimed run, ready to launch. If it or its job cannot be read, only this run fails."""
        if run.job_id is not None and run.anchor_ms is None:  # every job has an anchor
            return self._without_work(
                run, Failed("its job was deleted", permanent=True, reason=JOB_DELETED), lease
            )
        try:
            policy, work = policy_from_text(run.policy), work_from_text(run.work)
            return self.prepare(run, policy, work, run.payload, run, lease)
        except Exception as error:
            log.exception("run.set_aside", **run.log_fields)
            failed = Failed(error_text(error))  # an unexpected error: the next attempt may succeed
            if isinstance(error, InvalidArgument):
                failed = Failed(f"{error}", permanent=True, reason="unreadable")
            return self._without_work(run, failed, lease)

    def _without_work(self, run: TakenRun, failed: Failed, lease: Lease) -> InFlight:
        """Return a claimed run that fails, whatever is stored for it."""
        bare = run._replace(context=None, precheck=None)
        in_flight = self.prepare(bare, DEFAULT_POLICY, NO_WORK, None, None, lease)
        in_flight.launcher = _FixedOutcome("", failed)
        return in_flight


def build_launch(
    run: NewRun | TakenRun,
    policy: Policy,
    work: Work,
    payload: str | None,
    job: DueJob | TakenRun | None,
) -> Launch:
    """Return what a launcher gets of this attempt.

    `job` supplies the schedule, the webhook secrets and the state of the precheck.
    """
    signal = isinstance(run, TakenRun) and run.instance_id is not None
    launch = (SignalLaunch if signal else Launch)(
        run.id, run.job_name, run.job_id, run.workspace, run.agent,
        payload if work.message is None else _with_message(work.message, payload, run.trigger, work.target),
        run.scheduled_ms, run.fire_ms, run.attempt, run.trigger, run.idempotency_key, work.target or {},
        policy.timeout_ms, work.stateless,
        None
        if job is None or job.secret is None
        else SealedSecrets(job.secret, job.old_secret, job.old_secret_until_ms),
        None if job is None else job.timing,
        None if job is None else job.anchor_ms,
        run.missed if isinstance(run, TakenRun) else 0,
    )  # fmt: skip
    launch.continuity = work.continuity
    launch.unchecked = work.precheck is not None and needs_precheck(run.trigger, run.reason, _is_checked(run))
    if isinstance(run, TakenRun):
        launch.session = run.session
        launch.taken_over = run.reason == TAKEN_OVER
        unlaunched = run.reason in (BUDGET, PRECHECK_FAILED) and run.failed_attempts == 0
        launch.retried = run.attempt > 1 and not unlaunched
        launch.failed_attempts = run.failed_attempts
    if isinstance(launch, SignalLaunch) and isinstance(run, TakenRun):
        launch.instance, launch.instance_id, launch.signal = run.instance, run.instance_id, run.signal
        launch.state_text, launch.state_version, launch.revision = run.data, run.state_version, run.revision
        launch.memory, launch.depth = run.memory, run.depth
        launch.instance_created_ms = run.instance_created_ms
    if isinstance(run, TakenRun) and (run.context is not None or run.precheck is not None):
        checked = None if run.precheck is None else check_from_text(run.precheck)
        launch.watch = Watch(run.context, run.precheck_state, run.precheck_revision, checked)
        if run.context is not None:
            launch.add_context(run.context)
    elif work.precheck is not None and job is not None:
        launch.watch = Watch(None, job.precheck_state, job.precheck_revision)
    return launch


def _is_checked(run: NewRun | TakenRun) -> bool:
    """Return whether an earlier attempt recorded the answer of the precheck."""
    return isinstance(run, TakenRun) and run.precheck is not None


async def _no_engine(run: Launch, context: str | None, checked: Checked) -> bool:
    raise Unavailable("no engine runs in this process")


class _FixedOutcome(Launcher):
    """A launcher that launches nothing and always returns the same outcome."""

    default_timeout_ms = 1_000

    def __init__(self, kind: str, outcome: Outcome) -> None:
        self.kind = kind
        self._outcome = outcome

    async def start(self, run: Launch) -> Outcome:
        """Return the outcome."""
        return self._outcome


_NO_INSTANCE: Final = _FixedOutcome(
    AGENT_KIND,
    Failed(
        "its job got an agent class as its target after this run was recorded; replay the run to send it as "
        "a signal",
        permanent=True,
        reason="target_changed",
    ),
)


#: A worker gets such a run only if its job was edited when the run was recorded: runs move with their job.
_NO_EXECUTOR: Final = _FixedOutcome(
    "pull",
    Failed(
        "its job got a pull target when this run was recorded; replay the run to let an executor claim it",
        permanent=True,
        reason="target_changed",
    ),
)


def _missing(kind: str) -> _FixedOutcome:
    """Return the launcher for a kind that this process lacks. Another replica may have it on a retry."""
    return _FixedOutcome(
        kind, Failed(f"no launcher for '{kind}' in this process", reason="not_registered", counted=False)
    )


def _with_message(
    message: str, payload: str | None, trigger: str, target: Mapping[str, Json] | None
) -> str | None:
    """Return what a run of a job with a message carries. Only a conversation combines it with a payload."""
    if payload is None:
        return _message_payload(message)
    kind = find_kind(target)
    return with_prompt(message, payload, trigger) if kind is not None and kind.converses else payload


@bounded_cache(4 * MB, lambda payload, message: text_size(message, payload or ""))
def _message_payload(message: str) -> str | None:
    return payload_to_text({"message": message})
