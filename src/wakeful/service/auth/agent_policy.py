"""What an agent's key may do: the targets of its jobs, and jobs that an admin created for its agent.

An agent processes text from other people, so its jobs may be the result of a prompt injection. Its jobs go to
the target of the agent, to its own instances (`agent`), to `pull`, to `echo`, and to the kinds of targets
that the operator allows (`WAKEFUL_AGENT_TARGETS`). A job that another principal created with another target
it may pause, reschedule and delete, but it may not change what is sent, nor a precheck that it could not have
set. It may not change or remove `verify` and `evidence` of a job: they check its own work. Other roles are
not limited.

A job that the model of a chat makes has the target of its agent, and no check, unless the operator allows
other kinds (`WAKEFUL_CHAT_TARGETS`).

A job that an admin created it may read, execute its runs, run at most once a minute, and delete during one of
its runs. It may not change, pause, skip, resume, delete or backfill it, run it with another payload or in
place of runs that it did not start, nor cancel or stop such runs: that would let it accelerate or block the
job. Jobs that agents' keys created belong to the agent. So do jobs without a recorded creator.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from wakeful.document import payload_to_text, work_to_text
from wakeful.errors import FailedPrecondition, InvalidArgument, PermissionDenied, ResourceExhausted
from wakeful.job.job import WAKE_JOB, Definition, JobRecord, Work
from wakeful.job.policy import Overlap
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.run.run import TriggerName
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.settings import PREFIX
from wakeful.signal.event_catalog import is_event_job
from wakeful.store.internal_jobs import ANALYSIS_JOB, EVALUATION_JOB, INTERNAL_JOBS, is_reserved
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow, RunView
from wakeful.store.sessions import HEARTBEAT
from wakeful.values.json_value import Json

#: What to do instead of deleting an internal job; the other ones send alerts.
_SWITCHES: Final = {
    HEARTBEAT: "set the heartbeat of its agent to null instead, or pause the job",
    ANALYSIS_JOB: "set the evolution of its agent to 'off' instead, or pause the job",
    EVALUATION_JOB: "set the evolution of its agent to 'off' instead, or pause the job",
    WAKE_JOB: "wakes and messages of its agent run through it, and it is deleted with its agent",
}
_AGENT_TARGETS: Final = f"{PREFIX}AGENT_TARGETS"
_CHAT_TARGETS: Final = f"{PREFIX}CHAT_TARGETS"
#: The target of jobs without one.
_PULL: Final[Mapping[str, Json]] = {"kind": "pull"}
#: Allows every kind.
ALL: Final = "*"

#: The shortest time between two runs of an admin's job that an agent's key starts.
MIN_INTERVAL_MS: Final = 60_000
#: The trigger of runs that an agent's key starts.
AGENT_TRIGGER: Final[TriggerName] = "agent"
_LIVE: Final = frozenset({"pending", "retrying", "running"})


def check_not_internal(principal: Principal, name: str | None, own: Container[str] = INTERNAL_JOBS) -> None:
    """Raise PermissionDenied if an agent's key changes an internal job of Wakeful.

    An agent that could delete its alert job could hide its failures.
    """
    if principal.role == "agent" and name is not None and (name in own or is_event_job(name)):
        raise PermissionDenied(
            f"job '{name}' is an internal job of Wakeful; a key of the role 'agent' may only read it"
        )


def check_not_reserved(name: str, old: Definition | None = None) -> None:
    """Raise InvalidArgument if the name is reserved for an internal job; `old` is the job before the change.

    An internal job keeps its name. A user's job that had the name before it was reserved may keep it or be
    renamed.
    """
    if old is not None and name == old.name:
        return
    if old is not None and is_internal(old):
        raise InvalidArgument(f"name: '{old.name}' is an internal job of Wakeful; it cannot be renamed")
    if is_reserved(name):
        raise InvalidArgument(
            f"name: '{name}' is reserved for an internal job of Wakeful; choose another name"
        )


def check_not_event_job(row: JobRow) -> None:
    """Raise FailedPrecondition if a job delivers events: a run on request would be an event of the caller.

    It is signed as the others are, so the subscriber would trust it. Nobody may change the job either.
    """
    if is_event_job(row.name):
        raise FailedPrecondition(
            f"job '{row.name}' delivers events: only its subscription starts its runs and changes it; pause "
            "it, or end the subscription instead"
        )


def check_deletable(row: JobRow) -> None:
    """Raise FailedPrecondition if a job is internal: the document of its agent or workspace creates it."""
    if is_event_job(row.name):
        raise FailedPrecondition(f"job '{row.name}' delivers events; end its subscription instead")
    if row.name in INTERNAL_JOBS and is_internal(job_from_row(row).definition):
        what = _SWITCHES.get(row.name, "change the alerts of its agent or workspace instead")
        raise FailedPrecondition(
            f"job '{row.name}' is an internal job of Wakeful and cannot be deleted: {what}"
        )


def is_internal(job: Definition) -> bool:
    """Return whether a job is internal, and not a user's job that had the name before it was reserved."""
    return is_internal_name(job.name, job.labels)


