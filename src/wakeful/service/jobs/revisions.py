"""Read the revisions of a job, and restore one."""

from __future__ import annotations

import asyncio

from wakeful.errors import FailedPrecondition, NotFound
from wakeful.job.job import StaleJob
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.job_editor import JobDependencies, JobEditor, JobGone, look_again
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.revision_rules import (
    Revision,
    document_of,
    lost_credentials,
    restoring_patch,
    revisions_of,
)
from wakeful.store.row_mapping import job_from_row


class JobRevisions:
    """The revisions of jobs."""

    def __init__(self, dependencies: JobDependencies, editor: JobEditor) -> None:
        self._store = dependencies.store
        self._editor = editor

    async def list(self, principal: Principal, workspace: str, agent: str, name: str) -> list[Revision]:
        """Return the revisions of a job, the current one first, with who made each and what it changed."""
        row = await self._editor.find_row(principal, "read", workspace, agent, name)
        # In a thread: there are up to 50 documents, each with a payload.
        return await asyncio.to_thread(revisions_of, job_from_row(row), await self._store.revisions(row.id))

    async def restore(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        revision: int,
        *,
        version: int | None = None,
    ) -> SaveResult:
        """Give a job the fields of an earlier revision: an edit, which is a new revision.

        Its pause and its secret stay. With `version`, only if the job is still at that version.
        FailedPrecondition: the fields had credentials, which are not kept.
        """

        async def restore() -> SaveResult:
            return await self._restore(principal, workspace, agent, name, revision, version)

        return await look_again(restore)

    async def _restore(
        self, principal: Principal, workspace: str, agent: str, name: str, revision: int, version: int | None
    ) -> SaveResult:
        job = job_from_row(await self._editor.find_row(principal, "job.write", workspace, agent, name))
        found = revisions_of(job, await self._store.revisions(job.id))
        wanted = next((each for each in found if each.version == revision), None)
        if wanted is None:
            raise NotFound(
                f"job '{job.name}' has no revision {revision}; list its revisions to see their numbers"
            )
        patch = restoring_patch(document_of(job.definition), wanted.document)
        lost = lost_credentials(patch)
        if lost:
            raise FailedPrecondition(
                f"revision {revision} had credentials in its {' and '.join(lost)}, which are not kept; edit "
                f"the job instead"
            )
        expected = job.version if version is None else version
        try:
            return await self._editor.update(principal, workspace, agent, job.id, patch, version=expected)
        except StaleJob as error:
            if version is not None:
                raise
            raise JobGone(error.message) from error  # changed meanwhile: what the patch must contain, too
