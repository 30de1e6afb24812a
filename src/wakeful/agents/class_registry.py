"""The agent classes of this process, and how a class is checked when it is registered.

A class with an error is refused. One invalid schedule is no reason for that: it is reported, in the log and
in `RegisteredClass.warnings`, and the rest of the class works. It stays in the definition that the database
gets, so that a job which exists for it is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

from wakeful.agents.agent import PATTERNS, Agent, SignalHandlers, find_handlers
from wakeful.agents.schedules import Schedule, check_document
from wakeful.agents.state import StateType, state_to_text, state_type
from wakeful.document import Defaults, policy_to_text, read_definition
from wakeful.document.kinds import Kind, milliseconds, whole
from wakeful.errors import AlreadyExists, InvalidArgument
from wakeful.job.job import check_slug
from wakeful.job.policy import Policy
from wakeful.job.start_rules import agent_requirement
from wakeful.logs import get_logger
from wakeful.run.instances import AgentClass, DeclaredSchedule
from wakeful.values.duration import SECOND, parse_duration
from wakeful.values.json_value import Json, compact, quote

MAX_MAILBOX: Final = 1_000_000
_VERSION: Final = whole(1, 2**31 - 1)
_MAILBOX: Final = whole(1, MAX_MAILBOX)
_DEDUPE: Final = milliseconds(SECOND)
_HIBERNATE: Final = milliseconds(0)
#: The methods that a class may override.
METHODS: Final = frozenset({"migrate", "redact", "on_thaw", "on_hibernate"})
#: The attributes that a class may set.
SETTINGS: Final = frozenset(
    {"name", "timeout_ms", *(name for name in vars(Agent) if not name.startswith("_"))} - METHODS
)
#: How similar a name is to the one that is meant.
_SIMILAR: Final = 0.75

log = get_logger("wakeful.agents")


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredClass:
    """A class that was checked, with everything that handling a signal needs."""

    cls: type[Agent]
    workspace: str
    agent: str
    version: int
    handlers: SignalHandlers
    state: StateType
    #: the initial state as compact JSON
    initial_text: str
    policy: Policy
    lane: str
    mailbox: int
    dedupe_ms: int
    hibernate_ms: int
    schedules: tuple[DeclaredSchedule, ...]
    #: what is wrong with its schedules, one sentence for each
    warnings: tuple[str, ...]

    @property
    def options(self) -> dict[str, Json]:
        """The fields of a job document that hold for all its signals."""
        return _options(self.policy, self.lane)

    @property
    def agent_class(self) -> AgentClass:
        """What the database stores of the class."""
        return AgentClass(
            self.workspace,
            self.agent,
            self.version,
            policy_to_text(self.policy),
            self.mailbox,
            self.dedupe_ms,
            self.lane,
            self.schedules,
            self.handlers.patterns,
            _hash(self.schedules),
        )


class ClassRegistry:
    """The agent classes of this process, by workspace and agent."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, str], RegisteredClass] = {}
        #: called when a class is registered
        self.on_registered: Callable[[], object] = lambda: None

    def register(self, cls: type[Agent], workspace: str = "default") -> RegisteredClass:
        """Check and add a class. Raises InvalidArgument, and AlreadyExists for another class of the agent."""
        registered = read_class(cls, workspace)
        known = self._classes.get((workspace, registered.agent))
        if known is not None and known.cls is not cls:
            raise AlreadyExists(
                f"the agent '{registered.agent}' has the class {known.cls.__name__} already; give "
                f"{cls.__name__} another name"
            )
        for warning in registered.warnings:
            log.warning("agent.schedule_invalid", agent=registered.agent, workspace=workspace, error=warning)
        for warning in misspelled_attributes(cls):
            log.warning(
                "agent.attribute_unknown", agent=registered.agent, workspace=workspace,
                error=f"class {cls.__name__}: {warning}",
            )  # fmt: skip
        self._classes[workspace, registered.agent] = registered
        self.on_registered()
        return registered

    def get(self, workspace: str, agent: str) -> RegisteredClass | None:
        """Return the class of an agent, if this process has it."""
        return self._classes.get((workspace, agent))

    def __iter__(self) -> Iterator[RegisteredClass]:
        return iter(tuple(self._classes.values()))

    def __len__(self) -> int:
        return len(self._classes)

    @property
    def capabilities(self) -> dict[str, int]:
        """What this process can handle: the requirement of each class, with its version."""
        return {agent_requirement(each.workspace, each.agent): each.version for each in self}


def read_class(cls: object, workspace: str = "default") -> RegisteredClass:
    """Return the class with its checked attributes, or raise InvalidArgument.

    >>> class Empty(Agent):
    ...     name = "Empty Report"
    >>> read_class(Empty)
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: class Empty: name: 'Empty Report' is not a slug; use lowercase ...
    """
    if not isinstance(cls, type) or not issubclass(cls, Agent) or cls is Agent:
        raise InvalidArgument(
            f"{quote(cls)} is not an agent class; write `class DailyReport(Agent)` and give the class itself"
        )
    handlers = find_handlers(cls)
    try:
        name = getattr(cls, "name", None)
        if not isinstance(name, str):
            raise InvalidArgument("it has no name; set name = 'daily-report'")
        check_slug(name)
        if not handlers.patterns:
            raise InvalidArgument('it has no handler; decorate a method with @on("report.generate"), or "*"')
        policy, lane = _policy(cls)
        state = _state(cls)
        schedules, warnings = _schedules(cls, handlers, _options(policy, lane))
        return RegisteredClass(
            cls=cls,
            workspace=check_slug(workspace, "workspace"),
            agent=name,
            version=_attribute(cls, "version", _VERSION),
            handlers=handlers,
            state=state,
            initial_text=state_to_text(state.initial()),
            policy=policy,
            lane=lane,
            mailbox=_attribute(cls, "mailbox", _MAILBOX),
            dedupe_ms=_duration(cls, "dedupe_for", _DEDUPE),
            hibernate_ms=_duration(cls, "hibernate_after", _HIBERNATE),
            schedules=schedules,
            warnings=warnings,
        )
    except InvalidArgument as error:
        raise InvalidArgument(f"class {cls.__name__}: {error.message}") from None


