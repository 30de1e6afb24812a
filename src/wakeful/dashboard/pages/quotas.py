"""Quotas: limits with their use; operators set them."""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.service.admin.limits import BUCKETS, CREATE_JOB, INSTANCES, LIVE_JOBS

router = page_router()

_SHOWN: Final = 500
#: The words for the buckets.
WORDS: Final = {
    CREATE_JOB: "Jobs created today",
    LIVE_JOBS: "Jobs that exist",
    INSTANCES: "Instances that exist",
}


class QuotaItem(NamedTuple):
    """A bucket as the page shows it."""

    agent: str | None
    bucket: str
    label: str
    used: int
    #: the limit that applies; None: no limit
    limit: int | None
    #: whether it is set for this owner, or the installation's default
    is_set: bool


@router.get("/quotas")
async def quotas(page: PageDep) -> Response:
    """List limits and use."""
    found = await page.services.quotas.list(page.principal, page.workspace)
    defaults = page.services.quotas.defaults
    items = [
        QuotaItem(
            row.agent or None,
            row.bucket,
            WORDS[row.bucket],
            row.used,
            defaults.get((row.bucket, bool(row.agent))) if row.limit is None else row.limit,
            row.limit is not None,
        )
        for row in found
    ]
    items.sort(key=lambda each: (each.agent is not None, -_share(each), each.agent or "", each.bucket))
    return page.render(
        "quotas.html",
        title="Quotas",
        active="quotas",
        items=items[:_SHOWN],
        more=max(0, len(items) - _SHOWN),
        buckets=[[bucket, WORDS[bucket]] for bucket in BUCKETS],
        may_set=page.may("operate"),
    )


def _share(item: QuotaItem) -> float:
    return item.used / item.limit if item.limit else 0.0