def is_internal_name(name: str, labels: Container[str]) -> bool:
    """Return whether a job with this name and these labels is internal.

    >>> is_internal_name("heartbeat", ["system"]), is_internal_name("tidy", ["system"])
    (True, False)
    """
    if is_event_job(name):
        return True
    return name in INTERNAL_JOBS and (name == WAKE_JOB or "system" in labels)


class AgentTargetPolicy:
    """The kinds of targets that jobs of agents' keys, and jobs of models, may have."""

    def __init__(self, kinds: Iterable[str], of_models: Iterable[str] = ()) -> None:
        harmless = {kind.name for kind in TARGET_KINDS.values() if kind.is_harmless}
        self._kinds = _read_kinds(_AGENT_TARGETS, kinds) | harmless
        self._of_models = _read_kinds(_CHAT_TARGETS, of_models)

    def check(self, principal: Principal, work: Work, context: JobContext, old: Work | None = None) -> None:
        """Raise PermissionDenied for a target or check beyond the policy; `old` may stay unchanged."""
        kind = self._forbidden_kind(principal, work, context)
        if kind is not None and (old is None or _texts(work) != _texts(old)):
            who = "the model of a chat" if principal.by_model else "a key of the role 'agent'"
            setting = _CHAT_TARGETS if principal.by_model else _AGENT_TARGETS
            receiver = f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"
            raise PermissionDenied(
                f"target: {who} may not set what is sent to {receiver}; leave the target out to use the "
                f"target of the agent, or ask the operator to allow it with {setting}"
            )
        if principal.role == "agent" and old is not None:
            for field, before, now in (
                ("verify", old.verify, work.verify),
                ("evidence", old.evidence, work.evidence),
            ):
                if before and now != before:
                    raise PermissionDenied(
                        f"{field}: a key of the role 'agent' may not change or remove it, because it checks "
                        "the work of the agent; leave it as it is, or ask an admin"
                    )
        old_precheck = None if old is None else old.precheck
        if (
            old_precheck is not None
            and work.precheck != old_precheck
            and self._is_forbidden(principal, old_precheck, context)
        ):
            raise PermissionDenied(
                f"precheck: a key of the role 'agent' may not change or remove this precheck of the kind "
                f"{old_precheck.get('kind')}; leave it as it is, or ask an admin"
            )

    @staticmethod
    def check_delivery(
        principal: Principal, work: Work, context: JobContext, old: Work | None = None
    ) -> None:
        """Raise PermissionDenied for a delivery that the agent may not use; that of `old` may stay."""
        if principal.role != "agent" or (work.channel is None and work.to is None):
            return
        if old is not None and (work.channel, work.to) == (old.channel, old.to):
            return
        if work.origin is not None and (work.channel, work.to) == work.origin[1:]:  # where it was made
            return
        channel = work.channel or context.channel
        to = work.to or (context.to if channel == context.channel else None)
        if (channel, to) == (context.channel, context.to):
            return
        if any(place.channel == channel and place.to in (None, to) for place in context.deliver_to):
            return
        raise PermissionDenied(
            f"channel: a key of the role 'agent' may deliver output to the channel and recipient of agent "
            f"'{context.agent}', and to those in deliverTo; leave channel and to out, or ask an admin"
        )

    def check_payload(self, principal: Principal, work: Work, context: JobContext) -> None:
        """Raise PermissionDenied if an agent's key sets the payload of a run beyond the policy."""
        if self._forbidden_kind(principal, work, context) is not None:
            raise PermissionDenied(
                "a key of the role 'agent' may run this job only with its own payload; leave the payload out"
            )

    def _forbidden_kind(self, principal: Principal, work: Work, context: JobContext) -> str | None:
        """Return the first kind of target beyond the policy, if any."""
        for target in _list_targets(work):
            if self._is_forbidden(principal, target, context):
                return str(target.get("kind"))
        return None

    def _is_forbidden(self, principal: Principal, target: Mapping[str, Json], context: JobContext) -> bool:
        if principal.role != "agent" or target == (context.target or _PULL):
            return False
        kinds = self._of_models if principal.by_model else self._kinds
        return ALL not in kinds and target.get("kind") not in kinds