def _state(cls: type[Agent]) -> StateType:
    try:
        return state_type(cls.state)
    except InvalidArgument as error:
        raise InvalidArgument(f"state: {error.message.removeprefix('state: ')}") from None


def _policy(cls: type[Agent]) -> tuple[Policy, str]:
    """Return the retry policy and the lane, read as the fields of a job."""
    backoff = cls.backoff
    if isinstance(backoff, Mapping):
        backoff = {**_missing_parts(backoff), **backoff}
    own_ms: object = getattr(cls, "timeout_ms", None)
    document = {
        "name": "class",
        "schedule": "@daily",
        "maxAttempts": cls.max_attempts,
        **({"timeoutMs": own_ms} if own_ms is not None else {"timeout": cls.timeout}),
        "backoff": backoff,
        "lane": cls.lane,
    }
    definition = read_definition(document, now_ms=0, defaults=Defaults())
    read = definition.policy
    policy = Policy(max_attempts=read.max_attempts, backoff=read.backoff, timeout_ms=read.timeout_ms)
    return policy, definition.work.lane


def _missing_parts(backoff: Mapping[str, object]) -> dict[str, object]:
    """Return the default of each part of a backoff that a class leaves out."""
    return {
        part: default
        for part, default in Agent.backoff.items()
        if not {part, f"{part}Ms", f"{part}_ms"} & backoff.keys()
    }


def _options(policy: Policy, lane: str) -> dict[str, Json]:
    return {
        "maxAttempts": policy.max_attempts,
        "backoff": {"baseMs": policy.backoff.base_ms, "maxMs": policy.backoff.max_ms},
        "timeoutMs": policy.timeout_ms,
        "lane": lane,
    }


def _schedules(
    cls: type[Agent], handlers: SignalHandlers, options: Mapping[str, Json]
) -> tuple[tuple[DeclaredSchedule, ...], tuple[str, ...]]:
    declared: dict[str, DeclaredSchedule] = {}
    warnings = []
    if not isinstance(cls.schedules, list | tuple):
        raise InvalidArgument(
            f"schedules: {quote(cls.schedules)} is not a list; write "
            '[Schedule("0 6 * * *", "report.generate")]'
        )
    for each in cls.schedules:
        if not isinstance(each, Schedule):
            raise InvalidArgument(
                f'schedules: {quote(each)} is not a schedule; write Schedule("0 6 * * *", "report.generate")'
            )
        if each.job_id in declared:
            raise InvalidArgument(f"schedules: '{each.job_id}' is declared twice; give each another job_id")
        if handlers.find(each.signal) is None:
            warnings.append(
                f"schedule '{each.job_id}': it sends '{each.signal}', which no handler handles; add "
                f'@on("{each.signal}")'
            )
        document: dict[str, Json] = {}
        try:
            document = each.document(options)
            check_document(document)
        except InvalidArgument as error:
            warnings.append(f"schedule '{each.job_id}': {error.message}")
        declared[each.job_id] = DeclaredSchedule(each.job_id, document)
    return tuple(declared.values()), tuple(warnings)


def _hash(schedules: tuple[DeclaredSchedule, ...]) -> str:
    """Return the hash of declared schedules. A class without any has that of a new instance."""
    if not schedules:
        return ""
    text = compact([[each.schedule_id, dict(each.document)] for each in schedules], sort=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _attribute(cls: type[Agent], name: str, kind: Kind) -> int:
    try:
        value: int = kind(getattr(cls, name))
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error.message}") from None
    return value


def _duration(cls: type[Agent], name: str, kind: Kind) -> int:
    value = getattr(cls, name)
    try:
        if isinstance(value, timedelta):
            ms = value // timedelta(milliseconds=1)
        elif isinstance(value, str):
            ms = parse_duration(value)
        else:
            raise InvalidArgument(f"{quote(value)} is not a duration; write '15m' or a timedelta")
        checked: int = kind(ms)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error.message}") from None
    return checked


def misspelled_attributes(cls: type[Agent]) -> list[str]:
    """Return a sentence for each attribute that looks like a setting or a method of `Agent` but is none.

    A class may have attributes of its own, so only values are compared with settings, and only methods with
    methods.

    >>> class Report(Agent):
    ...     max_attempt = 3
    ...     regions = ("eu", "us")
    >>> misspelled_attributes(Report)
    ["'max_attempt' is not a setting of an agent and has no effect; did you mean 'max_attempts'?"]
    """
    found = []
    for base in cls.__mro__:
        if not issubclass(base, Agent) or base is Agent:
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in SETTINGS or name in METHODS or hasattr(value, PATTERNS):
                continue
            is_method = isinstance(value, Callable | staticmethod | classmethod)  # type: ignore[arg-type]
            kind, known = ("method", METHODS) if is_method else ("setting", SETTINGS)
            if near := get_close_matches(name, sorted(known), 1, _SIMILAR):
                found.append(
                    f"'{name}' is not a {kind} of an agent and has no effect; did you mean '{near[0]}'?"
                )
    return found
