"""The calls of a Celery app that the launcher makes. They block, so they run in threads.

The result backend is asked for many tasks at once. No subscription is made for a task: that would need a
connection that follows all of them, and results that arrive while it is down would be missed.

Each thread has its own connection to the broker, with limits that the pool of the app does not have: a call
must end soon after its launch has given up, and a task must not be sent when the broker is back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wakeful.launch.celery.results import UNREADABLE, TaskState
from wakeful.launch.celery.target import Task
from wakeful.logs import get_logger

#: States in which a task has ended.
ENDED: Final = frozenset({"SUCCESS", "FAILURE", "REVOKED", UNREADABLE})
#: Seconds after which a call to the broker that is not answered fails.
BROKER_S: Final = 10.0
#: The value of the mark of a task that was sent.
_SENT: Final = b"1"
#: Seconds that a broker and a worker have to answer when they are examined.
_EXAMINE_S: Final = 1.0

#: Connect once: the launch is retried by the policy of its job, not here.
_ONE_TRY: Final[Mapping[str, Any]] = {"max_retries": 1, "interval_start": 0}
#: Options that the app cannot set, by the driver: the client of Redis would send a task again that was not
#: answered, and that of RabbitMQ would not wait until the broker has the task.
_REQUIRED: Final[Mapping[str, Mapping[str, Any]]] = {
    "redis": {"retry_on_timeout": False},
    "amqp": {"confirm_publish": True},
}
#: The options that limit a call, by the driver of the transport.
_LIMITS: Final[Mapping[str, Sequence[str]]] = {
    "redis": ("socket_timeout", "socket_connect_timeout"),
    "amqp": ("read_timeout", "write_timeout"),
}

log = get_logger("wakeful.celery")


class Sent(NamedTuple):
    """A task that the broker has."""

    #: whether its result can be read later
    awaits_result: bool
    #: whether it was sent before, by a process that died
    adopted: bool = False


class Sending:
    """A task on its way to the broker. Its launch withdraws it when it gives up."""

    def __init__(self, task: Task) -> None:
        self.task = task
        #: set when the broker has the task, also if `send` has not returned yet
        self.sent: Sent | None = None
        self._lock = threading.Lock()
        self._began = False
        self._withdrawn = False

    @property
    def may_be_sent(self) -> bool:
        """Whether the task was given to the broker, which may have it even if it did not say so."""
        return self._began

    def begin(self) -> bool:
        """Return whether the task may be given to the broker now."""
        with self._lock:
            self._began = not self._withdrawn
            return self._began

    def withdraw(self) -> bool:
        """Return whether the task has not been given to the broker. Then it never is."""
        with self._lock:
            self._withdrawn = True
            return not self._began


class Withdrawn(Exception):
    """A task was not sent: its launch has given up."""


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
        #: the name that the code of the app gives it; None: its code is not here, or gives it none
        self.app_name: str | None = str(app.main) if has_code and app.main else None
        backend = app.backend
        #: whether results can be read by any process. Those of `rpc://` reach only the sender
        self.has_results = not isinstance(backend, DisabledBackend | RPCBackend)
        self._reads_many = isinstance(backend, BaseKeyValueStoreBackend)
        self._local = threading.local()
        #: the connections of all threads
        self._connections: set[Any] = set()
        self._tasks: Mapping[str, Any] = app.tasks if has_code else {}
        #: the names of the tasks that the code of the app registers
        self.registered = frozenset(str(name) for name in self._tasks)

    def send(self, sending: Sending) -> Sent:
        """Send a task, unless it was sent before. Raises what the broker or the task raises, or Withdrawn.

        ValueError, TypeError, OverflowError: the task can never be sent.
        """
        task = sending.task
        _check_encoding(task.options)
        awaits_result = self.has_results and not self._ignores_result(task)
        if awaits_result and task.taken_over and self._is_known(task.id):
            sending.sent = Sent(awaits_result, adopted=True)
            return sending.sent
        if task.earlier_id is not None and not task.taken_over:
            self._withdraw(task.earlier_id)
        self._without_subscription()
        registered = self._tasks.get(task.name)
        with self._connect() as producer:
            if not sending.begin():
                raise Withdrawn
            options = {**task.options, "task_id": task.id, "retry": False, "producer": producer}
            if registered is not None:
                registered.apply_async(task.args, task.kwargs, **options)
            else:
                self._app.send_task(task.name, task.args, task.kwargs, **options)
        sending.sent = Sent(awaits_result)
        if awaits_result and self._reads_many:
            self._mark(task.id)
        return sending.sent

    def read(self, ids: Sequence[str]) -> dict[str, TaskState]:
        """Return the states of those tasks that the result backend has.

        A result that cannot be read is a state of its task and does not affect the others.
        """
        if not self._reads_many:
            return {each: state for each in ids if (state := self._read_one(each)) is not None}
        return {
            each: self._decode(value) for each, value in zip(ids, self._values(ids), strict=True) if value
        }

    def revoke(self, ids: Sequence[str]) -> None:
        """Have the workers discard these tasks. With `terminate`, also end those that run."""
        with self._connect() as producer:
            self._app.control.revoke(list(ids), terminate=self._terminate, connection=producer.connection)

    def examine(self) -> CeleryHealth:
        """Connect to the broker, the result backend and a worker. Raises what the first two raise."""
        with self._connect() as producer:
            broker = str(producer.connection.as_uri())  # without the password
            answers = self._app.control.ping(timeout=_EXAMINE_S, limit=1, connection=producer.connection)
        if self.has_results:
            self.read(["wakeful-check"])
        return CeleryHealth(broker, self.has_results, bool(answers))

    def close(self) -> None:
        """Close the connections to the broker, also those that are waiting for it."""
        while self._connections:
            _disconnect(self._connections.pop())

    @contextlib.contextmanager
    def _connect(self) -> Iterator[Any]:
        """Return the producer of this thread. The broker has answered on its connection just now.

        A broker that hangs is found out here, before the task is sent to it: a task that waits in its
        connection would be executed when it continues. After an error the next call connects again.
        """
        producer = getattr(self._local, "producer", None)
        if producer is None:
            new = self._connection()
            self._connections.add(new)
            producer = self._local.producer = self._app.amqp.Producer(new)
        connection = producer.connection
        try:
            driver = connection.get_transport_cls().driver_type
            if driver == "redis":
                connection.default_channel.client.ping()
            else:
                connection.ensure_connection(**_ONE_TRY)
                if driver == "amqp":  # a call that is answered and changes nothing: the default prefetch
                    connection.default_channel.basic_qos(0, 0, False)
            yield producer
        except Exception as error:
            if not isinstance(error, Withdrawn):
                self._local.producer = None
                self._connections.discard(connection)
                _disconnect(connection)
            raise

    def _connection(self) -> Any:
        """Return a connection on which every call ends. What the app sets has precedence."""
        conf = self._app.conf.broker_transport_options or {}
        driver = self._app.connection_for_write().get_transport_cls().driver_type
        limits = {**_ONE_TRY, **dict.fromkeys(_LIMITS.get(driver, ()), BROKER_S)}
        own = {name: value for name, value in limits.items() if name not in conf}
        own.update(_REQUIRED.get(driver, {}))
        return self._app.connection_for_write(transport_options=own)

    def _values(self, ids: Sequence[str]) -> list[Any]:
        """Return what the result backend has for these tasks, or None, in their order."""
        backend = self._app.backend
        keys = [backend.get_key_for_task(each) for each in ids]
        try:
            found = backend.mget(keys)
        except NotImplementedError:
            return [backend.get(key) for key in keys]
        if hasattr(found, "items"):  # of memcached: it leaves out the keys that it does not have
            by_key = {_text(key): value for key, value in found.items()}
            return [by_key.get(_text(key)) for key in keys]
        return list(found)

    def _decode(self, value: Any) -> TaskState:
        try:
            meta = self._app.backend.decode(value)
        except Exception as error:  # of the serializer: any
            return _unreadable(error, value)
        return _state(meta, value)

    def _read_one(self, task_id: str) -> TaskState | None:
        """Return the state of one task, from a backend that cannot be asked for several."""
        backend = self._app.backend
        try:
            meta = backend.get_task_meta(task_id, cache=False)
        except Exception:
            # Either the backend is unavailable, and then these raise too, or this result cannot be read.
            backend.get_task_meta("wakeful-check", cache=False)
            try:
                meta = backend.get_task_meta(task_id, cache=False)
            except Exception as error:
                return _unreadable(error, repr(error))
        state = _state(meta, None)
        if state.meta["status"] == "PENDING":
            return None
        return state._replace(fingerprint=(state.meta["status"], repr(state.meta.get("result"))))

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
        return self._reads_many and bool(self._values([_mark_id(task_id)])[0])

    def _withdraw(self, task_id: str) -> None:
        """Revoke the task of an earlier attempt that has not ended: a worker may still get it."""
        state = self.read([task_id]).get(task_id) if self.has_results else None
        if state is None or state.meta.get("status") not in ENDED:
            self.revoke([task_id])

    def _mark(self, task_id: str) -> None:
        """Record that a task was sent. Without the mark, a process that takes over sends it once more."""
        try:
            backend = self._app.backend
            backend.set(backend.get_key_for_task(_mark_id(task_id)), _SENT)
        except Exception as error:  # the broker has the task: it must not be sent again because of this
            log.warning("celery.mark_failed", task_id=task_id, error=str(error))

    def _without_subscription(self) -> None:
        """Have the backend of this thread subscribe to no result: results are read, not pushed."""
        backend = self._app.backend
        if not getattr(backend, "thread_safe", False):  # else other threads of the process have it too
            backend.on_task_call = _nothing


def _check_encoding(options: Mapping[str, Any]) -> None:
    """Raise ValueError for a serializer or compression that is not installed: no retry changes that."""
    from kombu.compression import get_encoder
    from kombu.exceptions import SerializerNotInstalled
    from kombu.serialization import dumps

    try:
        if "serializer" in options:
            dumps([], serializer=options["serializer"])  # type: ignore[no-untyped-call]
        if "compression" in options:
            get_encoder(options["compression"])  # type: ignore[no-untyped-call]
    except (SerializerNotInstalled, LookupError) as error:
        raise ValueError(f"options: no such serializer or compression: {error}") from None


def _nothing(*args: object, **kwargs: object) -> dict[str, object]:
    return {}


def _disconnect(connection: Any) -> None:
    """Close a connection. That to RabbitMQ is dropped: to close it needs an answer of the broker."""
    with contextlib.suppress(Exception):
        drop = hasattr(connection.get_transport_cls(), "_collect")
        connection.collect() if drop else connection.release()


def _mark_id(task_id: str) -> str:
    return f"{task_id}-sent"


def _state(meta: object, fingerprint: object) -> TaskState:
    if isinstance(meta, Mapping) and isinstance(meta.get("status"), str):
        return TaskState(meta, fingerprint)
    return _unreadable(TypeError("it has no status"), fingerprint)


def _unreadable(error: Exception, fingerprint: object) -> TaskState:
    return TaskState({"status": UNREADABLE, "result": f"{type(error).__name__}: {error}"}, fingerprint)


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key
