"""What operators see: workers, executors, channels, deliveries, settings, tests, dead letters by cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

from wakeful.model.codec import AgentName, Form, Id, NewSecret, Slug, resource
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneUse:
    """The slots of a lane."""

    used: int
    size: int


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that takes runs."""

    #: host, process id and a random part
    name: str
    #: whether its last heartbeat is less than 30 s old
    alive: bool
    started_at: datetime
    last_heartbeat_at: datetime
    #: how many running runs it holds
    runs: int
    this_process: bool
    #: of the process that answers
    version: str | None
    #: the slots of the process that answers
    lanes: Mapping[str, LaneUse]
    #: the functions and agent classes that it can launch, with versions
    capabilities: Mapping[str, int]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """A program outside that holds claimed runs."""

    name: str
    runs: int
    last_heartbeat_at: datetime | None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """All workers and executors."""

    workers: tuple[Worker, ...]
    executors: tuple[Executor, ...]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel, without its URL."""

    name: Slug
    #: the service, such as `slack`
    kind: str
    takes_recipient: bool
    #: the deliveries of the last 24 hours by state
    deliveries: Mapping[str, int]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The output of a run on its way to a channel."""

    run_id: Id
    agent: AgentName
    job_id: Id | None
    job: str | None
    channel: str | None
    to: str | None
    state: str
    attempt: int
    at: datetime
    error: str | None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """All channels, and the recent deliveries of the workspace."""

    channels: tuple[Channel, ...]
    deliveries: tuple[Delivery, ...]


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTest:
    """How a test message ended."""

    outcome: Annotated[str, Form("SendOutcome")]
    error: str | None
    duration: timedelta


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting."""

    name: str
    #: None: not set, or secret
    value: str | None
    source: Annotated[str, Form("SettingSource")]
    secret: bool
    set: bool
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """The request of a test."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedResponse:
    """The response to a test."""

    status: int
    #: pairs of name and value
    headers: tuple[tuple[str, ...], ...]
    #: its beginning, up to 16 KB
    body: str


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTest:
    """The result of a test of a target."""

    #: the kind of the target
    kind: str
    ok: bool
    #: what was found, and what to do if it is not ok
    message: str
    duration: timedelta | None
    request: SentRequest | None
    response: ReceivedResponse | None
    #: signs the request; present if it was made for the test
    secret: NewSecret | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """The dead letters of one job with one cause."""

    agent: Annotated[str, Form(key="agentId")]
    #: None: runs without a job
    job_id: Id | None
    job: str | None
    #: what failed, without ids, numbers and addresses
    cause: str
    count: int
    first_failed_at: datetime
    last_failed_at: datetime
    newest_run_id: Id
    #: the beginning of the newest error
    error: str | None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroups:
    """The newest dead letters by job and cause."""

    groups: tuple[DeadLetterGroup, ...]
    #: how many dead letters the groups are made of
    counted: int
    #: whether there are older dead letters
    more: bool


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A sign-in session."""

    id: str
    key_id: str
    created_at: datetime
    #: the last request, to the minute
    seen_at: datetime
    #: when it ends if there is no further request
    expires_at: datetime
    #: the client's address at sign-in
    address: str | None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person who signs in at the issuer."""

    #: the actor is `person:` and this
    id: str
    name: str
    #: as the issuer says
    email: str | None
    issuer: str
    #: the roles in this workspace and in all (`*`), as of the last sign-in
    roles: Mapping[str, Json]
    created_at: datetime
    signed_in_at: datetime


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    """A link that signs a browser in, once."""

    url: str
    expires_at: datetime
