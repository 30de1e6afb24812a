"""The calls of a Celery app: results of each kind of backend, also those that cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.backends.base import KeyValueStoreBackend

from wakeful.launch.celery.client import ENDED, CeleryClient, Sending, Withdrawn
from wakeful.launch.celery.results import task_report
from wakeful.launch.celery.target import Task


class _OneByOne(KeyValueStoreBackend):  # type: ignore[misc]
    """A backend that cannot be asked for several results at once, as that of S3."""

    values: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self.values.get(key)

    def set(self, key: Any, value: Any) -> None:
        self.values[key] = value


@pytest.fixture(params=["cache+memory://", "file", f"{__name__}:_OneByOne"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Celery:
    backend = f"file://{tmp_path}" if request.param == "file" else request.param
    return Celery("tests", broker="memory://", backend=backend)


def test_results_are_read_from_every_backend_and_one_that_is_garbage_affects_no_other(app: Celery):
    client = CeleryClient(app, terminate=False, has_code=False)
    ids = ["done", "missing", "garbage", "shape", "failed"]
    app.backend.store_result("done", {"sum": 3}, "SUCCESS")
    app.backend.store_result("failed", ValueError("no"), "FAILURE")
    app.backend.set(app.backend.get_key_for_task("garbage"), b"\xff{not json")
    app.backend.set(app.backend.get_key_for_task("shape"), b"[1, 2]")
    states = client.read(ids)
    assert set(states) == set(ids) - {"missing"}
    reports = {each: task_report("r1", 1, state.meta) for each, state in states.items()}
    assert (reports["done"].status, reports["done"].output) == ("succeeded", '{"sum":3}')
    assert reports["failed"].error == "ValueError: no"
    for each in ("garbage", "shape"):
        assert states[each].meta["status"] in ENDED
        assert (reports[each].status, reports[each].permanent) == ("failed", True)
        assert (reports[each].error or "").startswith("the result of the task cannot be read: ")


def test_a_task_that_is_sent_again_after_a_takeover_is_adopted(app: Celery):
    client = CeleryClient(app, terminate=False, has_code=False)
    task = Task("key-1", "tests.add", [1, 2], {}, {})
    assert client.send(Sending(task)) == (True, False)
    assert client.send(Sending(task._replace(taken_over=True))) == (True, True)


class _OneTask(KeyValueStoreBackend):  # type: ignore[misc]
    """Raises for one task, or for all of them."""

    unavailable = False

    def get_task_meta(self, task_id: str, cache: bool = True) -> Any:
        if self.unavailable or task_id == "garbage":
            raise RuntimeError("it cannot be unpickled")
        return {"status": "PENDING" if task_id == "wakeful-check" else "SUCCESS", "result": task_id}


def test_a_backend_that_is_unavailable_is_told_from_a_result_that_cannot_be_read():
    app = Celery("tests", broker="memory://", backend=f"{__name__}:_OneTask")
    client = CeleryClient(app, terminate=False, has_code=False)
    client._reads_many = False
    states = client.read(["a", "garbage", "b"])
    assert [states[each].meta["status"] for each in ("a", "garbage", "b")] == [
        "SUCCESS", "UNREADABLE", "SUCCESS",
    ]  # fmt: skip
    app.backend.unavailable = True
    with pytest.raises(RuntimeError):
        client.read(["a", "garbage", "b"])


def test_a_task_is_either_withdrawn_or_sent():
    app = Celery("tests", broker="memory://", backend="cache+memory://")
    client = CeleryClient(app, terminate=False, has_code=False)
    sending = Sending(Task("key-1", "tests.add", [], {}, {"queue": "withdrawn"}))
    assert sending.withdraw()
    with pytest.raises(Withdrawn):
        client.send(sending)
    assert sending.sent is None
    for _ in range(200):  # two threads at once: exactly one of the two succeeds
        sending = Sending(Task("key-1", "tests.add", [], {}, {}))
        answers: list[bool] = []
        start = threading.Barrier(2)

        def race(call: Any, start: threading.Barrier = start, answers: list[bool] = answers) -> None:
            start.wait()
            answers.append(call())

        threads = [threading.Thread(target=race, args=(call,)) for call in (sending.begin, sending.withdraw)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [False, True]


@pytest.mark.parametrize(
    ("broker", "option", "asked", "used"),
    [
        ("redis://localhost", "retry_on_timeout", True, False),
        ("amqp://localhost", "confirm_publish", False, True),
        ("redis://localhost", "socket_timeout", 3, 3),
    ],
)
def test_no_option_of_the_app_has_a_task_sent_twice_or_unconfirmed(
    broker: str, option: str, asked: object, used: object
):
    app = Celery("tests", broker=broker, broker_transport_options={option: asked})
    client = CeleryClient(app, terminate=False)
    assert client._connection().transport_options[option] == used
