"""The enumerations of the public model. Each member compares equal to its text: `run.state == "failed"`."""

from __future__ import annotations

from enum import StrEnum

from wakeful.run.run import RunState

__all__ = [
    "CatchupPolicy",
    "DeliveryState",
    "InboxKind",
    "IncidentState",
    "InstanceStatus",
    "OverlapPolicy",
    "RunState",
    "SuggestionStatus",
    "Trigger",
]


class Trigger(StrEnum):
    """What caused a run."""

    #: a tick of the job's schedule
    SCHEDULE = "schedule"
    #: a person or an API key
    USER = "user"
    #: the agent itself, with its own key
    AGENT = "agent"
    #: a signal to an instance of an agent class
    SIGNAL = "signal"
    #: the replay of a dead letter
    REPLAY = "replay"
    #: a tick of the past that was backfilled
    BACKFILL = "backfill"
    #: the end of a run of another job (`after`)
    CHAIN = "chain"
    #: the agent's heartbeat, after a run with `wake_heartbeat`
    HEARTBEAT = "heartbeat"
    #: an alert about a job, an agent or a workspace
    ALERT = "alert"
    #: the trigger URL of the job
    HOOK = "hook"
    #: an MCP event: of another server, or one that is delivered to a subscriber
    EVENT = "event"


class OverlapPolicy(StrEnum):
    """What happens to a tick while an earlier run of the job is live."""

    #: both run
    ALLOW = "allow"
    #: the tick is recorded as skipped
    SKIP = "skip"
    #: the tick waits, in order, at most `max_queued` deep
    QUEUE = "queue"
    #: only the newest tick waits
    QUEUE_ONE = "queue_one"
    #: the earlier run is cancelled
    REPLACE = "replace"


class CatchupPolicy(StrEnum):
    """What happens to ticks that were missed."""

    #: one run records them as missed
    NONE = "none"
    #: the newest of them runs
    LATEST = "latest"
    #: all of them run, oldest first
    FIRE_IMMEDIATELY = "fire_immediately"
    #: all of them run, spread over time
    SPREAD = "spread"


class DeliveryState(StrEnum):
    """The state of the delivery of a run's output to a channel."""

    #: the job does not deliver
    NOT_REQUESTED = "not_requested"
    #: not yet sent
    PENDING = "pending"
    #: sent
    DELIVERED = "delivered"
    #: not sent: the output requests that, or repeats the previous one
    SUPPRESSED = "suppressed"
    #: not sent: the channel refused it
    FAILED = "failed"
    #: sent or not: the connection broke before the reply
    UNKNOWN = "unknown"


class IncidentState(StrEnum):
    """The state of an incident."""

    #: the job fails, and no person has acknowledged it
    OPEN = "open"
    #: a person has acknowledged it
    ACKNOWLEDGED = "acknowledged"
    #: a run of the job succeeded
    RECOVERED = "recovered"
    #: the job was deleted or disabled
    CLOSED = "closed"


class InboxKind(StrEnum):
    """What kind of thing waits for a person."""

    #: a run that was reported as done, and that a person confirms (`verify`: `manual`)
    VERIFICATION = "verification"
    #: a job of an agent that needs approval
    APPROVAL = "approval"
    #: an open suggestion
    SUGGESTION = "suggestion"
    #: an open incident that nobody has acknowledged
    INCIDENT = "incident"


class SuggestionStatus(StrEnum):
    """What became of a suggestion."""

    #: it waits for a decision
    OPEN = "open"
    APPLIED = "applied"
    #: a person does not want it
    DISMISSED = "dismissed"
    #: it was applied, and the job has its earlier settings again
    ROLLED_BACK = "rolled_back"
    #: the figures no longer support it, or its job was changed or deleted
    WITHDRAWN = "withdrawn"


class InstanceStatus(StrEnum):
    """Whether an instance of an agent handles signals."""

    #: it handles signals
    ACTIVE = "active"
    #: a person paused it: signals wait
    PAUSED = "paused"
    #: its state cannot be read or migrated: signals wait
    BLOCKED = "blocked"
    #: it has no schedules, and accepts no signal until it is started
    STOPPED = "stopped"
    #: it accepts nothing; its history is being erased, and then it does not exist
    DELETING = "deleting"
