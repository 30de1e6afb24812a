"""ETags: the ETag of a job is its version, which increases with every edit.

`If-Match` guards a change against concurrent changes; `If-None-Match` avoids sending a known job again, and
with `*` lets a PUT only create.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Header
from starlette.responses import Response

from wakeful.api.http.dependencies import WorkspaceDep, WorkspaceRequest
from wakeful.api.http.problems import Malformed, Stale
from wakeful.api.http.responses import JsonResponse
from wakeful.errors import FailedPrecondition, NotFound
from wakeful.job.job import JobRecord
from wakeful.model.codec import JsonObject
from wakeful.service.auth.access import Principal

T = TypeVar("T")

_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_TAGS: Final = re.compile(rf"\s*{_TAG.pattern}(?:\s*,\s*{_TAG.pattern})*\s*")

IfMatch = Annotated[
    str | None, Header(description='Only if the job is still at this version, the value of its ETag: `"3"`.')
]
IfNoneMatch = Annotated[str | None, Header(description="Only if the job has changed since this ETag.")]
CreateOnly = Annotated[str | None, Header(description="`*`: only create; refuse to change an existing job.")]


def etag(version: int | str) -> str:
    """Return the ETag of a version.

    >>> etag(3)
    '"3"'
    """
    return f'"{version}"'


def matches(header: str, version: int | str, *, weak: bool = False) -> bool:
    """Return whether a header of ETags includes this version; Malformed if it is not valid.

    >>> matches('"2", "3"', 3), matches("*", 3), matches('W/"3"', 3), matches('W/"3"', 3, weak=True)
    (True, True, False, True)
    """
    if header.strip() == "*":
        return True
    if not _TAGS.fullmatch(header):
        raise Malformed('an ETag is a version in quotes, such as "3"; several are separated by commas')
    tags = _TAG.findall(header)
    return etag(version) in ([tag.removeprefix("W/") for tag in tags] if weak else tags)


def check_match(header: str | None, job: JobRecord) -> None:
    """Raise Stale if the job is at another version than `If-Match` names."""
    if header is not None and not matches(header, job.version):
        raise Stale(
            f"job '{job.name}' has changed: it is at version {job.version}, not {header.strip()[:64]}; "
            "read it again"
        )


@dataclass(frozen=True, slots=True)
class JobRequest(WorkspaceRequest):
    """A request about one job, with its `If-Match` header."""

    agent: str
    name: str
    if_match: str | None

    @property
    def job(self) -> tuple[Principal, str, str, str]:
        """The first arguments of a service call about the job."""
        return self.principal, self.workspace, self.agent, self.name

    async def perform(
        self,
        operation: Callable[..., Awaitable[T]],
        *,
        missing: type[Exception] = NotFound,
        **options: object,
    ) -> T:
        """Perform the operation if `If-Match` holds; raise Stale (412) if it does not.

        `operation` takes the `version` that the job must still have; None is any. `missing` is raised if
        `If-Match` is given and the job does not exist.
        """
        if self.if_match is None:
            return await operation(version=None, **options)
        version = await self._matching_version(self.if_match, missing)
        try:
            return await operation(version=version, **options)
        except (FailedPrecondition, NotFound):
            # If the job changed since it was read, that is the reason to report.
            await self._matching_version(self.if_match, missing)
            raise

    async def _matching_version(self, if_match: str, missing: type[Exception]) -> int | None:
        """Return the version that the job must still have; None: any. Raise Stale if it has another."""
        try:
            job = await self.services.jobs.get(*self.job)
        except NotFound as error:
            raise missing(error.message) from error
        check_match(if_match, job)
        return None if if_match.strip() == "*" else job.version

    def job_response(self, content: JsonObject, version: int) -> Response:
        """Return the job as JSON, with its ETag."""
        return JsonResponse(content, headers={"ETag": etag(version)})


async def _job_request(about: WorkspaceDep, agent: str, name: str, if_match: IfMatch = None) -> JobRequest:
    return JobRequest(about.request, about.services, *about.caller, agent, name, if_match)


#: A request about one job.
JobRequestDep = Annotated[JobRequest, Depends(_job_request)]
