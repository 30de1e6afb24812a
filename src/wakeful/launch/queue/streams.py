"""Creates the streams and consumers that Wakeful uses, unless they exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakeful.errors import FailedPrecondition

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerConfig

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


async def create_stream(js: JetStreamContext, name: str, subject: str, replicas: int) -> None:
    """Create a stream of work with this subject; one of that name with the subject stays as it is.

    Raises FailedPrecondition if the operator must correct the streams.
    """
    from nats.js.api import RetentionPolicy, StorageType, StreamConfig
    from nats.js.errors import BadRequestError

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
    from wakeful.launch.queue.target import subject_matches

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
