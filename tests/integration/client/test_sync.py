"""`Client`, for programs without an event loop: the methods, results and errors of `AsyncClient`."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

import wakeful.client
from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import served
from tests.support.waiting import PATIENCE
from wakeful import AsyncClient, Client, FailedPrecondition, Function, NotFound, Permanent, Run, Unavailable
from wakeful.client import sync

T = TypeVar("T")
Program = Callable[[Callable[[Client], T]], "asyncio.Future[T]"]


@pytest.fixture
async def program(new_app: NewApp) -> AsyncIterator[Program[None]]:
    """Run a program without an event loop in a thread, with a client of a real server."""
    app = new_app()

    @app.function()
    async def note() -> str:
        return "noted"

    @app.function()
    async def fail() -> None:
        raise Permanent("no")

    async with app, served(app) as operator:

        def run(program: Callable[[Client], None]) -> asyncio.Future[None]:
            def whole() -> None:
                with Client(operator.url, operator.key) as client:
                    program(client)

            return asyncio.ensure_future(asyncio.wait_for(asyncio.to_thread(whole), 4 * PATIENCE))

        yield run


async def test_a_job_is_created_updated_run_and_deleted(program: Program[None]):
    def work(client: Client) -> None:
        made = client.jobs.create("note", schedule=SELDOM, target=Function("note"))
        same = client.jobs.upsert("note", schedule=SELDOM, target=Function("note"))
        assert same == dataclasses.replace(made, created=False)
        changed = client.jobs.update("note", message="hello", if_version=made.revision)
        assert changed.message == "hello"
        assert client.jobs.pause("note").enabled is False
        assert client.jobs.list(include_disabled=False) == []
        assert client.jobs.resume("note").enabled is True
        assert client.jobs.run("note", mode="due") is None
        run = client.jobs.run("note", payload=[1])
        over = client.runs.wait(run.id, timeout=PATIENCE, poll=0.01)
        assert (over.state, over.output, over.payload) == ("succeeded", "noted", [1])
        page = client.jobs.runs("note")
        assert ([each.id for each in page], page.cursor) == ([run.id], None)
        client.jobs.delete("note")
        with pytest.raises(NotFound, match="no job 'note'"):
            client.jobs.get("note")

    await program(work)


async def test_dead_letters_agents_keys_audit_and_workflows(program: Program[None]):
    def work(client: Client) -> None:
        client.jobs.create("fail", schedule=SELDOM, target=Function("fail"))
        run = client.jobs.run("fail")
        assert client.runs.wait(run.id, timeout=PATIENCE, poll=0.01).state == "failed"
        (dead,) = client.runs.dead_letters()
        client.runs.discard(dead.id)
        assert client.agents.put("ada", {"description": "x"}).name == "ada"
        assert client.jobs.of("ada").create("hers", schedule=SELDOM).agent == "ada"
        woken = client.runs.of("ada").wake({"a": 1})
        assert [claimed.id for claimed in client.runs.claim("laptop", agents=["ada"])] == [woken.id]
        key = client.keys.create("ci", role="member")
        client.keys.revoke(key.id)
        assert "key.revoke" in {entry.action for entry in client.audit.list()}
        assert client.workflows.put("flow", 1, {"nodes": ["a"]}).id == "flow"
        assert client.status()["engine"] is True
        assert client.ready()
        assert "deadLetterRatio" in client.slo()
        assert "/sign-in#wl_" in client.sign_in_link()
        assert isinstance(client.quotas.list(), list)

    await program(work)


async def test_a_wait_has_a_timeout(program: Program[None]):
    def work(client: Client) -> None:
        client.jobs.create("pulled", schedule=SELDOM)
        run = client.jobs.run("pulled")
        with pytest.raises(TimeoutError):
            client.runs.wait(run.id, timeout=0.05, poll=0.01)
        assert client.runs.get(run.id).state == "pending"

    await program(work)


async def test_threads_share_a_client(program: Program[None]):
    def work(client: Client) -> None:
        errors: list[Exception] = []

        def make(n: int) -> None:
            try:
                client.jobs.create(f"job-{n}", schedule=SELDOM)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=make, args=[n]) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(client.jobs.list()) == 8

    await program(work)


async def test_events_are_streamed_from_any_sequence_number(program: Program[None]):
    def work(client: Client) -> None:
        client.jobs.create("note", schedule=SELDOM, target=Function("note"))
        run = client.jobs.run("note")
        received = []
        for event in client.events(after=0, job="note"):
            received.append(event)
            if event.type == "run.finished":
                break
        assert [event.type for event in received] == ["job.changed", "run.started", "run.finished"]
        assert received[-1].run is not None
        assert received[-1].run.id == run.id
        ends = client.events(after=received[0].seq, types=["run.finished"])
        assert next(iter(ends)) == received[-1]

    await program(work)


async def test_a_closed_client_raises_and_leaves_no_thread(program: Program[None]):
    def work(client: Client) -> None:
        client.status()
        events = client.events(after=0)
        client.close()
        client.close()
        with pytest.raises(FailedPrecondition, match="closed"):
            client.status()
        with pytest.raises(FailedPrecondition, match="closed"):
            next(iter(events))
        assert "wakeful-client" not in {thread.name for thread in threading.enumerate()}

    await program(work)


def test_an_unreachable_server_is_unavailable():
    with Client("http://127.0.0.1:1", "wk_x") as client, pytest.raises(Unavailable, match="wakeful serve"):
        client.jobs.list()


@pytest.mark.parametrize(
    ("blocking", "inner"),
    [
        (sync.Jobs, wakeful.client.Jobs),
        (sync.Runs, wakeful.client.Runs),
        (sync.Agents, wakeful.client.admin.Agents),
        (sync.Keys, wakeful.client.admin.Keys),
        (sync.Audit, wakeful.client.admin.Audit),
        (sync.Quotas, wakeful.client.admin.Quotas),
        (sync.Workflows, wakeful.client.admin.Workflows),
        (Client, AsyncClient),
    ],
)
def test_the_sync_client_mirrors_the_async_client(blocking: type, inner: type):
    names = {name for name in dir(inner) if not name.startswith("_")}
    assert names <= set(dir(blocking))
    for name in names:
        method = getattr(inner, name)
        assert inspect.getdoc(getattr(blocking, name)), f"{name} says what it does"
        if callable(method):
            parameters = _parameters(getattr(blocking, name))
            if (blocking, name) == (sync.Runs, "wait"):  # the async one takes `asyncio.timeout`
                del parameters["timeout"]
            assert parameters == _parameters(method), name


def _parameters(method: Callable[..., object]) -> dict[str, tuple[object, object]]:
    found = inspect.signature(method).parameters.values()
    return {each.name: (each.kind, each.default) for each in found}


FORGETFUL = """
from wakeful import Client

