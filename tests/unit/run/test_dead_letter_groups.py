"""Dead letters by job and cause."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wakeful.run.dead_letter_groups import DeadLetterRow, DeadLetterSelection, group_dead_letters

_LETTERS = st.lists(
    st.builds(
        DeadLetterRow,
        id=st.uuids().map(str),
        agent=st.sampled_from(["a", "b"]),
        job_id=st.sampled_from([None, "j1", "j2"]),
        job_name=st.just("digest"),
        reason=st.sampled_from([None, "http", "timeout"]),
        response_code=st.sampled_from([None, 500, 503]),
        error=st.sampled_from([None, "HTTP 503", "run 17 failed", "run 18 failed"]),
        finished_ms=st.integers(0, 1_000),
    ),
    unique_by=lambda letter: letter.id,
)


def _letter(run_id: str = "1", **fields: Any) -> DeadLetterRow:
    return DeadLetterRow(run_id, "a", "j1", "digest", None, None, "refused", 5)._replace(**fields)


def test_failures_that_differ_in_numbers_are_one_group() -> None:
    (group,) = group_dead_letters(
        [
            _letter("1", error="order 17 was refused", finished_ms=5),
            _letter("2", error="order 18 was refused", finished_ms=9),
        ]
    )
    assert (group.cause, group.runs, group.first_ms, group.last_ms) == ("order # was refused", 2, 5, 9)
    assert (group.newest_id, group.error) == ("2", "order 18 was refused")


def test_another_job_agent_or_cause_is_another_group() -> None:
    letters = [
        _letter("1"), _letter("2", job_id="j2"), _letter("3", agent="b"), _letter("4", error="timed out"),
    ]  # fmt: skip
    assert len(group_dead_letters(letters)) == 4


def test_the_group_with_the_newest_failure_is_first() -> None:
    letters = [_letter("1", finished_ms=9), _letter("2", error="timed out", finished_ms=7)]
    assert [group.last_ms for group in group_dead_letters(letters)] == [9, 7]


def test_an_empty_job_selects_runs_without_a_job() -> None:
    selection = DeadLetterSelection(job="")
    assert selection.includes(_letter(job_id=None, job_name=None))
    assert not selection.includes(_letter())


def test_a_job_is_selected_by_id_or_name() -> None:
    for job, expected in (("j1", True), ("digest", True), ("j2", False)):
        assert DeadLetterSelection(job=job).includes(_letter()) is expected


@given(_LETTERS)
def test_each_letter_is_in_exactly_the_group_whose_selection_includes_it(
    letters: list[DeadLetterRow],
) -> None:
    groups = group_dead_letters(letters)
    assert sum(group.runs for group in groups) == len(letters)
    for group in groups:
        job = group.job_id if group.job_id is not None else ""
        selection = DeadLetterSelection(group.agent, job, group.cause)
        chosen = [letter for letter in letters if selection.includes(letter)]
        assert len(chosen) == group.runs
        assert all(letter.cause == group.cause for letter in chosen)
        assert max(letter.id for letter in chosen) == group.newest_id
