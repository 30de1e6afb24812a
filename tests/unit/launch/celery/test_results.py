"""What the state of a task means for its run."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful.launch.celery.results import task_report


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (None, None),
        ("done", "done"),
        (3, "3"),
        ({"a": [1]}, '{"a":[1]}'),
        (float("nan"), "nan"),
        ({1}, "{1}"),
    ],
)
def test_the_result_of_a_task_is_the_output_of_its_run(result: object, output: str | None) -> None:
    report = task_report("r1", 2, {"status": "SUCCESS", "result": result})
    assert (report.run_id, report.attempt, report.status, report.output) == ("r1", 2, "succeeded", output)


@pytest.mark.parametrize(
    ("result", "error", "reason"),
    [
        ({"exc_type": "ValueError", "exc_message": ["bad", 3]}, "ValueError: bad 3", None),
        ({"exc_type": "KeyError", "exc_message": "x"}, "KeyError: x", None),
        ({"exc_type": "Exception", "exc_message": []}, "Exception", None),
        ({"exc_type": "WorkerLostError", "exc_message": ["signal 9"]}, "WorkerLostError: signal 9", "lost"),
        (ValueError("bad"), "ValueError: bad", None),
        (None, "the task failed", None),
    ],
)
def test_a_failure_names_the_exception(result: object, error: str, reason: str | None) -> None:
    report = task_report("r1", 1, {"status": "FAILURE", "result": result, "traceback": "x" * 5_000})
    assert (report.status, report.error, report.reason, report.permanent) == ("failed", error, reason, False)
    assert report.output == "x" * 2_000


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise KeyError("an attribute is missing")

    __repr__ = __str__


@pytest.mark.parametrize(("status", "result"), [("SUCCESS", {_Unprintable()}), ("FAILURE", _Unprintable())])
def test_a_result_that_cannot_be_printed_ends_its_run(status: str, result: object) -> None:
    report = task_report("r1", 1, {"status": status, "result": result})
    assert (report.status, report.permanent, report.reason) == ("failed", True, "bad_response")
    assert "KeyError: 'an attribute is missing'" in str(report.error)


def test_permanent_in_a_task_prevents_a_retry() -> None:
    result = {"exc_type": "Permanent", "exc_message": ["no such user"], "exc_module": "wakeful.errors"}
    assert task_report("r1", 1, {"status": "FAILURE", "result": result}).permanent


def test_a_revoked_task_fails_without_a_retry() -> None:
    meta: dict[str, Any] = {
        "status": "REVOKED",
        "result": {"exc_type": "TaskRevokedError", "exc_message": ["expired"]},
    }
    report = task_report("r1", 1, meta)
    assert (report.error, report.permanent, report.reason) == (
        "the task was revoked (expired)",
        True,
        "revoked",
    )


@pytest.mark.parametrize("status", ["STARTED", "RETRY", "RECEIVED", "PROGRESS"])
def test_other_states_are_progress(status: str) -> None:
    assert task_report("r1", 1, {"status": status, "result": {"done": 3}}).status == "running"
