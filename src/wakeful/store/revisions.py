"""Revisions of jobs: what a job was before each change of its definition.

- `job_revisions`: one row for each change, written in its transaction (`JobChange.revision`). Pauses and new
  jobs add none. A job keeps the newest `MAX_REVISIONS`; the rows go with the row of the job.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

#: The most revisions that a job keeps.
MAX_REVISIONS: Final = 50


class NewRevision(NamedTuple):
    """What a change of the definition of a job records."""

    #: compact JSON of the document before the change, without credentials
    document: str
    #: compact JSON of the names of the changed fields
    fields: str
    #: who changed it: `role:actor`
    by: str


class RevisionRow(NamedTuple):
    """A stored revision."""

    #: the version of the job before the change
    version: int
    document: str
    fields: str
    replaced_ms: int
    replaced_by: str


class RevisionStore(Protocol):
    """The part of a store that holds revisions of jobs."""

    async def revisions(self, job_id: str) -> list[RevisionRow]:
        """Return the revisions of a job, newest first."""
        ...
