"""When to ask for the result of a task."""

from __future__ import annotations

from wakeful.launch.celery.results import LONGEST_S, SHORTEST_S, Awaited, Tracker

TASK = Awaited("r1", 1, "key-1")


def test_a_new_task_is_asked_for_at_once_and_an_old_one_seldom() -> None:
    tracker = Tracker()
    tracker.add(TASK, 0.0, own=True)
    assert tracker.next_due() == SHORTEST_S
    tracker.record_query("key-1", 20.0, None)
    assert tracker.next_due() == 22.0
    tracker.record_query("key-1", 3_600.0, None)
    assert tracker.next_due() == 3_600.0 + LONGEST_S


def test_a_state_is_new_once() -> None:
    tracker = Tracker()
    tracker.add(TASK, 0.0, own=False)
    sightings = [
        tracker.record_query("key-1", now, state) for now, state in enumerate((None, b"a", b"a", b"b"))
    ]
    assert [each.changed for each in sightings if each] == [False, True, False, True]
    tracker.forget_state("key-1")
    last = tracker.record_query("key-1", 9.0, b"b")
    assert last is not None
    assert last.changed


def test_the_task_of_another_process_becomes_our_own_if_we_take_it_over() -> None:
    tracker = Tracker()
    tracker.add(TASK, 0.0, own=False)
    tracker.add(TASK, 5.0, own=True)
    tracker.add(TASK, 6.0, own=False)
    sighting = tracker.record_query("key-1", 7.0, b"a")
    assert sighting is not None
    assert sighting.own


def test_tasks_that_are_not_awaited_in_the_database_are_missing() -> None:
    tracker = Tracker()
    tracker.add(TASK, 0.0, own=True)
    tracker.add(Awaited("r2", 1, "other-1"), 0.0, own=True)
    tracker.add(Awaited("r3", 1, "new-1"), 8.0, own=True)
    assert tracker.missing({"other-1"}, before=5.0) == [TASK]
    tracker.drop("key-1")
    assert tracker.missing({"other-1"}, before=5.0) == []
    assert tracker.record_query("key-1", 9.0, b"a") is None
