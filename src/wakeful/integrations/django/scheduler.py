"""The scheduler of a Django project, from its settings."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections, reset_queries

from wakeful.app.embedded import Wakeful
from wakeful.errors import FailedPrecondition
from wakeful.integrations.django.postgres_url import postgres_url
from wakeful.settings import FILE, PREFIX, Settings, active_settings, current_settings, read_settings

#: The variable that overrides `TIME_ZONE` of the project.
_ZONE: Final = f"{PREFIX}DEFAULT_TZ"
#: The keys of `WAKEFUL` that name a database.
_DATABASE: Final = ("database", "schema", "url")


class ProjectScheduler(Wakeful):
    """A scheduler that opens the database of the project when a process first uses it, except in tests."""

    def _connect_on_thread(self) -> None:
        if in_tests():
            raise FailedPrecondition(
                "in tests this would use the database of the project; use `wakeful.testing.Harness(app)`"
            )
        super()._connect_on_thread()


class FreshConnections:
    """Closes connections of the project that are too old or broken, as Django does around each request."""

    def __enter__(self) -> None:
        reset_queries()
        close_old_connections()

    def __exit__(self, *_: object) -> None:
        close_old_connections()

    async def __aenter__(self) -> None:
        await sync_to_async(self.__enter__)()  # in the thread whose connections async code uses

    async def __aexit__(self, *_: object) -> None:
        await sync_to_async(self.__exit__)()


@cache
def project_scheduler() -> Wakeful:
    """Return the scheduler of the project."""
    given: Mapping[str, Any] = getattr(settings, "WAKEFUL", {})
    arguments = {name: value for name, value in given.items() if name not in _DATABASE}
    known = inspect.signature(Wakeful).parameters
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise ImproperlyConfigured(
            f"WAKEFUL: there is no '{unknown[0]}'; there are {', '.join([*_DATABASE, *known])}"
        )
    # Not as an argument: the options of `manage.py wakeful serve` have priority.
    with active_settings(_in_zone(read_settings(os.environ, FILE))):
        return ProjectScheduler(
            database_url(given),
            **{"handler_context": FreshConnections, "connect_on_use": True, **arguments},
        )


def served_scheduler() -> Wakeful:
    """Return the scheduler of the project with the settings of the command that loads it.

    The jobs may have been declared on it before the command has read its options.
    """
    if not apps.ready:  # a process of `serve --processes`
        django.setup()
    scheduler = project_scheduler()
    scheduler.__exit__(None, None, None)  # a call while the project was loaded has connected it
    with active_settings(_in_zone(current_settings())):
        scheduler._use()
    return scheduler


def _in_zone(given: Settings) -> Settings:
    """Return the settings with the time zone of the project, unless the environment has another."""
    return given if _ZONE in os.environ else replace(given, default_tz=settings.TIME_ZONE)


def database_url(given: Mapping[str, Any]) -> str:
    """Return the address of the database that `WAKEFUL` names; without it, that of `default`."""
    if "url" in given:
        return str(given["url"])
    connection = connections[given.get("database", "default")]
    of_project = connection.settings_dict
    if connection.vendor == "postgresql":
        return postgres_url(of_project, given.get("schema"))
    name = str(of_project["NAME"])
    if connection.vendor != "sqlite" or name.startswith(("file:", ":")):
        raise ImproperlyConfigured(
            "Wakeful needs PostgreSQL or an SQLite file; name one: "
            "WAKEFUL = {'url': 'sqlite:////var/lib/wakeful.db'} or {'url': 'postgresql://…'}"
        )
    return f"sqlite:///{os.path.abspath(name)}"


def in_tests() -> bool:
    """Return whether Django's test environment is set up, also by pytest-django."""
    return hasattr(mail, "outbox")
