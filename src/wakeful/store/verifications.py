"""Verifications: runs that were reported as done, and whose work is checked before they succeed.

- `verifications`: one row for each such run, added in the transaction that wrote the report
  (`Finished.verification`; topic: `verifications`), and deleted with the outcome of the check. `reported_by`
  is the worker or the executor that reported it. `tries` counts how often a worker took it.
- The run awaits a callback without a deadline meanwhile, under the worker `VERIFYING`. This is its fence: no
  heartbeat or report of an executor matches it, and no rescuer ends it.
- A row is due at `due_at`. A worker that takes it moves that to the end of its lease, so another worker takes
  it if the first one dies. The row of a run that was cancelled meanwhile is deleted when it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from wakeful.job.capabilities import Capabilities
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.audit import AuditEntry
from wakeful.store.rows import RunView, TakenRun


class DueVerification(NamedTuple):
    """A verification that a worker has taken."""

    run: TakenRun
    view: RunView
    #: compact JSON of the job's `verify` when the run was reported
    verify: str
    #: how often it was taken, with this time: part of the fence
    tries: int
    #: what a process must have to do it
    requires: str
    #: when the run was reported as done
    reported_ms: int


class VerificationView(NamedTuple):
    """A verification, to show it."""

    verify: str
    #: when it is due; of a check under way, when its lease ends; `manual`: its deadline
    due_ms: int
    tries: int
    reported_ms: int


class VerificationStore(Protocol):
    """The part of a store that holds verifications."""

    async def verification(self, run_id: str) -> VerificationView | None:
        """Return the verification of a run, if it awaits one."""
        ...

    async def take_verifications(
        self,
        now_ms: int,
        worker: str,
        capabilities: Capabilities,
        waiting_since_ms: int,
        limit: int,
        lease_until_ms: Callable[[str], int],
        without: Sequence[str] = (),
    ) -> list[DueVerification]:
        """Take due verifications for this worker, longest due first, none of the workspaces `without`.

        Those that require something else than the capabilities are taken only if they were reported before
        `waiting_since_ms`. `lease_until_ms` returns when the lease ends, by the stored `verify`.
        """
        ...

    async def finish_verification(
        self,
        finished: Finished,
        consequences: Consequences,
        held: tuple[str, int] | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> bool:
        """Write the outcome of a run after its verification, as `finish` does, and delete the verification.

        With `held`, only if that worker has taken it and not another one since (worker, `tries`). False: the
        run is not verified in that attempt, or another worker has it.
        """
        ...

    async def postpone_verification(
        self, run_id: str, held: tuple[str, int], due_ms: int, *, counts: bool
    ) -> bool:
        """Make a verification due again. `counts`: whether the present try counts. False: it is not held."""
        ...

    async def next_verification_ms(self, after_ms: int) -> int | None:
        """Return when the next verification is due after that instant."""
        ...
