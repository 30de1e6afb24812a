"""Deliveries: the output of runs, on its way to a channel. Not part of the run's state.

- `deliveries`: one row for each succeeded run whose output is to be delivered (`Finished.deliver`), added in
  the transaction of that outcome (topic: `deliveries`). If the job names no channel, it is the agent's at
  that time. A run that emitted signals has one too if its agent has a channel.
- A run shows its delivery as *pending* until it ends, and as *not_requested* without a row.
- A row is *pending* until a worker takes it, and *sending* until that worker reports the result. If it does
  not report in time, the output may have arrived: the delivery is *unknown* and not sent again.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

#: The result of an attempt at a delivery; `pending`: it is retried; `unknown`: it may have arrived.
Became = Literal["delivered", "suppressed", "failed", "unknown", "pending"]
#: The error of a delivery that timed out.
UNKNOWN_ERROR: Final = "the worker did not report the result in time; it may have arrived"


class TakenDelivery(NamedTuple):
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
