"""The JSON of workers, channels, settings, tests of targets and groups of dead letters."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class LaneShape(TypedDict):
    """The slots of a lane."""

    used: int
    size: int


class WorkerShape(TypedDict):
    """A process that takes runs."""

    name: str
    alive: bool
    startedAt: str
    lastHeartbeatAt: str
    runs: int
    thisProcess: bool
    version: str | None
    lanes: dict[str, LaneShape]
    capabilities: dict[str, int]


class ExecutorShape(TypedDict):
    """A program outside that holds claimed runs."""

    name: str
    runs: int
    lastHeartbeatAt: str | None


class WorkersShape(TypedDict):
    """All workers and executors."""

    workers: list[WorkerShape]
    executors: list[ExecutorShape]


class ChannelShape(TypedDict):
    """A channel, without its URL."""

    name: str
    kind: str
    takesRecipient: bool
    #: the deliveries of the last 24 hours by state
    deliveries: dict[str, int]


class DeliveryShape(TypedDict):
    """The output of a run on its way to a channel."""

    runId: str
    agentId: str
    jobId: str | None
    job: str | None
    channel: str | None
    to: str | None
    state: str
    attempt: int
    at: str
    error: str | None


class ChannelsShape(TypedDict):
    """All channels, and the recent deliveries of the workspace."""

    channels: list[ChannelShape]
    deliveries: list[DeliveryShape]


class ChannelTestShape(TypedDict):
    """How a test message ended: `accepted`, `not_sent` or `unknown`."""

    outcome: str
    error: str | None
    durationMs: int


class SettingShape(TypedDict):
    """A setting; the value of a secret is None."""

    name: str
    value: str | None
    #: `environment`, `file`, `option` or `default`
    source: str
    secret: bool
    set: bool
    description: str


class SentRequestShape(TypedDict):
    """The request of a test."""

    method: str
    url: str
    headers: dict[str, str]
    body: str


class ReceivedResponseShape(TypedDict):
    """The response to a test."""

    status: int
    #: pairs of name and value
    headers: list[list[str]]
    body: str


class TargetTestShape(TypedDict):
    """The result of a test of a target."""

    kind: str
    ok: bool
    message: str
    durationMs: int | None
    request: SentRequestShape | None
    response: ReceivedResponseShape | None
    #: what signed the request, if it was made for the test
    secret: NotRequired[str]


class DeadLetterGroupShape(TypedDict):
    """The dead letters of one job with one cause."""

    agentId: str
    jobId: str | None
    job: str | None
    cause: str
    count: int
    firstFailedAt: str
    lastFailedAt: str
    newestRunId: str
    error: str | None


class DeadLetterGroupsShape(TypedDict):
    """The newest dead letters by job and cause."""

    groups: list[DeadLetterGroupShape]
    #: how many dead letters the groups are made of
    counted: int
    #: whether there are older dead letters
    more: bool
