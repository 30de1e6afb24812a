"""The calls of a Celery app that the launcher makes. They block, so they run in threads.

The result backend is asked for many tasks at once. No subscription is made for a task: that would need a
connection that follows all of them, and results that arrive while it is down would be missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from wakeful.launch.celery.results import TaskState
from wakeful.launch.celery.target import Task
from wakeful.logs import get_logger

#: States in which a task has ended.
ENDED: Final = frozenset({"SUCCESS", "FAILURE", "REVOKED"})
#: The value of the mark of a task that was sent.
_SENT: Final = b"1"
#: Seconds that a broker and a worker have to answer when they are examined.
_EXAMINE_S: Final = 1.0

log = get_logger("wakeful.celery")


class Sent(NamedTuple):
    """A task that the broker has."""

    #: whether its result can be read later
    awaits_result: bool
    #: whether it was sent before, by a process that died
    adopted: bool = False


class CeleryHealth(NamedTuple):
    """A Celery app whose broker answers."""

    #: the address of the broker, without its password
    broker: str
    #: whether results can be read
    has_results: bool
    #: whether a worker answered
    has_worker: bool


class CeleryClient:
    """Sends tasks, reads their states, and revokes them.

    `has_code`: the tasks of the app are registered in this process. If not, they are sent by their names
    only: Celery also registers the tasks of all other apps of the process, which have nothing to do with it.
    """

    def __init__(self, app: Any, *, terminate: bool, has_code: bool = True) -> None:
        from celery.backends.base import BaseKeyValueStoreBackend, DisabledBackend
        from celery.backends.rpc import RPCBackend

        self._app = app
        self._terminate = terminate
        backend = app.backend
        #: whether results can be read by any process. Those of `rpc://` reach only the sender
        self.has_results = not isinstance(backend, DisabledBackend | RPCBackend)
        self._reads_many = isinstance(backend, BaseKeyValueStoreBackend)
        self._tasks: Mapping[str, Any] = app.tasks if has_code else {}
        #: the names of the tasks that the code of the app registers
        self.registered = frozenset(str(name) for name in self._tasks)

    def send(self, task: Task) -> Sent:
        """Send a task, unless it was sent before. Raises what the broker or the task raises."""
        awaits_result = self.has_results and not self._ignores_result(task)
        if awaits_result and task.taken_over and self._is_known(task.id):
            return Sent(awaits_result, adopted=True)
        if awaits_result and task.earlier_id is not None and not task.taken_over:
            self._withdraw(task.earlier_id)
        self._without_subscription()
        registered = self._tasks.get(task.name)
        options = {**task.options, "task_id": task.id, "retry": False}
        if registered is not None:
            registered.apply_async(task.args, task.kwargs, **options)
        else:
            self._app.send_task(task.name, task.args, task.kwargs, **options)
        if awaits_result and self._reads_many:
            self._mark(task.id)
        return Sent(awaits_result)

    def read(self, ids: Sequence[str]) -> dict[str, TaskState]:
        """Return the states of those tasks that the result backend has."""
        backend = self._app.backend
        if not self._reads_many:
            metas = {each: backend.get_task_meta(each, cache=False) for each in ids}
            return {
                each: TaskState(meta, (meta.get("status"), repr(meta.get("result"))))
                for each, meta in metas.items()
                if meta.get("status") != "PENDING"
            }
        values = backend.mget([backend.get_key_for_task(each) for each in ids])
        return {
            each: TaskState(backend.decode(value), value)
            for each, value in zip(ids, values, strict=True)
            if value
        }

    def revoke(self, ids: Sequence[str]) -> None:
        """Have the workers discard these tasks. With `terminate`, also end those that run."""
        self._app.control.revoke(list(ids), terminate=self._terminate)

    def examine(self) -> CeleryHealth:
        """Connect to the broker, the result backend and a worker. Raises what the first two raise."""
        with self._app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_EXAMINE_S)
            broker = str(connection.as_uri())  # without the password
        if self.has_results:
            self.read(["wakeful-check"])
        answers = self._app.control.ping(timeout=_EXAMINE_S, limit=1)
        return CeleryHealth(broker, self.has_results, bool(answers))

    def _ignores_result(self, task: Task) -> bool:
        asked = task.options.get("ignore_result")
        if asked is not None:
            return bool(asked)
        registered = self._tasks.get(task.name)
        if registered is not None:
            return bool(registered.ignore_result)
        return bool(self._app.conf.task_ignore_result)

    def _is_known(self, task_id: str) -> bool:
        """Return whether a task was sent before: it has a state, or the mark of its sender."""
        if self.read([task_id]):
            return True
        return self._reads_many and bool(self._app.backend.mget([self._mark_key(task_id)])[0])

    def _withdraw(self, task_id: str) -> None:
        """Revoke the task of an earlier attempt that has not ended: a worker may still get it."""
        state = self.read([task_id]).get(task_id)
        if state is None or state.meta.get("status") not in ENDED:
            self.revoke([task_id])

    def _mark(self, task_id: str) -> None:
        """Record that a task was sent. Without the mark, a process that takes over sends it once more."""
        try:
            self._app.backend.set(self._mark_key(task_id), _SENT)
        except Exception as error:  # the broker has the task: it must not be sent again because of this
            log.warning("celery.mark_failed", task_id=task_id, error=str(error))

    def _mark_key(self, task_id: str) -> Any:
        return self._app.backend.get_key_for_task(f"{task_id}-sent")

    def _without_subscription(self) -> None:
        """Have the backend of this thread subscribe to no result: results are read, not pushed."""
        backend = self._app.backend
        if not getattr(backend, "thread_safe", False):  # else other threads of the process have it too
            backend.on_task_call = _nothing


def _nothing(*args: object, **kwargs: object) -> dict[str, object]:
    return {}
