"""What becomes of runs that are added to mailboxes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import MINUTE, NOW
from tests.support.instances import arrival, key_of
from wakeful.errors import FailedPrecondition, ResourceExhausted
from wakeful.run.run import NewRun
from wakeful.store.mailbox_rules import Admission, Mailbox, admit

EU = key_of()


def _admit(runs: list[NewRun], *, strict: bool = True, **fields: Any) -> Admission:
    return admit(runs, {EU: Mailbox()._replace(**fields)}, NOW, strict=strict)


def _exposed(admission: Admission) -> list[str]:
    return [run.id for run, _ in admission.runs if run.due_ms is not None]


def test_runs_get_numbers_in_their_order_and_the_first_is_exposed() -> None:
    runs = [arrival().run for _ in range(3)]
    admission = _admit(runs, sequence=7, version=2)
    assert [(run.id, number) for run, number in admission.runs] == [
        (runs[0].id, 8), (runs[1].id, 9), (runs[2].id, 10),
    ]  # fmt: skip
    assert (_exposed(admission), admission.hidden, admission.sequences) == ([runs[0].id], [], {EU: 10})
    assert admission.runs[0][0].requires_version == 2


def test_the_run_that_is_due_first_is_exposed() -> None:
    late, soon = arrival(delay_ms=MINUTE).run, arrival().run
    assert _exposed(_admit([late, soon])) == [soon.id]


@pytest.mark.parametrize("fields", [{"busy": True}, {"status": "paused"}, {"status": "blocked"}])
def test_nothing_is_exposed_in_a_busy_mailbox_or_of_an_inactive_instance(fields: dict[str, Any]) -> None:
    assert _exposed(_admit([arrival().run], **fields)) == []


def test_a_run_that_comes_before_the_exposed_one_takes_its_place() -> None:
    run = arrival().run
    admission = _admit([run], exposed_ms=NOW + 1)
    assert (_exposed(admission), admission.hidden) == ([run.id], [EU])
    after = _admit([run], exposed_ms=NOW)  # equally due: the older one is first
    assert (_exposed(after), after.hidden) == ([], [])


def test_a_full_mailbox_and_a_stopped_instance_refuse_or_skip() -> None:
    runs = [arrival().run for _ in range(3)]
    with pytest.raises(ResourceExhausted, match="2 signals may wait"):
        _admit(runs, limit=2)
    skipped = _admit(runs, limit=2, strict=False)
    assert [(run.state, run.reason, number) for run, number in skipped.runs] == [
        ("pending", None, 1), ("pending", None, 2), ("skipped", "mailbox_full", None),
    ]  # fmt: skip
    assert skipped.sequences == {EU: 2}
    with pytest.raises(FailedPrecondition, match="is stopped; start it"):
        _admit(runs, status="stopped")
    stopped = _admit(runs, status="stopped", strict=False)
    assert {(run.state, run.reason) for run, _ in stopped.runs} == {("skipped", "stopped")}
    assert stopped.sequences == {}


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(0, 5)),
    st.booleans(),
    st.integers(0, 4),
)
def test_at_most_one_run_is_exposed_and_none_comes_before_it(
    delays: list[int], exposed: int | None, busy: bool, room: int
) -> None:
    runs = [arrival(delay_ms=delay).run for delay in delays]
    mailbox = Mailbox(
        waiting=3, limit=3 + room, busy=busy, exposed_ms=None if busy or exposed is None else NOW + exposed
    )
    admission = admit(runs, {EU: mailbox}, NOW, strict=False)
    found = [run for run, _ in admission.runs if run.due_ms is not None]
    entered = [(run.fire_ms, number) for run, number in admission.runs if number is not None]
    due = sum(delay == 0 for delay in delays)
    assert len(entered) == len(runs) - due + min(due, room)
    assert len(found) <= (0 if busy else 1)
    for run in found:
        assert run.fire_ms == min(entered)[0]
        assert (mailbox.exposed_ms is not None) == (admission.hidden == [EU])
    if not found and entered and not busy:
        assert mailbox.exposed_ms is not None
        assert mailbox.exposed_ms <= min(entered)[0]
