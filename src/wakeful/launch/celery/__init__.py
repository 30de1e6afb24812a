"""Celery targets: a task of an existing Celery app.

    {"kind": "celery", "task": "app.tasks.add", "args": [1, 2], "kwargs": {"carry": true}, "queue": "sums"}

The app comes from the operator's settings, never from a job. If processes on one database have different
apps, a target names the one that it means: `"app": "shop"`. The run awaits the result of the task, which is
read from the result backend of the app. Without one, the run succeeds when the task is sent.
"""

from wakeful.launch.celery.launcher import CeleryLauncher

__all__ = ["CeleryLauncher"]
