"""Deliveries: the output of runs, on its way to a channel. Not part of the run's state.

- `deliveries`: one row for each succeeded run whose output is to be delivered (`Finished.deliver`), added in
  the transaction of that outcome (topic: `deliveries`). If the job names no channel, it is the agent's at
  that time. A run that emitted signals has one too if its agent has a channel.
- A run shows its delivery as *pending* until it ends, and as *not_requested* without a row.
- A row is *pending* until a worker takes it, and *sending* until that worker reports the result. If it does
  not report in time, the output may have arrived: the delivery is *unknown* and not sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

#: The result of an attempt at a delivery; `pending`: it is retried; `unknown`: it may have arrived.
Became = Literal["delivered", "suppressed", "failed", "unknown", "pending"]
#: The error of a delivery that timed out.
UNKNOWN_ERROR: Final = "the worker did not report the result in time; it may have arrived"


class Delivery(NamedTuple):
    """A delivery that a worker has taken."""

    run_id: str
    workspace: str
    agent: str
    job_name: str | None
    #: None: neither the job nor its agent names one
    channel: str | None
    to: str | None
    output: str | None
    #: 1 for the first
    attempt: int
    job_id: str | None
    #: the key of the run, and its last attempt
    idempotency_key: str
    run_attempt: int
    #: the signals that the run emitted, as a JSON array
    emitted: str | None = None

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log events about this delivery."""
        return {
            "run_id": self.run_id,
            "job_id": self.job_id,
            "job": self.job_name,
            "agent": self.agent,
            "workspace": self.workspace,
            "channel": self.channel,
            "delivery_attempt": self.attempt,
        }


class DeliveryResult(NamedTuple):
    """How one attempt at a delivery ended, fenced: it is written only if attempt and worker still match."""

    run_id: str
    attempt: int
    became: Became
    #: when to try again
    due_ms: int | None = None
    #: why it did not arrive, or was not sent
    error: str | None = None


class DeliveryView(NamedTuple):
    """A delivery, for observers."""

    run_id: str
    agent: str
    job_id: str | None
    job_name: str | None
    channel: str | None
    to: str | None
    state: str
    attempt: int
    at_ms: int
    error: str | None


class DeliveryStore(Protocol):
    """The part of a store that holds deliveries."""

    async def take_deliveries(
        self, now_ms: int, worker: str, until_ms: int, limit: int, without: Sequence[str] = ()
    ) -> tuple[list[Delivery], int]:
        """Mark up to `limit` due deliveries as being sent by this worker, which has to report until then.

        None of them is for the channels `without`; '': those without a channel. Deliveries whose worker did
        not report in time become *unknown*. Returns those that were taken, and how many timed out.
        """
        ...

    async def finish_deliveries(
        self, now_ms: int, worker: str, results: Sequence[DeliveryResult]
    ) -> set[str]:
        """Write how attempts ended, each only if this worker still holds it. Returns their runs."""
        ...

    async def next_delivery_ms(self, after_ms: int) -> int | None:
        """Return when the next delivery is due or times out after that instant; None: there is none."""
        ...

    async def recent_deliveries(
        self, workspace: str, since_ms: int, considered: int, limit: int
    ) -> list[DeliveryView]:
        """Return the newest deliveries of runs of a workspace that were created since then, newest first.

        Only the newest `considered` ones of all workspaces are read.
        """
        ...
