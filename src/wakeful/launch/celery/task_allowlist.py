"""Which tasks jobs may run (`WAKEFUL_CELERY_TASKS`). Pure.

    shop.reports.daily      that task
    shop.reports.*          tasks whose names start so
    *                       every task

Without the setting, the app decides. For an app that the operator names (`WAKEFUL_CELERY_APP`) these are the
tasks that its code registers, without Celery's own. An app of which only the broker is known has none. An app
that a program passes to Wakeful, or that beat has, allows all: the program is trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.launch.not_allowed import NotAllowed
from wakeful.settings import PREFIX

SETTING: Final = f"{PREFIX}CELERY_TASKS"
#: Allows every task, or at the end of an entry every task whose name starts so.
ALL: Final = "*"
#: Tasks of Celery itself.
_OWN: Final = "celery."


class TaskAllowlist:
    """The tasks that jobs may run. `entries` are those of the setting; `trusted`: without them, all.

    >>> TaskAllowlist(["shop.*"]).check("shop.reports.daily", None)
    >>> TaskAllowlist(["shop.*"]).check("admin.delete_all", None)
    Traceback (most recent call last):
    wakeful.launch.not_allowed.NotAllowed: 'admin.delete_all' is not an allowed task; the operator \
allows tasks by WAKEFUL_CELERY_TASKS
    """

    def __init__(self, entries: Sequence[str], *, trusted: bool = False) -> None:
        for entry in entries:
            if ALL in entry[:-1] or any(map(str.isspace, entry)):
                raise InvalidArgument(
                    f"{SETTING}: '{entry[:200]}' is not a task: write a name such as shop.reports.daily, the "
                    "beginning of names such as shop.reports.*, or * for all"
                )
        self._names = frozenset(entry for entry in entries if not entry.endswith(ALL))
        self._prefixes = tuple(entry[:-1] for entry in entries if entry.endswith(ALL))
        self._trusted = trusted and not entries

    def check(self, task: str, registered: Collection[str] | None) -> None:
        """Raise NotAllowed for a task that is not allowed.

        `registered` are the tasks that the code of the app registers. None: the app is not known here; then
        the process that has it checks the task when it is launched.
        """
        if self._trusted or task in self._names or task.startswith(self._prefixes):
            return
        if self._names or self._prefixes:
            raise NotAllowed(f"'{task[:200]}' is not an allowed task; the operator allows tasks by {SETTING}")
        if registered is None or (task in registered and not task.startswith(_OWN)):
            return
        if any(not name.startswith(_OWN) for name in registered):
            raise NotAllowed(
                f"'{task[:200]}' is not a task of the Celery app; correct the name, or let the operator "
                f"allow it by {SETTING}"
            )
        raise NotAllowed(
            f"the code of the Celery app is not installed here, so its tasks are not known; the operator "
            f"allows tasks by {SETTING}"
        )
