"""What the status of a Job and its pods means."""

from __future__ import annotations

from typing import Any

from wakeful.launch.port import MAX_OUTPUT
from wakeful.remote.kubernetes.states import (
    AttemptKey,
    JobCompletion,
    JobView,
    current_attempts,
    failure,
    job_end,
    job_view,
    log_tail,
    newest_pod,
    outdated_jobs,
    stuck_reason,
)

FAILED = JobCompletion(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def pod(state: dict[str, Any], init: dict[str, Any] | None = None, **status: object) -> dict[str, Any]:
    found: dict[str, Any] = {"containerStatuses": [{"name": "work", "state": state}], **status}
    if init is not None:
        found["initContainerStatuses"] = [{"name": "prepare", "state": init}]
    return {"metadata": {"name": "p"}, "status": found}


def condition(kind: str, status: str = "True", **fields: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status, **fields}]}}


def test_only_the_last_condition_of_a_job_is_its_end():
    assert job_end(condition("Complete")) == JobCompletion(True)
    assert job_end(condition("Failed", reason="DeadlineExceeded", message="long")) == JobCompletion(
        False, "DeadlineExceeded", "long"
    )
    assert job_end(condition("Failed")) == JobCompletion(False, "Failed")
    # The pods of a Job may still run after these.
    for earlier in ("FailureTarget", "SuccessCriteriaMet", "Suspended"):
        assert job_end(condition(earlier)) is None
    assert job_end(condition("Failed", "False")) is None
    assert job_end({}) is None


def test_the_error_is_the_exit_code_and_reason_of_the_first_failed_container():
    failed = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no disk\n"}}
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert failure(FAILED, [pod(failed)]) == "exit code 3 (Error): no disk"
    assert failure(FAILED, [pod({"waiting": {}}, init=failed)]) == "exit code 3 (Error): no disk"
    assert failure(FAILED, [pod(failed, init=done)]) == "exit code 3 (Error): no disk"
    assert (
        failure(FAILED, [pod(failed, reason="Evicted", message="low on memory")]) == "Evicted: low on memory"
    )


def test_without_a_failed_container_the_error_is_that_of_the_job():
    assert failure(FAILED, []) == f"{FAILED.reason}: {FAILED.message}"
    killed = {"terminated": {"exitCode": 143, "reason": "Error"}}
    assert failure(JobCompletion(False, "DeadlineExceeded"), [pod(killed)]) == "DeadlineExceeded"


def test_a_pod_that_is_being_created_is_not_stuck():
    assert stuck_reason([]) is None
    assert stuck_reason([pod({"waiting": {"reason": "ContainerCreating"}})]) is None
    assert stuck_reason([pod({"running": {}})]) is None
    assert stuck_reason([{"metadata": {}, "status": {"phase": "Pending"}}]) is None
    assert stuck_reason([pod({"waiting": {"reason": "InvalidImageName"}})]) == "InvalidImageName"
    assert stuck_reason([pod({}, init={"waiting": {"reason": "ErrImagePull"}})]) == "ErrImagePull"


def test_the_output_is_the_end_of_a_log_without_a_divided_character():
    assert log_tail(b"") == ""
    text = log_tail(("é" * MAX_OUTPUT + "x\n").encode())
    assert text.endswith("éx")
    assert len(text.encode()) <= MAX_OUTPUT
    assert "�" not in text


def test_the_newest_pod_has_the_output():
    pods = [{"metadata": {"name": name, "creationTimestamp": at}} for name, at in (("b", "2"), ("a", "1"))]
    assert newest_pod(pods) == pods[0]
    assert newest_pod([]) is None


def test_a_job_without_the_labels_is_not_one_of_an_executor():
    assert job_view({"metadata": {"name": "a"}}) is None
    for run_id, attempt in (("r", "one"), ("r", "0"), ("r", "3000000000"), ("", "1")):
        labels = {"wakeful/run-id": run_id, "wakeful/attempt": attempt}
        assert job_view({"metadata": {"name": "a", "labels": labels}}) is None


def test_earlier_attempts_are_outdated():
    jobs = [JobView("a-2", "a", 2), JobView("a-1", "a", 1), JobView("b-1", "b", 1)]
    assert current_attempts(jobs) == {AttemptKey("a", 2): jobs[0], AttemptKey("b", 1): jobs[2]}
    assert outdated_jobs(jobs) == [jobs[1]]
