"""Celery targets as jobs have them, the tasks that their runs become, and the app and tasks that are allowed.

Tasks that jobs may run (`WAKEFUL_CELERY_TASKS`):

    shop.reports.daily      that task
    shop.reports.*          tasks whose names start so
    *                       every task

Without the setting, the app decides. For an app that the operator names (`WAKEFUL_CELERY_APP`) these are the
tasks that its code registers, without Celery's own. An app of which only the broker is known has none. An app
that a program passes to Wakeful, or that beat has, allows all: the program is trusted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.launch.broker import message_id
from wakeful.launch.port import Launch, NotAllowed
from wakeful.settings import PREFIX, Settings
from wakeful.values.instants import iso_utc
from wakeful.values.json_value import Json
from wakeful.values.package import install_command

_APP = f"{PREFIX}CELERY_APP"
SETTING: Final = f"{PREFIX}CELERY_TASKS"
#: Allows every task, or at the end of an entry every task whose name starts so.
ALL: Final = "*"
#: Tasks of Celery itself.
_OWN: Final = "celery."
_FIELDS: Final = ("kind", "task", "args", "kwargs", "queue", "options", "app")
#: The options of `apply_async` that a job may set, with the types of their values.
_OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "exchange": (str,),
    "routing_key": (str,),
    "priority": (int,),
    "expires": (int, float),
    "countdown": (int, float),
    "serializer": (str,),
    "compression": (str,),
    "time_limit": (int, float),
    "soft_time_limit": (int, float),
    "ignore_result": (bool,),
    "headers": (dict,),
    "shadow": (str,),
}
_MAX_NAME: Final = 255
_MAX_APP: Final = 100
#: Headers that a job cannot set start with this.
HEADER: Final = "wakeful-"
#: Headers of Celery's own, which say what a worker executes: those of a job would replace them.
_CELERY_HEADERS: Final = frozenset(
    {
        "argsrepr", "compression", "eta", "expires", "group", "group_index", "id", "ignore_result",
        "kwargsrepr", "lang", "origin", "parent_id", "replaced_task_nesting", "retries", "root_id", "shadow",
        "stamped_headers", "stamps", "task", "timelimit",
    }
)  # fmt: skip


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
            f"{_APP}: Celery is not installed; install it with: {install_command('celery')}"
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


class TaskAllowlist:
    """The tasks that jobs may run. `entries` are those of the setting; `trusted`: without them, all.

    >>> TaskAllowlist(["shop.*"]).check("shop.reports.daily", None)
    >>> TaskAllowlist(["shop.*"]).check("admin.delete_all", None)
    Traceback (most recent call last):
    wakeful.launch.port.NotAllowed: 'admin.delete_all' is not an allowed task; the operator \
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


class Task(NamedTuple):
    """A task to send."""

    id: str
    name: str
    args: list[Json]
    kwargs: dict[str, Json]
    options: dict[str, Json]
    #: the id of the task of the attempt before this one; None: this is the first
    earlier_id: str | None = None
    #: whether this attempt was launched before, by a process that died: the task may have been sent
    taken_over: bool = False


def check_target(target: Mapping[str, Json]) -> None:
    """Raise InvalidArgument for a target that can never be launched.

    >>> check_target({"kind": "celery", "args": [1]})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: target: task is the name of a Celery task, such as 'app.tasks.add'
    """
    unknown = sorted(target.keys() - set(_FIELDS))
    if unknown:
        raise InvalidArgument(
            f"target: a celery target has no field '{unknown[0][:64]}'; it has {', '.join(_FIELDS[1:])}"
        )
    task, queue = target.get("task"), target.get("queue")
    if not isinstance(task, str) or not task.strip() or len(task) > _MAX_NAME:
        raise InvalidArgument("target: task is the name of a Celery task, such as 'app.tasks.add'")
    if not isinstance(target.get("args", []), list):
        raise InvalidArgument("target: args is a list, such as [1, 2]")
    if not isinstance(target.get("kwargs", {}), dict):
        raise InvalidArgument('target: kwargs is an object, such as {"to": "me"}')
    if queue is not None and (not isinstance(queue, str) or not queue or len(queue) > _MAX_NAME):
        raise InvalidArgument("target: queue is the name of a queue of the Celery app")
    app = target.get("app")
    if app is not None and (
        not isinstance(app, str) or not app.strip() or not app.isprintable() or len(app) > _MAX_APP
    ):
        raise InvalidArgument("target: app is the name of a Celery app: 'shop' is that of Celery('shop')")
    _check_options(target.get("options", {}))


