"""Trigger URLs of jobs, by the SHA-256 of their token: the token itself is not stored.

`hooks` has one row per URL (`HookRow`). A job has at most two: the present one, and the one before it until
it expires. A URL of a deleted job is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from wakeful.job.self_scheduling import ChargeRule
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed


class HookRow(NamedTuple):
    """A trigger URL of a job."""

    #: SHA-256 of the token
    hash: bytes
    job_id: str
    created_ms: int
    #: role and actor
    created_by: str
    #: until when a URL works that was replaced; None: it is the present one
    expires_ms: int | None = None

    @property
    def id(self) -> str:
        """Names the URL in runs, logs and responses; the token does not follow from it."""
        return self.hash[:6].hex()


class HookStore(Protocol):
    """The part of a store that holds trigger URLs."""

    async def hook(self, hash: bytes) -> HookRow | None:
        """Return the URL of that hash, unless it has expired or its job is deleted."""
        ...

    async def hooks_of_job(self, job_id: str) -> list[HookRow]:
        """Return the URLs of a job that work, the newest first."""
        ...

    async def replace_hook(
        self,
        row: HookRow,
        until_ms: int,
        entries: Callable[[HookRow | None], Sequence[AuditEntry]],
        version: int | None = None,
        keyed: Keyed[tuple[bool, HookRow | None]] | None = None,
        charge: ChargeRule | None = None,
    ) -> tuple[bool, HookRow | None]:
        """Add this URL to its job. The one before it works until `until_ms`; older ones are deleted.

        Returns whether the job exists, and the URL that was replaced, which `entries` gets. The change of the
        job is published. FailedPrecondition: the job is not at this version. `charge` is as in `create_jobs`.
        """
        ...

    async def delete_hooks(
        self, job_id: str, entries: Sequence[AuditEntry] = (), version: int | None = None
    ) -> bool:
        """Delete all URLs of a job. Returns whether there was one. The change of the job is published.

        FailedPrecondition: the job is not at this version.
        """
        ...

    async def prune_hooks(self, now_ms: int) -> int:
        """Delete URLs that have expired or whose job is deleted. Returns how many."""
        ...
