"""The Celery app of this process: from the program that embeds Wakeful, or from the operator's settings."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from wakeful.errors import InvalidArgument
from wakeful.settings import PREFIX, Settings

_APP = f"{PREFIX}CELERY_APP"


def is_configured(settings: Settings) -> bool:
    """Return whether the settings name a Celery app, or the broker of one."""
    return bool(settings.celery_app or settings.celery_broker)


def load_app(settings: Settings) -> Any:
    """Return the Celery app that the settings name. Raises InvalidArgument that names the setting.

    `CELERY_APP` is an app in Python code. Its task modules are imported: they have the options of the tasks,
    and the names of the tasks that jobs may run. `CELERY_BROKER` and `CELERY_RESULTS` are the addresses of an
    app whose code is not installed here: its tasks are sent by their names.
    """
    try:
        from celery import Celery
    except ImportError as error:
        raise InvalidArgument(
            f"{_APP}: Celery is not installed; install it with: pip install 'wakeful[celery]'"
        ) from error
    if settings.celery_app is None:
        app = Celery("wakeful", broker=settings.celery_broker, backend=settings.celery_results)
        app.conf.task_ignore_result = settings.celery_results is None
        return app
    if settings.celery_broker or settings.celery_results:
        raise InvalidArgument(f"{_APP}: {PREFIX}CELERY_BROKER or _RESULTS is set too; the app has its own")
    module, _, name = settings.celery_app.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(import_module(module), name or "app")
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"{_APP}: {error}; write it as module:name, such as shop.celery:app") from error
    if not isinstance(found, Celery):
        raise InvalidArgument(
            f"{_APP}: '{settings.celery_app}' is not a Celery app; write it as module:name, such as "
            "shop.celery:app"
        )
    try:
        found.loader.import_default_modules()
    except Exception as error:  # of any task module
        raise InvalidArgument(
            f"{_APP}: the tasks of '{settings.celery_app}' cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    return found