def _check_options(options: Json) -> None:
    if not isinstance(options, dict):
        raise InvalidArgument('target: options is an object, such as {"priority": 5}')
    for name, value in options.items():
        if name not in _OPTIONS:
            raise InvalidArgument(
                f"target: a job cannot set the option '{name[:64]}'; it can set {', '.join(_OPTIONS)}"
            )
        kinds = _OPTIONS[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(_KIND_NAMES[kind] for kind in kinds if kind is not float)
            raise InvalidArgument(f"target: the option {name} is {wanted}")
    headers = options.get("headers")
    if isinstance(headers, dict):
        names = ((name, name.lower()) for name in headers)
        reserved = [name for name, low in names if low.startswith(HEADER) or low in _CELERY_HEADERS]
        if reserved:
            raise InvalidArgument(f"target: a job cannot set the header '{reserved[0][:64]}'; it is reserved")


_KIND_NAMES: Final = {str: "text", int: "a number", bool: "true or false", dict: "an object"}


def build_task(run: Launch) -> Task:
    """Return the task of an attempt. Raises InvalidArgument.

    The fields of the payload are keyword arguments. They override those of the target.

    >>> run = Launch(
    ...     "r1",
    ...     "sum",
    ...     "j1",
    ...     "default",
    ...     "default",
    ...     '{"carry":true}',
    ...     0,
    ...     0,
    ...     2,
    ...     "user",
    ...     "9f2c",
    ...     {"kind": "celery", "task": "app.add", "args": [1, 2], "queue": "sums"},
    ... )
    >>> task = build_task(run)
    >>> task.id, task.name, task.args, task.kwargs, task.earlier_id
    ('9f2c-2', 'app.add', [1, 2], {'carry': True}, '9f2c-1')
    >>> task.options["queue"], task.options["headers"]["wakeful-key"]
    ('sums', '9f2c')
    """
    target, payload = run.target, run.payload
    check_target(target)
    if payload is not None and not isinstance(payload, dict):
        raise InvalidArgument("payload: that of a Celery task is an object: its fields are keyword arguments")
    args, kwargs, options = target.get("args"), target.get("kwargs"), target.get("options")
    sent = dict(options) if isinstance(options, dict) else {}
    own = sent.get("headers")
    sent["headers"] = {**(own if isinstance(own, dict) else {}), **_headers(run)}
    if "queue" in target:
        sent["queue"] = target["queue"]
    return Task(
        message_id(run),
        str(target["task"]),
        list(args) if isinstance(args, list) else [],
        {**(kwargs if isinstance(kwargs, dict) else {}), **(payload or {})},
        sent,
        f"{run.idempotency_key}-{run.attempt - 1}" if run.attempt > 1 else None,
        run.taken_over,
    )


def _headers(run: Launch) -> dict[str, Json]:
    """Return the headers of a task: the key of the run, and what a worker needs to know of it."""
    headers: dict[str, Json] = {
        f"{HEADER}key": run.idempotency_key,
        f"{HEADER}run-id": run.id,
        f"{HEADER}attempt": run.attempt,
        f"{HEADER}job": run.job,
        f"{HEADER}scheduled-at": iso_utc(run.scheduled_ms),
        f"{HEADER}trigger": run.trigger,
    }
    if run.traceparent is not None:
        headers["traceparent"] = run.traceparent
    return headers
