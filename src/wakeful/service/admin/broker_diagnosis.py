"""The rules of `wakeful doctor` for brokers: NATS and Celery. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from wakeful.service.admin.diagnosis import Check, check_targets


def check_nats(server: str, error: str) -> Check:
    """Check the connection to NATS: the address of the server, or why there is none."""
    if server:
        return Check("nats", "ok", f"connected to {server}")
    return Check(
        "nats",
        "error",
        f"not connected: {error}; runs of queue targets are retried",
        "check the NATS server, and WAKEFUL_NATS_URL",
    )


def check_celery_error(error: str) -> Check:
    """Return the check of a Celery app whose broker or result backend does not answer."""
    return Check(
        "celery",
        "error",
        f"the broker or the result backend is not reachable: {error}; runs of celery targets are retried",
        "check the broker and the result backend of the Celery app, and their addresses",
    )


def check_celery(
    broker: str,
    has_results: bool,
    has_worker: bool,
    number: int,
    broken: Sequence[tuple[str, str]],
    more: bool,
) -> Check:
    """Check a Celery app whose broker answers: its results, its workers, and the targets of jobs.

    `number` targets were read, of which `broken` cannot be launched; `more`: there are others.
    """
    action = "correct the names of the tasks, or allow them by WAKEFUL_CELERY_TASKS"
    targets = check_targets("celery", number, broken, more, action)
    if targets.state != "ok":
        return targets
    if not has_worker:
        return Check(
            "celery",
            "warning",
            f"connected to {broker}, but no worker answers within a second",
            "start a worker of the app: celery -A APP worker",
        )
    if not has_results:
        return Check(
            "celery",
            "warning",
            f"connected to {broker}; the app keeps no results, so runs succeed when their task is sent",
            "set a result backend that several processes can read, such as Redis",
        )
    return Check("celery", "ok", f"connected to {broker}; a worker answers; {targets.message}")
