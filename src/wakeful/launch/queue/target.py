"""The fields of a queue target, the subjects that a job may use, and the streams that Wakeful creates.

    {"kind": "queue", "subject": "reports.daily", "stream": "REPORTS", "headers": {…}, "function": "digest"}

Servers and credentials are settings of the operator and never part of a target. Without `subject` the message
goes to the subject of its workspace, which `wakeful worker --nats` reads. Any other subject must be allowed
by the operator (`WAKEFUL_NATS_SUBJECTS`): a message could otherwise reach every service on the same server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.launch.http.messages import read_headers
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerConfig

#: The stream of messages that name no subject, and the beginning of their subjects.
WORK_STREAM: Final = "WAKEFUL_WORK"
WORK_SUBJECT: Final = "wakeful.work"
#: The stream of what workers report, and the beginning of its subjects.
RESULT_STREAM: Final = "WAKEFUL_RESULTS"
RESULT_SUBJECT: Final = "wakeful.results"

_FIELDS: Final = ("subject", "stream", "headers", "function")
_SUBJECT: Final = re.compile(r"[!-)+-=?-~]+")  # printable ASCII without a space and the wildcards
_STREAM: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_SUBJECT: Final = 255
_MAX_FUNCTION: Final = 255
#: Subjects of NATS and of Wakeful itself.
_RESERVED_SUBJECT: Final = re.compile(r"(\$|_inbox|wakeful(\.|$)).*", re.IGNORECASE)
#: Headers that a job cannot set.
_RESERVED_HEADER: Final = re.compile(
    r"(x-wakeful|nats)-.*|traceparent|tracestate|content-type", re.IGNORECASE
)
#: How long NATS remembers message ids, in seconds: longer than a lease and the wait for another replica.
DUPLICATE_WINDOW_S: Final = 600.0
#: How long a message is kept if no worker takes it, in seconds. Its run has timed out long before.
MAX_AGE_S: Final = 7 * 86_400.0
#: Seconds after which a message is delivered again if its worker is silent.
ACK_WAIT_S: Final = 30.0
#: The error of JetStream for a message that is larger than its stream accepts.
TOO_LARGE: Final = 10054
_NAME_TAKEN: Final = 10058
_SUBJECTS_OVERLAP: Final = 10065


class QueueTarget(NamedTuple):
    """A queue target."""

    #: None: the subject of the run's workspace
    subject: str | None = None
    #: None: the stream that has the subject
    stream: str | None = None
    headers: Mapping[str, str] = {}
    #: the function that `wakeful worker --nats` calls; None: that of the name of the job
    function: str | None = None


def read_queue(target: Mapping[str, Json], allowed: Sequence[str]) -> QueueTarget:
    """Return a queue target, or raise InvalidArgument. `allowed` are the subjects that jobs may name.

    >>> read_queue({"kind": "queue", "subject": "reports.daily"}, ["reports.>"]).subject
    'reports.daily'
    >>> read_queue({"kind": "queue", "subject": "orders.new"}, ["reports.>"])
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: target: jobs may not use the subject 'orders.new'; the operator sets \
WAKEFUL_NATS_SUBJECTS
    """
    unknown = sorted(target.keys() - {"kind", *_FIELDS})
    if unknown:
        raise InvalidArgument(
            f"target: a queue target has no field '{unknown[0][:64]}'; it has {', '.join(_FIELDS)}"
        )
    subject, stream, function = target.get("subject"), target.get("stream"), target.get("function")
    if subject is not None:
        _check_subject(subject, allowed)
    if stream is not None and (not isinstance(stream, str) or not _STREAM.fullmatch(stream)):
        raise InvalidArgument("target: stream has 1 to 64 letters, digits, - and _, such as 'REPORTS'")
    if stream is not None and subject is None:
        raise InvalidArgument("target: a stream needs a subject; set the subject too")
    if function is not None and (
        not isinstance(function, str)
        or not 0 < len(function) <= _MAX_FUNCTION
        or not function.isprintable()  # it is a header
        or function != function.strip()
    ):
        raise InvalidArgument("target: function is the name of a function in one line, such as 'digest'")
    return QueueTarget(subject, stream, read_headers(target.get("headers"), _RESERVED_HEADER), function)  # type: ignore[arg-type]


def subject_matches(subject: str, pattern: str) -> bool:
    """Return whether a NATS pattern has a subject. `*` is one token, and `>` at the end is one or more.

    >>> [subject_matches("a.b.c", each) for each in ("a.b.c", "a.*.c", "a.>", "a.b", "a.b.c.>")]
    [True, True, True, False, False]
    """
    tokens, wanted = subject.split("."), pattern.split(".")
    for number, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > number
        if number >= len(tokens) or token not in ("*", tokens[number]):
            return False
    return len(tokens) == len(wanted)


def choose_stream(target: QueueTarget) -> tuple[str, str]:
    """Return the name and the subject of the stream to create for a target.

    >>> choose_stream(QueueTarget()), choose_stream(QueueTarget("reports.daily"))
    (('WAKEFUL_WORK', 'wakeful.work.>'), ('REPORTS_DAILY', 'reports.daily'))
    """
    if target.subject is None:
        return WORK_STREAM, f"{WORK_SUBJECT}.>"
    return target.stream or stream_name(target.subject).upper(), target.subject


def stream_name(subject: str) -> str:
    """Return a subject as a part of the name of a stream or a consumer.

    >>> stream_name("wakeful.work.>")
    'wakeful_work_all'
    """
    text = subject.replace(">", "all").replace("*", "any")
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)[:64]


def _check_subject(subject: Json, allowed: Iterable[str]) -> None:
    if (
        not isinstance(subject, str)
        or not _SUBJECT.fullmatch(subject)
        or len(subject) > _MAX_SUBJECT
        or "" in subject.split(".")
    ):
        raise InvalidArgument(
            "target: subject is words joined by dots, without spaces and wildcards, such as 'reports.daily'"
        )
    if _RESERVED_SUBJECT.fullmatch(subject):
        raise InvalidArgument(f"target: the subject '{subject[:64]}' is reserved; choose another one")
    if not any(subject_matches(subject, pattern) for pattern in allowed):
        raise InvalidArgument(
            f"target: jobs may not use the subject '{subject[:64]}'; the operator sets WAKEFUL_NATS_SUBJECTS"
        )


async def create_stream(js: JetStreamContext, name: str, subject: str, replicas: int) -> None:
    """Create a stream of work with this subject; one of that name with the subject stays as it is.

    Raises FailedPrecondition if the operator must correct the streams.
    """
    from nats.js.api import RetentionPolicy, StorageType, StreamConfig
    from nats.js.errors import BadRequestError

    if name in (WORK_STREAM, RESULT_STREAM) and not _RESERVED_SUBJECT.fullmatch(subject):
        # No job could use the stream of its workspace any more.
        raise FailedPrecondition(
            f"the NATS stream '{name}' is for subjects of Wakeful; name another stream for '{subject}'"
        )
    config = StreamConfig(
        name=name,
        description="created by Wakeful",
        subjects=[subject],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        num_replicas=replicas,
        duplicate_window=DUPLICATE_WINDOW_S,
        max_age=MAX_AGE_S,
    )
    try:
        await js.add_stream(config)
    except BadRequestError as error:
        if error.err_code == _NAME_TAKEN and await _has_subject(js, name, subject):
            return
        if error.err_code in (_NAME_TAKEN, _SUBJECTS_OVERLAP):
            raise FailedPrecondition(
                f"the NATS stream '{name}' cannot have the subject '{subject}': {error.description}; name "
                "another stream, or change the streams"
            ) from error
        raise


async def _has_subject(js: JetStreamContext, name: str, subject: str) -> bool:
    found = (await js.stream_info(name)).config.subjects or []
    return any(each == subject or subject_matches(subject, each) for each in found)


def consumer_config(durable: str, subject: str, ack_wait_s: float = ACK_WAIT_S) -> ConsumerConfig:
    """Return a consumer that several processes share. What is not acknowledged is delivered again."""
    from nats.js.api import AckPolicy, ConsumerConfig

    return ConsumerConfig(
        durable_name=durable,
        description="created by Wakeful",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s,
        max_deliver=-1,
        max_ack_pending=10_000,
        filter_subject=subject,
    )
