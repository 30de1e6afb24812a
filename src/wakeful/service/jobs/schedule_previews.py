"""Preview a schedule before a job is saved: in words, its next ticks, and its load peak. Changes nothing.

A preview reads the schedule as the creation of a job does, so it has the same errors. The number of ticks and
the search for each are bounded, and excluded days are computed in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.document import read_definition
from wakeful.document.definition import schedule_text
from wakeful.document.fields import TIMING
from wakeful.engine.calendar_loader import excludes_something, off_loop
from wakeful.errors import InvalidArgument
from wakeful.forecast.preview import PeakAdvice, SchedulePreview, peak_advice, preview_ticks
from wakeful.job.job import Definition, JobRecord, check_slug, choose_anchor
from wakeful.service.admin.peaks import WeekCache
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.jobs.job_query import find_job, no_job
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.values.bounded_cache import bypass
from wakeful.values.json_value import Json, whole_number

#: The fields of a job that a preview reads.
FIELDS: Final = ("cron", "tz", "after", "jitter", "jitterMs", *(field.name for field in TIMING))
DEFAULT_TICKS: Final = 10
MAX_TICKS: Final = 50
#: The name of a job that has none yet.
_UNNAMED: Final = "preview"


class PreviewedSchedule(NamedTuple):
    """A schedule, its next ticks, and the load at the first of them."""

    definition: Definition
    #: the schedule as people write it; None: there is only `after`
    text: Json
    #: the zone of the schedule
    tz: str
    ticks: SchedulePreview
    peak: PeakAdvice | None


class SchedulePreviews:
    """Previews schedules."""

    def __init__(self, store: Store, accounts: Accounts, weeks: WeekCache) -> None:
        self._store = store
        self._accounts = accounts
        self._weeks = weeks

    async def preview(
        self, principal: Principal, workspace: str, document: Mapping[str, object]
    ) -> PreviewedSchedule:
        """Return the preview of the fields of a job that determine its ticks.

        `agentId` gives the default zone. `job` names the job that the schedule is for: an unchanged interval
        keeps its anchor, and a time that is over stays valid.
        """
        agent = document.get("agentId") or principal.agent or "default"
        agent = check_slug(agent if isinstance(agent, str) else "", "agentId")
        await self._accounts.authorize(principal, "read", workspace, agent)
        count = _count(document.get("count"))
        old = await self._job(workspace, agent, document.get("job"))
        context = await self._accounts.context(workspace, agent)
        now_ms = self._store.clock.now_ms()

        def compute() -> PreviewedSchedule:
            with bypass():  # the caches are for the timings of saved jobs
                return _preview(document, old, context, now_ms, count)

        found = await off_loop(compute) if excludes_something(document) else compute()
        timing = found.definition.timing
        if timing is None or not found.ticks.ticks or found.definition.policy.jitter_ms:
            return found
        week = self._weeks.known(workspace)
        if week is None:
            return found
        return found._replace(peak=peak_advice(week, timing, found.ticks.ticks[0].at_ms))

    async def _job(self, workspace: str, agent: str, name: object) -> JobRecord | None:
        if name is None:
            return None
        row = await find_job(self._store, workspace, agent, name) if isinstance(name, str) else None
        if row is None:
            raise no_job(str(name)[:64])
        return job_from_row(row)


def _preview(
    document: Mapping[str, object], old: JobRecord | None, context: JobContext, now_ms: int, count: int
) -> PreviewedSchedule:
    given = {name: document[name] for name in FIELDS if name in document}
    definition = read_definition(
        {**given, "name": old.name if old else _UNNAMED},
        now_ms=now_ms,
        defaults=context.defaults,
        old=old.definition if old else None,
    )
    timing = definition.timing
    if timing is None:
        return PreviewedSchedule(definition, None, context.defaults.tz, SchedulePreview((), ()), None)
    tz = timing.schedule.tz or "UTC"
    form: dict[str, Json] = {**timing.schedule.to_json()}  # type: ignore[dict-item]
    ticks = preview_ticks(timing, choose_anchor(definition, now_ms, old), now_ms, count)
    return PreviewedSchedule(definition, schedule_text(form, tz), tz, ticks, None)


def _count(value: object) -> int:
    if value is None:
        return DEFAULT_TICKS
    count = whole_number(value)
    if count is None or not 1 <= count <= MAX_TICKS:
        raise InvalidArgument(f"count: give a whole number from 1 to {MAX_TICKS}")
    return count
