"""The scheduler in the processes that serve the project: an entry of `MIDDLEWARE`."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import MiddlewareNotUsed

from wakeful.integrations.django.scheduler import in_tests, project_scheduler


class RunScheduler:
    """Starts the scheduler of the project when a process begins to serve requests, on a thread of its own.

    Django creates a middleware once in each process that serves: not in other commands, and not in the
    process of `runserver` that only watches files. It takes no part in requests.
    """

    def __init__(self, get_response: Callable[[object], object]) -> None:
        if not in_tests():
            project_scheduler().__enter__()
        raise MiddlewareNotUsed
