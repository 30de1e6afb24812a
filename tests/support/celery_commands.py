"""The commands of Celery programs. They run as forks of a process that has imported Celery and Wakeful."""

from __future__ import annotations

from typing import Final

from tests.support.paths import ROOT
from tests.support.prefork import command_with

_SUPPORT: Final = ROOT / "tests" / "support"
#: What a worker, a beat and a replica import.
_MODULES: Final = (
    *("celery.bin.celery", "celery.apps.worker", "celery.apps.beat", "celery.concurrency.prefork"),
    *("celery.backends.redis", "celery.app.amqp", "celery.app.control", "celery.worker.consumer"),
    *("kombu.transport.redis", "wakeful.app.assembly", "wakeful.celery", "wakeful.store.sqlite"),
)


def celery_command(*arguments: str) -> list[str]:
    """Return the command that starts `celery` with these arguments."""
    return command_with(_MODULES, _SUPPORT / "celery_program.py", *arguments)


def replica_command(*arguments: str) -> list[str]:
    """Return the command that starts `celery_replica.py` with these arguments."""
    return command_with(_MODULES, _SUPPORT / "celery_replica.py", *arguments)
