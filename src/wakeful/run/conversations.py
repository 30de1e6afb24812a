"""What the end of a run adds to the history of sessions, and which answers say nothing. Pure.

A session is a conversation of an agent: what was said to it, and what it answered. Only a run that succeeds
adds to it, in the transaction of its outcome:

- A turn adds the messages and the answer to its session.
- A run of a job with the target `chat` adds its prompt and its answer to the session of the job, `job:NAME`.
- A run of a job that was made in a conversation adds its answer there.

An agent that has nothing to report returns `NO_REPLY` or `[SILENT]` as its whole output, or `HEARTBEAT_OK`
for a heartbeat. Models may add quotes or a full stop; to `HEARTBEAT_OK` they also add a remark, before or
after it. Such answers are not delivered, and not added to the conversation of a job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol, get_args

from wakeful.job.job import HEARTBEAT_JOB, WAKE_JOB, Continuity, Work
from wakeful.job.target_kinds import find_kind
from wakeful.values.json_value import Json

HistoryRole = Literal["user", "assistant"]
#: The longest history of a session: the oldest entries beyond it are dropped.
MAX_ENTRIES: Final = 200
MAX_TOKENS: Final = 200_000
#: The beginning of the names of sessions that belong to jobs. No message is sent to them.
JOB_SESSION: Final = "job:"
NO_REPLY: Final = "NO_REPLY"
SILENT: Final = "[SILENT]"
HEARTBEAT_OK: Final = "HEARTBEAT_OK"
#: Characters around such a word that are ignored.
_IGNORED: Final = " \t\r\n`*\"'.!“”„"
#: HEARTBEAT_OK at the beginning or the end of an answer
_ALL_WELL: Final = re.compile(rf"{HEARTBEAT_OK}\b|.*\b{HEARTBEAT_OK}$", re.DOTALL)
#: A heartbeat whose remark is longer has something to report.
_LONGEST_REMARK: Final = 300


class HistoryAppend(NamedTuple):
    """An entry to append to the history of a session."""

    workspace: str
    agent: str
    session: str
    role: HistoryRole
    content: str
    run_id: str
    at_ms: int
    #: of an answer that a job adds to the conversation that it comes from
    job_name: str | None = None

    @property
    def tokens(self) -> int:
        """An estimate of its length."""
        return estimated_tokens(self.content)


class RunOfConversation(Protocol):
    """What the history needs of a run that has ended."""

    @property
    def id(self) -> str:
        """The run's id."""
        ...

    @property
    def workspace(self) -> str:
        """The run's workspace."""
        ...

    @property
    def agent(self) -> str:
        """The run's agent."""
        ...

    @property
    def session(self) -> str | None:
        """The session of a turn."""
        ...

    @property
    def scheduled_ms(self) -> int:
        """When the turn began, or the tick."""
        ...


def may_add_history(run: RunOfConversation, work: Work) -> bool:
    """Return whether `history_entries` can return anything for a run: most belong to no conversation."""
    return run.session is not None or work.origin is not None or _is_chat(work)


def history_entries(
    run: RunOfConversation,
    job_name: str | None,
    work: Work,
    payload: Json,
    output: str | None,
    finished_ms: int,
) -> tuple[HistoryAppend, ...]:
    """Return what a run that succeeded adds to histories, in order.

    A turn without an answer adds only what was said. A job that has nothing to report (`NO_REPLY`) adds
    nothing.
    """
    if run.session is not None:
        return tuple(_exchange(run, run.session, payload, output, finished_ms))
    if job_name in (None, WAKE_JOB) or suppression_reason(output, job_name) is not None:
        return ()
    found: list[HistoryAppend] = []
    own = job_session(str(job_name))
    if _is_chat(work) and find_continuity(work, job_name, turn=False) != "none":
        found += _exchange(run, own, payload, output, finished_ms)
    session = None if work.origin is None else work.origin.session
    if session is not None and session != own:
        key = run.workspace, run.agent, session
        found.append(HistoryAppend(*key, "assistant", output or "", run.id, finished_ms, job_name))
    return tuple(found)


def job_session(job_name: str) -> str:
    """Return the session of a job's own turns.

    >>> job_session("digest")
    'job:digest'
    """
    return JOB_SESSION + job_name


