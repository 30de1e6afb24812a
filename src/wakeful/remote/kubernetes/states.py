"""What the status of a Job and its pods means for the run, and which Jobs are of current attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wakeful.launch.port import MAX_OUTPUT
from wakeful.remote.kubernetes.templates import ATTEMPT, RUN_ID

Manifest = Mapping[str, Any]

#: Why a container waits, if it cannot start without a change of its template or its cluster.
STUCK: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


#: Attempts are 32-bit integers.
_MAX_ATTEMPT: Final = 2**31

#: The reason of a Job that was active for longer than its `activeDeadlineSeconds`.
DEADLINE: Final = "DeadlineExceeded"


class JobCompletion(NamedTuple):
    """How a Job ended."""

    succeeded: bool
    #: the reason and the message of Kubernetes, of a failure
    reason: str = ""
    message: str = ""


class JobView(NamedTuple):
    """A Job of an executor."""

    name: str
    run_id: str
    attempt: int
    #: None: it has not finished
    end: JobCompletion | None = None
    #: whether its pod is ready, so that all its containers have started
    ready: bool = False
    #: whether it gets no pod until someone resumes it, such as a queue of the cluster
    suspended: bool = False


def job_view(job: Manifest) -> JobView | None:
    """Return a Job of an executor; None for one without its labels.

    >>> labels = {"wakeful/run-id": "r1", "wakeful/attempt": "2"}
    >>> job_view({"metadata": {"name": "wakeful-1-2", "labels": labels}, "status": {"ready": 1}})
    JobView(name='wakeful-1-2', run_id='r1', attempt=2, end=None, ready=True, suspended=False)
    """
    metadata, status = job["metadata"], job.get("status") or {}
    labels = metadata.get("labels") or {}
    try:
        run_id, attempt = str(labels[RUN_ID]), int(labels[ATTEMPT])
    except (KeyError, ValueError):
        return None
    if not run_id or not 0 < attempt < _MAX_ATTEMPT:  # the server would refuse a heartbeat with it
        return None
    suspended = (job.get("spec") or {}).get("suspend") is True
    return JobView(str(metadata["name"]), run_id, attempt, job_end(job), bool(status.get("ready")), suspended)


def job_end(job: Manifest) -> JobCompletion | None:
    """Return how a Job ended; None: it has not.

    >>> job_end({"status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    JobCompletion(succeeded=True, reason='', message='')
    >>> job_end({"status": {"active": 1}}) is None
    True
    """
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return JobCompletion(True)
        if condition.get("type") == "Failed":
            return JobCompletion(False, condition.get("reason") or "Failed", condition.get("message") or "")
    return None


def failure(end: JobCompletion, pods: Iterable[Manifest]) -> str:
    """Return the error of a failed Job: the exit code and reason of its container, or why it was ended.

    >>> ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    >>> pod = {"status": {"containerStatuses": [{"name": "work", "state": ended}]}}
    >>> failure(JobCompletion(False, "BackoffLimitExceeded"), [pod])
    'exit code 137 (OOMKilled)'
    >>> failure(JobCompletion(False, "DeadlineExceeded", "Job was active longer than specified deadline"), [])
    'DeadlineExceeded: Job was active longer than specified deadline'
    """
    if end.reason != DEADLINE:
        for pod in pods:
            if (found := _pod_failure(pod)) is not None:
                return found
    return _with_message(end.reason, end.message)


def stuck_reason(pods: Iterable[Manifest]) -> str | None:
    """Return why a pod cannot start; None: it starts, or it is not known why it does not.

    >>> waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    >>> stuck_reason([{"status": {"containerStatuses": [{"name": "work", "state": waiting}]}}])
    'ImagePullBackOff: Back-off pulling image'
    """
    for pod in pods:
        for container in _containers(pod):
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in STUCK:
                return _with_message(waiting["reason"], waiting.get("message"))
    return None


def start_delay(pods: Sequence[Manifest]) -> str | None:
    """Return what the start of a Job waits for; None: its pod starts or runs.

    >>> full = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    >>> start_delay([{"status": {"phase": "Pending", "conditions": [full]}}])
    'its pod waits for a node: 0/3 nodes are available'
    """
    if not pods:
        return "its Job has no pod yet; `kubectl describe job` shows why"
    for pod in pods:
        for condition in (pod.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                why = condition.get("message") or condition.get("reason")
                return _with_message("its pod waits for a node", why)
    why = stuck_reason(pods)
    return None if why is None else f"its pod cannot start: {why}"


def newest_pod(pods: Iterable[Manifest]) -> Manifest | None:
    """Return the last pod of a Job; None: it has none."""
    return max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""), default=None)


def log_tail(content: bytes) -> str:
    """Return the last part of a log, as much as a run keeps of its output.

    >>> log_tail(b"done\\n")
    'done'
    """
    return content.strip(b"\n")[-MAX_OUTPUT:].decode("utf-8", "ignore").replace("\0", "")


def _pod_failure(pod: Manifest) -> str | None:
    status = pod.get("status") or {}
    if status.get("reason"):  # such as Evicted: the exit code is only its result
        return _with_message(status["reason"], status.get("message"))
    for container in _containers(pod):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return _with_message(
                f"exit code {ended['exitCode']} ({ended.get('reason') or 'Error'})", ended.get("message")
            )
    return None


def _containers(pod: Manifest) -> list[Manifest]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _with_message(reason: str, message: str | None) -> str:
    return f"{reason}: {message.strip()}" if message and message.strip() else reason


class AttemptKey(NamedTuple):
    """One attempt of a run."""

    run_id: str
    number: int


def current_attempts(jobs: Iterable[JobView]) -> dict[AttemptKey, JobView]:
    """Return the Job of the last attempt of each run.

    >>> [job.name for job in current_attempts([JobView("a-1", "a", 1), JobView("a-2", "a", 2)]).values()]
    ['a-2']
    """
    last: dict[str, JobView] = {}
    for job in jobs:
        if job.run_id not in last or last[job.run_id].attempt < job.attempt:
            last[job.run_id] = job
    return {AttemptKey(job.run_id, job.attempt): job for job in last.values()}


def outdated_jobs(jobs: list[JobView]) -> list[JobView]:
    """Return the Jobs whose run has a Job of a later attempt.

    >>> [job.name for job in outdated_jobs([JobView("a-1", "a", 1), JobView("a-2", "a", 2)])]
    ['a-1']
    """
    current = current_attempts(jobs)
    return [job for job in jobs if AttemptKey(job.run_id, job.attempt) not in current]
