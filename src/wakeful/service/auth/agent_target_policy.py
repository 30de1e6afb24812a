"""What a job may reach that an agent's key makes: never more than the agent was given.

An agent writes jobs while it reads whatever people send it, so that what it writes may not be its own idea.
Its jobs go where its agent's go (the agent's own target, or `pull`), and to the kinds of targets that the
operator allows (`WAKEFUL_AGENT_TARGETS`). Jobs that somebody else made for it with another target it may
pause, move and delete; what they carry is not its to change, nor is a precheck that it could not have put
there itself. Everybody else is not limited here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from wakeful.document import payload_to_text, work_to_text
from wakeful.document.target import KINDS
from wakeful.errors import InvalidArgument, PermissionDenied
from wakeful.job import Definition, Json, Work
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.settings import PREFIX
from wakeful.store.internal_jobs import INTERNAL_JOBS, is_reserved
from wakeful.store.sessions import WAKE_JOB

#: Allows every kind.
ALL: Final = "*"


def check_not_internal(principal: Principal, name: str | None, own: Container[str] = INTERNAL_JOBS) -> None:
    """Refuse to let an agent's key touch the jobs that Wakeful makes for itself: they are the operator's.

    An agent that could delete the job by which people are told of its failures would not be watched.
    """
    if principal.role == "agent" and name is not None and name in own:
        raise PermissionDenied(
            f"job '{name}' is one that Wakeful made for itself; a key of the role 'agent' may look at it, "
            "and no more"
        )


def check_not_reserved(name: str, old: Definition | None = None) -> None:
    """Refuse a name that is reserved for the jobs that Wakeful makes for itself; `old` is the job so far.

    Such a job keeps its name. A job of a user that had the name before it was reserved may keep it too, and
    may be given another.
    """
    if old is not None and name == old.name:
        return
    if old is not None and is_internal(old):
        raise InvalidArgument(f"name: '{old.name}' is a job that Wakeful made for itself; it keeps its name")
    if is_reserved(name):
        raise InvalidArgument(
            f"name: '{name}' is reserved for a job that Wakeful makes for itself; choose another name"
        )


def is_internal(job: Definition) -> bool:
    """Whether Wakeful made it for itself, and not a user who had the name before it was reserved."""
    return job.name in INTERNAL_JOBS and (job.name == WAKE_JOB or "system" in job.labels)


class AgentTargetPolicy:
    """The kinds of targets that the jobs of agents' keys may have."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._kinds = frozenset(kinds)
        unknown = sorted(self._kinds - {ALL, *KINDS})
        if unknown:
            raise InvalidArgument(
                f"{PREFIX}AGENT_TARGETS: there is no kind of target '{unknown[0][:64]}'; "
                f"there are {', '.join(KINDS)}, and {ALL} for all"
            )

    def check(self, principal: Principal, work: Work, context: JobContext, old: Work | None = None) -> None:
        """Refuse work that reaches further than an agent may; `old` may stay as it was."""
        kind = self._beyond(principal, work, context)
        if kind is not None and (old is None or _texts(work) != _texts(old)):
            raise PermissionDenied(
                f"target: a key of the role 'agent' may not say what is sent to a {kind}; leave the target "
                "out and the job goes where this agent's jobs go, or ask the operator to allow it by "
                f"{PREFIX}AGENT_TARGETS"
            )
        asked = None if old is None else old.precheck
        if asked is not None and work.precheck != asked and self._out_of_reach(principal, asked, context):
            raise PermissionDenied(
                f"precheck: a key of the role 'agent' may not change or remove this one, which asks a "
                f"{asked.get('kind')}; leave it as it is, or ask an admin"
            )

    @staticmethod
    def check_delivery(
        principal: Principal, work: Work, context: JobContext, old: Work | None = None
    ) -> None:
        """Refuse to have output delivered where the agent may not; where `old` goes may stay."""
        if principal.role != "agent" or (work.channel is None and work.to is None):
            return
        if old is not None and (work.channel, work.to) == (old.channel, old.to):
            return
        channel = work.channel or context.channel
        to = work.to or (context.to if channel == context.channel else None)
        if (channel, to) == (context.channel, context.to):
            return
        if any(place.channel == channel and place.to in (None, to) for place in context.deliver_to):
            return
        raise PermissionDenied(
            f"channel: a key of the role 'agent' may have output delivered to the channel and recipient of "
            f"agent '{context.agent}', and to those in deliverTo; leave channel and to out, or ask an admin"
        )

    def check_payload(self, principal: Principal, work: Work, context: JobContext) -> None:
        """The same for a payload that is given to a single run."""
        if self._beyond(principal, work, context) is not None:
            raise PermissionDenied(
                "a key of the role 'agent' may run this job with its own payload alone; leave the payload out"
            )

    def _beyond(self, principal: Principal, work: Work, context: JobContext) -> str | None:
        """The kind of target that is beyond them, if there is one."""
        for target in _reached(work):
            if self._out_of_reach(principal, target, context):
                return str(target.get("kind"))
        return None

    def _out_of_reach(self, principal: Principal, target: Mapping[str, Json], context: JobContext) -> bool:
        if principal.role != "agent" or ALL in self._kinds or target == context.target:
            return False
        return target.get("kind") not in ("pull", *self._kinds)


def _reached(work: Work) -> Iterator[Mapping[str, Json]]:
    """Whatever is launched for a job: its own target, what a workflow is handed to, and a precheck."""
    target = work.own_target
    if target is not None:
        yield target
        to = target.get("to")
        if target.get("kind") == "workflow" and isinstance(to, Mapping):
            yield to
    if work.precheck is not None and work.precheck.get("kind") in KINDS:
        yield work.precheck


def _texts(work: Work) -> tuple[str, str | None]:
    # Texts are compared, not values: to Python 1 and true are equal, to a receiver they are not.
    return work_to_text(work), payload_to_text(work.payload)
