"""Days, runs and ticks on the page of a job."""

from __future__ import annotations

from typing import Any

from wakeful.dashboard import charts
from wakeful.dashboard.pages.job import (
    DAY_MS,
    SLOTS,
    costs,
    day_bars,
    day_items,
    delays,
    durations,
    run_bars,
    tick_items,
)
from wakeful.dashboard.run_items import run_item, run_items
from wakeful.service.runs.run_details import RunView

NOW = 20_000 * DAY_MS + 3_600_000


def run(number: int = 1, **fields: Any) -> RunView:
    view = RunView(
        id=f"0190a0b0-0000-7000-8000-{number:012x}", job_id=None, workspace="default", agent="default",
        job_name="digest", scheduled_ms=NOW, fire_ms=NOW, trigger="schedule", triggered_by=None,
        state="succeeded", reason=None, covers=1, until_ms=None, attempt=1, worker="w1", lane="cron",
        due_ms=None, started_ms=NOW + 5, finished_ms=NOW + 105, idempotency_key="key", replay_of=None,
        payload=None, output="done", error=None, usage=None, dead=False, created_ms=NOW,
    )  # fmt: skip
    return view._replace(**fields)


def test_days_without_runs_are_shown_too() -> None:
    days = day_items([(19_999, "succeeded", 3, 300), (19_999, "failed", 1, 100)], NOW, 3)
    assert [(day.at_ms // DAY_MS, day.counts, day.mean_ms) for day in days] == [
        (19_998, {}, None),
        (19_999, {"succeeded": 3, "failed": 1}, 100),
        (20_000, {}, None),
    ]
    bars = day_bars(days, lambda since, until: f"/runs?since={since}&until={until}")
    assert [bar.title for bar in bars] == [
        "2024-10-02: no runs",
        "2024-10-03: 1 failed, 3 succeeded",
        "2024-10-04: no runs",
    ]
    assert [bar.href is None for bar in bars] == [True, False, True]


def test_a_single_failure_among_many_runs_is_visible_in_the_strip() -> None:
    bars = day_bars(day_items([(20_000, "succeeded", 100_000, 1), (20_000, "failed", 1, 1)], NOW, 1), _link)
    svg = str(charts.day_strip(bars, height=40, label="Days"))
    assert 'y="0.0" width="10.0" height="3.0" rx="1.5" class="fill-failed"' in svg
    assert 'y="3.0" width="10.0" height="37.0" rx="1.5" class="fill-succeeded"' in svg
    assert 'aria-label="Days"' in svg


def _link(since: int, until: int) -> str:
    return f"/runs?since={since}&until={until}"


def test_texts_in_charts_are_escaped() -> None:
    svg = str(charts.day_strip([charts.DayBar({"failed": 1}, '"><script>', "/a?b&c")], label="<b>"))
    assert "<script>" not in svg
    assert "<b>" not in svg


def test_figures_of_the_last_runs_are_oldest_first_with_their_percentiles() -> None:
    runs = [run(number, finished_ms=NOW + 5 + number) for number in range(20, 0, -1)]
    found = durations(run_items(runs, NOW))
    assert found.values[: SLOTS - 20] == [0.0] * (SLOTS - 20)
    assert found.values[SLOTS - 20 :] == [float(number) for number in range(1, 21)]
    assert (found.p50, found.p95) == (10.0, 19.0)
    assert len(found.values) == len(found.titles) == SLOTS


def test_runs_without_a_value_are_left_out() -> None:
    items = run_items(
        [
            run(3, usage='{"cost":0.5}'),
            run(2, state="skipped", started_ms=None),
            run(1, attempt=3, failed_attempts=2),
        ],
        NOW,
    )
    assert [value for value in costs(items).values if value] == [0.5]
    assert [value for value in delays(items).values if value] == [5.0]
    assert costs(items[1:]).p50 is None


def test_the_bars_of_runs_are_oldest_first() -> None:
    bars = run_bars(run_items([run(2, state="failed"), run(1)], NOW), lambda run_id: f"/runs/{run_id}")
    assert [bar.state for bar in bars] == ["succeeded", "failed"]
    assert bars[0].title.startswith("Succeeded 2024-10-04")


def test_a_running_run_has_its_duration_so_far() -> None:
    item = run_item(run(state="running", finished_ms=None, started_ms=NOW - 2_000), NOW)
    assert (item.duration_ms, item.state) == (2_000, "running")


def test_a_verifying_run_has_its_own_state() -> None:
    view = run(state="running", finished_ms=None, awaiting_callback=True, verifying_attempt=1)
    assert run_item(view, NOW).state == "verifying"
    of_schema_17 = view._replace(verifying_attempt=None, worker="verifying")
    assert run_item(of_schema_17, NOW).state == "verifying"
    assert run_item(view._replace(attempt=2), NOW).state == "running", "the next attempt"


def test_clock_changes_are_marked_in_both_directions() -> None:
    autumn = 1_792_890_000_000  # 2026-10-25 01:00 UTC: clocks go back in Berlin
    ticks = tick_items([autumn - 1_000, autumn, autumn + DAY_MS], "Europe/Berlin", autumn - DAY_MS)
    assert [tick.mark for tick in ticks] == ["", "clocks go back 1 h before it", ""]
    assert ticks[1].text.endswith("02:00:00 CET")
