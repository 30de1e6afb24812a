"""The scheduler in the processes that serve the project: an entry of `MIDDLEWARE`."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import MiddlewareNotUsed

from wakeful.integrations.django.scheduler import in_tests, project_scheduler


class RunScheduler:
    """Starts the scheduler of the project when a process begins to serve requests, on a thread of its own.

    Django creates a middleware in each process that serves: not in other commands, and not in the process of
    `runserver` that only watches files. It takes no part in requests.
    """

    def __init__(self, get_response: Callable[[object], object]) -> None:
        scheduler = project_scheduler()
        # A process has more than one handler of requests if it serves both WSGI and ASGI.
        if not in_tests() and not scheduler.alive:
            scheduler.__exit__(None, None, None)  # a call while the project was loaded has connected it
            scheduler.__enter__()
        raise MiddlewareNotUsed
