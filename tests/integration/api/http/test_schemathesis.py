"""The OpenAPI document is accurate: every response to a valid or invalid request conforms to it.

Schemathesis generates the requests from the document, valid and invalid. Generating one takes long, so each
is sent twice: as generated, and for existing resources.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
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
from wakeful.api.server import serve
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
    url: str
    headers: dict[str, str]


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
    key = asyncio.run_coroutine_threadsafe(app.services.keys.first_key(), loop).result(120)
    put_class = app.store.put_class(agent_class(agent="default"), app.store.clock.now_ms())
    asyncio.run_coroutine_threadsafe(put_class, loop).result(120)
    yield Server(str(found["url"]), {"Authorization": f"Bearer {key}"})
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
    """Create the resources that paths name; return the parameters of this path."""
    with requests.Session() as session:
        session.headers.update(server.headers)
        target = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
        job: dict[str, Any] = {"schedule": SELDOM, "target": target, "enabled": True}
        session.put(f"{server.url}{_JOBS}/digest", json=job).raise_for_status()
        pulled: dict[str, Any] = {"schedule": SELDOM, "target": {"kind": "pull"}, "maxAttempts": 1}
        session.put(f"{server.url}{_JOBS}/by-hand", json=pulled).raise_for_status()
        incident = _incident(session, server)
        instance = f"{server.url}/api/workspaces/default/agents/default/instances/default"
        session.post(f"{instance}/start").raise_for_status()
        messages = f"{server.url}/api/workspaces/default/agents/default/messages"
        session.post(messages, json={"message": "/stop"}).raise_for_status()  # adds the session `main`
        run = session.post(f"{server.url}{_JOBS}/by-hand/run").json()
        hook = session.post(f"{server.url}{_JOBS}/digest/hook").json()
        key = session.post(f"{server.url}/api/workspaces/default/keys", json={"name": "k", "role": "member"})
    known = {
        "workspace": "default",
        "agent": "default",
        "name": "digest",
        "instance": "default",
        "session": "main",
        "run_id": run["id"],
        "key_id": key.json()["id"],
        "session_id": "0123456789abcdef",
        "incident_id": incident,
        "suggestion_id": "01980000-0000-7000-8000-000000000000",  # it needs days of runs
        "token": hook["token"],
        "workflow_id": "invoices",
        "version": 1,
        "revision": 1,
        "channel": "ops",
    }
    return {name: known[name] for name in re.findall(r"\{(\w+)\}", path)}


def _incident(session: requests.Session, server: Server) -> str:
    """Let a run fail if there is no incident; return the id of one."""
    home = f"{server.url}/api/workspaces/default"
    found = session.get(f"{home}/incidents").json()["incidents"]
    if not found:
        session.post(f"{server.url}{_JOBS}/by-hand/run").raise_for_status()
        for run in session.post(f"{home}/runs/claim", json={"worker": "w", "limit": 100}).json()["runs"]:
            end = {"status": "failed", "attempt": run["attempt"]}
            session.post(f"{home}/runs/{run['id']}/complete", json=end).raise_for_status()
        found = session.get(f"{home}/incidents").json()["incidents"]
    return str(found[0]["id"])


def _ask(case: Case, server: Server) -> None:
    body: Any = case.body
    if isinstance(body, dict) and isinstance(body.get("waitMs"), int):
        body["waitMs"] = min(body["waitMs"], 10)  # no run comes, so do not wait
    case.call_and_validate(base_url=server.url, headers=server.headers, checks=_CHECKS)