class Continues(Protocol):
    """What decides how a run continues what was said before: its work, or its launch."""

    @property
    def stateless(self) -> bool:
        """Whether it starts without a conversation."""
        ...

    @property
    def continuity(self) -> Continuity | None:
        """What its job says."""
        ...

    @property
    def target(self) -> Mapping[str, Json] | None:
        """What its target says is in here."""
        ...


def find_continuity(run: Continues, job_name: str | None, *, turn: bool) -> Continuity:
    """Return how a chat run continues what was said before: its job decides, then its target, then its kind.

    A wake without a session has no earlier answer of its own: its job is shared with all turns of the agent.

    >>> find_continuity(Work({"kind": "chat"}), "digest", turn=False)
    'output'
    >>> find_continuity(Work({"kind": "chat", "continuity": "session"}, stateless=True), "digest", turn=False)
    'none'
    """
    if run.stateless or (not turn and job_name in (None, WAKE_JOB)):
        return "none"
    target = run.target or {}
    to = target.get("to")
    stated = run.continuity or (to if isinstance(to, dict) else target).get("continuity")
    for known in get_args(Continuity):
        if stated == known:
            return known  # type: ignore[no-any-return]
    return "session" if turn else "output"


def payload_text(payload: Json) -> str:
    """Return what a payload says: its `message`, else its text, else its JSON.

    >>> (
    ...     payload_text({"message": "hello", "session": "main"}),
    ...     payload_text("hello"),
    ...     payload_text({"n": 1}),
    ...     payload_text(None),
    ... )
    ('hello', 'hello', '{"n":1}', '')
    """
    if payload is None or isinstance(payload, str):
        return payload or ""
    if isinstance(payload, dict) and isinstance(message := payload.get("message"), str):
        return message
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has for a language model.

    Four ASCII characters are about one token; any other character is about one.

    >>> estimated_tokens("four words of English"), estimated_tokens("日本語"), estimated_tokens("")
    (6, 3, 1)
    """
    if text.isascii():
        return len(text) // 4 + 1
    ascii_length = len(text.encode("ascii", "ignore"))
    return ascii_length // 4 + len(text) - ascii_length


def _exchange(
    run: RunOfConversation, session: str, payload: Json, output: str | None, finished_ms: int
) -> list[HistoryAppend]:
    """Return what was said and what was answered, as far as there is any."""
    key = run.workspace, run.agent, session
    said, answered = payload_text(payload), output or ""
    entries = []
    if said.strip():
        entries.append(HistoryAppend(*key, "user", said, run.id, min(run.scheduled_ms, finished_ms)))
    if answered.strip():
        entries.append(HistoryAppend(*key, "assistant", answered, run.id, finished_ms))
    return entries


def _is_chat(work: Work) -> bool:
    kind = find_kind(work.final_target)
    return kind is not None and kind.converses


def suppression_reason(output: str | None, job: str | None) -> str | None:
    """Return why an output is not delivered; None if it is.

    >>> suppression_reason(" `NO_REPLY`. ", "digest"), suppression_reason("[SILENT]", "digest")
    ('its answer was NO_REPLY', 'its answer was [SILENT]')
    >>> (
    ...     suppression_reason("NO_REPLYING", "digest"),
    ...     suppression_reason("NO_REPLY is what I would say", "digest"),
    ... )
    (None, None)
    >>> suppression_reason("HEARTBEAT_OK", "heartbeat"), suppression_reason("HEARTBEAT_OK", "digest")
    ('its answer was HEARTBEAT_OK', None)
    >>> (
    ...     suppression_reason("HEARTBEAT_OK - nothing new", "heartbeat"),
    ...     suppression_reason("HEARTBEAT_OKAY", "heartbeat"),
    ... )
    ('its answer was HEARTBEAT_OK', None)
    """
    if output is None or not output.strip():
        return "it said nothing"
    word = output.strip(_IGNORED)
    if word in (NO_REPLY, SILENT):
        return f"its answer was {word}"
    is_short = len(word) <= len(HEARTBEAT_OK) + _LONGEST_REMARK
    if job == HEARTBEAT_JOB and is_short and _ALL_WELL.match(word):
        return f"its answer was {HEARTBEAT_OK}"
    return None
