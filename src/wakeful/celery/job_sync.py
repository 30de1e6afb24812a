"""Brings the jobs of a beat schedule into agreement with its entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.app import Wakeful
from wakeful.celery.entries import LABEL, unusable
from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.job import Json
from wakeful.logs import get_logger
from wakeful.service.auth.access import LOCAL

#: Another beat that starts at the same time may write the same job.
_TRIES: Final = 3

log = get_logger("wakeful.celery")


async def sync_jobs(
    app: Wakeful, workspace: str, agent: str, app_name: str, documents: Mapping[str, Mapping[str, Json]]
) -> None:
    """Save the documents (by entry), and delete jobs of this app whose entry is gone.

    All documents are checked before one is saved. Pauses, anchors and the history of jobs stay. Raises
    InvalidArgument that names every entry that cannot be saved.
    """
    service = app.services.jobs
    existing = {job.name: dict(job.labels) for job in await app.jobs.list()}
    problems: list[tuple[str, str]] = []
    for entry, document in documents.items():
        name = str(document["name"])
        if name in existing and existing[name].get(LABEL) != app_name:
            owner = existing[name].get(LABEL)
            whose = f"the app '{owner}' has" if owner else "there is"
            problems.append((entry, f"{whose} a job '{name}' already; rename the entry, or delete the job"))
            continue
        try:
            await service.upsert(LOCAL, workspace, agent, document, dry_run=True)
        except InvalidArgument as error:
            problems.append((entry, error.message))
    if problems:
        raise unusable(problems)
    for document in documents.values():
        await _save(app, workspace, agent, document)
    wanted = {str(document["name"]) for document in documents.values()}
    gone = [name for name, labels in existing.items() if labels.get(LABEL) == app_name and name not in wanted]
    for name in gone:
        try:
            await service.delete(LOCAL, workspace, agent, name)
        except NotFound:  # another beat deleted it
            continue
        log.info("celery.entry_removed", job=name, agent=agent, workspace=workspace)
    log.info("celery.schedule_saved", count=len(documents), removed=len(gone), db_agent=agent)


async def _save(app: Wakeful, workspace: str, agent: str, document: Mapping[str, Json]) -> None:
    for tries in range(1, _TRIES + 1):
        try:
            await app.services.jobs.upsert(LOCAL, workspace, agent, document)
            return
        except (AlreadyExists, FailedPrecondition):
            if tries == _TRIES:
                raise
