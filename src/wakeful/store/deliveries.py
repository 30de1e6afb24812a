"""What a store keeps of deliveries: what a run said, on its way to a channel. Never part of the run's state.

- `deliveries`: one row for each run that succeeded and whose output somebody is to have (`Finished.deliver`),
  written in the transaction of that outcome (announced: `deliveries`). Where the job names no channel, it is
  the agent's, as it is then.
- A run shows its delivery as *pending* until it is over, and as *not_requested* without a row.
- A row is *pending* until a worker takes it, and *sending* until that worker reports the result. Where the
  worker does not report in time, it may have arrived: it is *unknown*, and not sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

#: What becomes of an attempt at a delivery; `pending`: it is tried again; `unknown`: it may have arrived.
Became = Literal["delivered", "suppressed", "failed", "unknown", "pending"]
#: What is said of one that is given up.
UNSAID: Final = "whoever sent it did not say how it went; it may have arrived"


class Delivery(NamedTuple):
    """A delivery in a worker's hands."""

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


class DeliveryResult(NamedTuple):
    """How one attempt at a delivery ended, fenced: it is written only if attempt and worker still match."""

    run_id: str
    attempt: int
    became: Became
    #: when to try again
    due_ms: int | None = None
    #: why it did not arrive, or was not sent
    error: str | None = None


class DeliveryStore(Protocol):
    """The part of a store that keeps deliveries."""

    async def take_deliveries(
        self, now_ms: int, worker: str, until_ms: int, limit: int
    ) -> tuple[list[Delivery], int]:
        """Mark up to `limit` that are due as being sent by this worker, who has until then to say how it was.

        Those that others had for too long are *unknown* from now on. Returns what was taken, and how many
        of those there were.
        """
        ...

    async def finish_deliveries(
        self, now_ms: int, worker: str, results: Sequence[DeliveryResult]
    ) -> set[str]:
        """Write how attempts ended. Returns the runs of those that were still this worker's to say."""
        ...

    async def next_delivery_ms(self) -> int | None:
        """When the next one is due, or is to be given up; None: there is none."""
        ...