def _read_kinds(setting: str, kinds: Iterable[str]) -> frozenset[str]:
    """Return the kinds of a setting, or raise InvalidArgument."""
    found = frozenset(kinds)
    unknown = sorted(found - {ALL, *TARGET_KINDS})
    if unknown:
        raise InvalidArgument(
            f"{setting}: '{unknown[0][:64]}' is not a kind of target; "
            f"the kinds are {', '.join(TARGET_KINDS)}, and {ALL} for all"
        )
    return found


def _list_targets(work: Work) -> Iterator[Mapping[str, Json]]:
    """Yield what is launched for a job: its own target, the target of a workflow, and its checks."""
    target = work.own_target
    if target is not None:
        yield target
        to = target.get("to")
        if target.get("kind") == "workflow" and isinstance(to, Mapping):
            yield to
    if work.precheck is not None and work.precheck.get("kind") in TARGET_KINDS:
        yield work.precheck
    verify = work.verify
    if verify is not None and verify.get("kind") == "http":
        yield {"kind": "webhook", "url": verify.get("url")}  # it sends a request, too
    elif verify is not None and verify.get("kind") in TARGET_KINDS:
        yield verify


def _texts(work: Work) -> tuple[str, str | None]:
    # Compare texts: in Python 1 equals true, for a receiver it does not.
    return work_to_text(work), payload_to_text(work.payload)


def is_admin_owned(principal: Principal, job: JobRecord | JobRow) -> bool:
    """Return whether the principal is an agent and an admin created the job."""
    return _is_admin(principal, job.created_by)


def _is_admin(principal: Principal, creator: str) -> bool:
    return principal.role == "agent" and creator.startswith("admin:")


def check_change(principal: Principal, job: JobRecord | JobRow) -> None:
    """Raise PermissionDenied if an agent's key changes a job that an admin created."""
    if is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may read and run it, not "
            "change it; ask an admin, or create a job of your own"
        )


def check_removal(principal: Principal, job: JobRow, running: Iterable[RunView]) -> None:
    """Raise PermissionDenied if an agent's key deletes it, unless in a run that the agent did not start.

    If the call names its run (`x-wakeful-run-id`), that must be a run of the job.
    """
    own = (run for run in running if principal.run_id in (None, run.id))
    if all(run.trigger == AGENT_TRIGGER for run in own):
        check_change(principal, job)


def check_ending(principal: Principal, creator: str, run: RunView) -> None:
    """Raise PermissionDenied if an agent's key cancels or stops a run that the agent did not start.

    `creator` is that of its job. An agent may end its wakes and turns, whoever asked for them.
    """
    if _is_admin(principal, creator) and run.trigger != AGENT_TRIGGER and run.job_name != WAKE_JOB:
        raise PermissionDenied(
            f"run '{run.id}' is of job '{run.job_name}', which was created by an admin; a key of the role "
            "'agent' may end only those of its runs that it started; ask an admin"
        )


def check_payload(principal: Principal, job: JobRecord) -> None:
    """Raise PermissionDenied if an agent's key runs an admin's job with another payload."""
    if is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may run it only with its "
            "own payload; leave the payload out"
        )


def check_overlap(principal: Principal, job: JobRecord, overlap: Overlap | None) -> None:
    """Raise PermissionDenied if an agent's key replaces other runs of an admin's job."""
    if overlap in ("replace", "queue_one") and is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may not cancel its runs "
            f"with overlapPolicy '{overlap}'; use 'skip' or 'queue', or ask an admin"
        )


def check_rate(job: JobRecord, newest: Iterable[RunView], now_ms: int) -> None:
    """Raise ResourceExhausted if an agent's key ran an admin's job in the last minute, or its run is live.

    `newest` is the newest run of the job that an agent's key started, if any.
    """
    for run in newest:
        if run.state in _LIVE or now_ms - run.created_ms < MIN_INTERVAL_MS:
            raise ResourceExhausted(
                f"job '{job.name}' was created by an admin; a key of the role 'agent' may run it once a "
                f"minute, one run at a time, and run '{run.id}' is {run.state}; wait, or ask an admin"
            )
