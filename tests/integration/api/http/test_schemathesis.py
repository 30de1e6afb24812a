"""The OpenAPI document is accurate: every response to a valid or invalid request conforms to it.

Schemathesis generates the requests from the document, valid and invalid. Generating one takes long, so each
is sent twice: as generated, and for existing resources.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.conftest import SELDOM
from tests.support.instances import agent_class
from tests.support.openapi import openapi_document
from wakeful import Wakeful
from wakeful.server.serve import serve
from wakeful.settings import Settings

_JOBS = "/api/workspaces/default/agents/default/jobs"
#: The first check: no request causes a server error.
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]

#: A stream does not end, and metrics are not JSON.
_LEFT_OUT = re.compile(r"/events$|^/metrics$")
OPERATIONS = [
    pytest.param(path, method.upper(), id=f"{method.upper()} {path}")
    for path, methods in openapi_document()["paths"].items()
    if not _LEFT_OUT.search(path)
    for method in methods
]

quickly = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


Case = schemathesis.Case[Any]


class Server(NamedTuple):
    """A server, and a client of it."""

    url: str
    headers: dict[str, str]
    session: requests.Session

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that succeeds; return its answer."""
        response = self.session.request(method, self.url + path, json=body, headers=self.headers)
        response.raise_for_status()
        return response.json()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server in its own thread, since schemathesis blocks on each response."""
    place: Path = tmp_path_factory.mktemp("schemathesis")
    begun = threading.Event()
    found: dict[str, object] = {}

    async def run() -> None:
        def started(url: str, app: Wakeful) -> None:
            found.update(url=url, app=app, loop=asyncio.get_running_loop(), task=asyncio.current_task())
            begun.set()

        try:
            await serve(
                Settings(
                    db=f"sqlite:///{place}/wakeful.db", port=0, secret_key="k", allow_private_targets=True
                ),
                started=started,
            )
        except asyncio.CancelledError:
            pass
        finally:
            begun.set()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="server")
    thread.start()
    assert begun.wait(120)
    loop = cast(asyncio.AbstractEventLoop, found["loop"])
    app = cast(Wakeful, found["app"])
    key = asyncio.run_coroutine_threadsafe(app.services.auth.keys.first_key(), loop).result(120)
    put_class = app.store.put_class(agent_class(agent="default"), app.store.clock.now_ms())
    asyncio.run_coroutine_threadsafe(put_class, loop).result(120)
    with requests.Session() as session:
        session.trust_env = False  # it would read files for each request
        yield Server(str(found["url"]), {"Authorization": f"Bearer {key}"}, session)
    loop.call_soon_threadsafe(cast("asyncio.Task[None]", found["task"]).cancel)
    thread.join(120)
    assert not thread.is_alive()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_responses_conform_to_the_document(path: str, method: str, server: Server):
    operation = _schema()[path][method]
    generated = strategies.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode])
    for number, strategy in (5, generated), *((1, each) for each in operation.get_strategies_from_examples()):

        @settings(quickly, max_examples=number)
        @given(strategy)
        def check(case: Case) -> None:
            _ask(case, server)
            if case.path_parameters:
                case.path_parameters.update(_existing(path, server))
                _ask(case, server)

        check()


@cache
def _schema() -> Any:
    return schemathesis.openapi.from_dict(openapi_document())


def _existing(path: str, server: Server) -> dict[str, Any]:
    """Create the resources that this path names, since requests may delete them; return its parameters."""
    parameters = re.findall(r"\{(\w+)\}", path)
    if {"agent", "name", "token"} & {*parameters}:
        target = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
        job: dict[str, Any] = {"schedule": SELDOM, "target": target, "enabled": True}
        server.send("PUT", f"{_JOBS}/digest", job)  # creates the agent too
    return {name: _CREATE[name](server) if name in _CREATE else _KNOWN[name] for name in parameters}


#: The parameters that are the same for all requests.
_KNOWN = {
    "workspace": "default",
    "agent": "default",
    "name": "digest",
    "session_id": "0123456789abcdef",
    "suggestion_id": "01980000-0000-7000-8000-000000000000",  # it needs days of runs
    "workflow_id": "invoices",
    "version": 1,
    "revision": 1,
    "channel": "ops",
}


def _run(server: Server) -> str:
    pulled: dict[str, Any] = {"schedule": SELDOM, "target": {"kind": "pull"}, "maxAttempts": 1}
    server.send("PUT", f"{_JOBS}/by-hand", pulled)
    return str(server.send("POST", f"{_JOBS}/by-hand/run")["id"])


def _instance(server: Server) -> str:
    server.send("POST", "/api/workspaces/default/agents/default/instances/default/start")
    return "default"


def _session(server: Server) -> str:
    server.send("POST", "/api/workspaces/default/agents/default/messages", {"message": "/stop"})
    return "main"


def _key(server: Server) -> str:
    return str(server.send("POST", "/api/workspaces/default/keys", {"name": "k", "role": "member"})["id"])


def _token(server: Server) -> str:
    return str(server.send("POST", f"{_JOBS}/digest/hook")["token"])


def _incident(server: Server) -> str:
    """Let a run fail if there is no incident; return the id of one."""
    home = "/api/workspaces/default"
    found = server.send("GET", f"{home}/incidents")["incidents"]
    if not found:
        _run(server)
        for run in server.send("POST", f"{home}/runs/claim", {"worker": "w", "limit": 100})["runs"]:
            end = {"status": "failed", "attempt": run["attempt"]}
            server.send("POST", f"{home}/runs/{run['id']}/complete", end)
        found = server.send("GET", f"{home}/incidents")["incidents"]
    return str(found[0]["id"])


#: What creates the resource of a parameter and returns its value.
_CREATE: dict[str, Callable[[Server], str]] = {
    "run_id": _run,
    "instance": _instance,
    "session": _session,
    "key_id": _key,
    "token": _token,
    "incident_id": _incident,
    "source": lambda server: "01890000-0000-7000-8000-000000000000",
    "item_id": lambda server: "approval:01890000-0000-7000-8000-000000000000",
    "subscription_id": lambda server: "sub_" + "0" * 32,
    "person_id": lambda server: "01890000-0000-7000-8000-000000000000",
}


def _ask(case: Case, server: Server) -> None:
    body: Any = case.body
    if isinstance(body, dict) and isinstance(body.get("waitMs"), int):
        body["waitMs"] = min(body["waitMs"], 10)  # no run comes, so do not wait
    case.call_and_validate(
        base_url=server.url, session=server.session, headers=server.headers, checks=_CHECKS
    )
