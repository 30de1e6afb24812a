"""ETags: a job's is its version, which goes up with every edit, and not with the passing of time.

`If-Match` guards a change or an action against somebody else's change; `If-None-Match` saves sending what is
known, and with `*` lets a PUT only create.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

from fastapi import Header

from wakeful.api.http.problems import Malformed, Stale
from wakeful.errors import FailedPrecondition, NotFound
from wakeful.job import JobRecord
from wakeful.service.auth.access import Principal
from wakeful.service.services import Services

T = TypeVar("T")

_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_TAGS: Final = re.compile(rf"\s*{_TAG.pattern}(?:\s*,\s*{_TAG.pattern})*\s*")

IfMatch = Annotated[
    str | None, Header(description='Only if the job is still at this version, as its ETag says: `"3"`.')
]
IfNoneMatch = Annotated[str | None, Header(description="Only if the job has changed since this ETag.")]
CreateOnly = Annotated[str | None, Header(description="`*`: only create, and change nothing that is there.")]


def etag(version: int) -> str:
    """The tag of a version.

    >>> etag(3)
    '"3"'
    """
    return f'"{version}"'


def matches(header: str, version: int, *, weak: bool = False) -> bool:
    """Whether a header of tags names this version; Malformed where it is none.

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
    """Refuse a change that was made up for another version of the job."""
    if header is not None and not matches(header, job.version):
        raise Stale(
            f"job '{job.name}' has changed: it is at version {job.version}, not {header.strip()[:64]}; "
            "read it again"
        )


async def guarded(
    services: Services,
    principal: Principal,
    workspace: str,
    agent: str,
    name: str,
    header: str | None,
    act: Callable[[int | None], Awaitable[T]],
    *,
    missing: type[Exception] | None = None,
) -> T:
    """Act on a job, if `If-Match` holds; Stale (412) where it does not.

    `act` is given the version that the job must still have when it is changed; None: any. `missing` is raised
    in place of NotFound where there is no such job.
    """
    if header is None:
        return await act(None)
    try:
        job = await services.jobs.get(principal, workspace, agent, name)
    except NotFound as error:
        if missing is None:
            raise
        raise missing(error.message) from error
    check_match(header, job)
    try:
        return await act(None if header.strip() == "*" else job.version)
    except (FailedPrecondition, NotFound):
        # The job may have changed since it was read: then that is the reason, and no other.
        check_match(header, await services.jobs.get(principal, workspace, agent, name))
        raise