client = Client()
client.jobs.create("digest", schedule="@daily", target={"kind": "pull"})
events = client.events(after=0)
print(next(events).job)
"""
# Processes started from a background shell may ignore SIGINT.
LISTENING = """
import signal

from wakeful import Client

signal.signal(signal.SIGINT, signal.default_int_handler)
with Client() as client:
    for event in client.events(after=0):
        print(event.job, flush=True)
"""


@on_one_store
async def test_a_program_that_does_not_close_the_client_or_is_interrupted_exits(new_app: NewApp):
    async with new_app() as app, served(app) as operator:
        environment = {**os.environ, "WAKEFUL_URL": operator.url, "WAKEFUL_KEY": operator.key or ""}

        async def started(program: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", program),
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )

        async with asyncio.timeout(2 * PATIENCE):
            forgetful = await started(FORGETFUL)
            assert await forgetful.communicate() == (b"digest\n", b"")
            assert forgetful.returncode == 0

            listening = await started(LISTENING)
            assert listening.stdout is not None
            assert await listening.stdout.readline() == b"digest\n"
            listening.send_signal(signal.SIGINT)
            _, said = await listening.communicate()
            assert said.endswith(b"KeyboardInterrupt\n")


async def test_a_client_works_in_a_fork_and_in_its_parent(program: Program[None]):
    def work(client: Client) -> None:
        assert client.ready()  # its thread and its connection are the parent's
        held, release = threading.Event(), threading.Event()

        def hold_the_lock() -> None:
            with client.portal._lock:
                held.set()
                release.wait(PATIENCE)

        other = threading.Thread(target=hold_the_lock)
        other.start()
        held.wait(PATIENCE)
        pid = os.fork()
        if pid == 0:
            signal.alarm(round(PATIENCE))  # ends a child that hangs
            works = client.ready() and client.jobs.list() == []
            client.close()
            os._exit(0 if works else 1)
        release.set()
        other.join()
        assert os.waitpid(pid, 0)[1] == 0
        assert client.ready()

    await program(work)


async def test_a_callback_of_a_wait_may_use_the_client(program: Program[None]):
    def work(client: Client) -> None:
        client.jobs.create("note", schedule=SELDOM, target=Function("note"))
        run = client.jobs.run("note")
        seen: list[tuple[str, int]] = []

        def look(found: Run) -> None:
            seen.append((client.runs.get(found.id).id, threading.get_ident()))

        over = client.runs.wait(run.id, timeout=PATIENCE, poll=0.01, on_poll=look)
        assert over.state == "succeeded"
        assert set(seen) == {(run.id, threading.get_ident())}

    await program(work)
