"""Requests that routes handle directly have the results of those that the framework handles."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match

from tests.integration.api.http.test_conformance import Operation, create_known, operations
from tests.integration.conftest import QUICK
from tests.support.api_client import ApiClient, served
from tests.support.effort import part
from tests.support.sqlite_files import fresh_file
from wakeful import Wakeful
from wakeful.api.http.direct import DirectRoutes, plan_of
from wakeful.server.http_app import create_app
from wakeful.service.services import Services

APP = create_app(cast(Services, None), direct=False)
ROUTES = [route for route in APP.router.routes if isinstance(route, APIRoute)]
DIRECT = DirectRoutes(APP, APP.router.routes, APP.exception_handlers)
#: What differs between two servers: ids, tokens, instants, and the time since.
_CHANGING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{12,}\b|(?:wk|wl|whsec|hook)_[\w+/=-]+|/hooks/[\w-]+"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d+(?:\.\d+)?\b"
)
#: These measure the process: only the status and the headers are compared.
_MEASURED = ("/metrics", "/status", "/slo", "/doctor", "/workers", "/peaks", "/test-target")


class Request(NamedTuple):
    body: Any = None
    data: bytes | None = None
    headers: dict[str, str] = {}
    key: bool = True
    times: int = 1


def requests_of(operation: Operation) -> Iterator[Request]:
    """Return good and bad requests of an operation."""
    declared = operation.about.get("requestBody", {"content": {"application/json": {}}})
    example = declared["content"]["application/json"].get("example")
    if isinstance(example, dict) and "waitMs" in example:
        example = {**example, "waitMs": 0}
    yield Request(key=False)
    yield Request(data=b"{")
    yield Request(data=b"[1]")
    yield Request(data=b"\xff")
    yield Request({"surprise": 1})
    yield Request(example, headers={"If-Match": '"99"', "Idempotency-Key": "x" * 300})
    yield Request(example, headers={"If-Match": "nonsense", "If-None-Match": "nonsense"})
    yield Request(headers={"Content-Type": "text/plain"}, data=b"x")
    yield Request(example, headers={"Idempotency-Key": f"{operation.about['operationId']}"}, times=2)


def without_changes(value: object, known: dict[str, str]) -> str:
    """Return a text without what differs between two servers."""
    text = str(value)
    for name, each in known.items():
        if len(each) > 20:
            text = text.replace(each, f"<{name}>")
    return _CHANGING.sub("<>", text)


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[list[tuple[ApiClient, dict[str, str]]]]:
    """Return clients of two servers with the same resources: the first one has direct calls."""
    async with AsyncExitStack() as stack:
        found = []
        for direct in (True, False):
            url = f"sqlite:///{fresh_file(tmp_path / f'{10 + direct}.db')}"
            app = Wakeful(url, config=QUICK, secret_key="a key for tests", allow_private_targets=True)
            await stack.enter_async_context(app)
            client = await stack.enter_async_context(served(app, direct=direct))
            found.append((client, await create_known(client)))
        yield found


async def test_requests_of_every_operation_have_the_same_results(
    both: list[tuple[ApiClient, dict[str, str]]],
):
    # Those that remove what others need are last.
    all_operations = sorted(operations(), key=lambda each: (each.method == "DELETE", each.method != "GET"))
    for number, operation in enumerate(all_operations):
        if operation.about["operationId"] == "streamEvents":
            continue  # it does not end
        chosen = part(requests_of(operation), start=number)
        for request in (each for each in chosen for _ in range(each.times)):
            results = []
            for client, known in both:
                sender = client if request.key else client.with_key(None)
                path = operation.path.format(**known)
                reply = await sender(
                    operation.method, path, request.body, data=request.data, headers=request.headers
                )
                headers = sorted(name.lower() for name in reply.headers)
                body = "" if operation.path.endswith(_MEASURED) else without_changes(reply.body, known)
                results.append((reply.status, headers, body))
            assert results[0] == results[1], (operation.method, operation.path, request)


def test_most_routes_are_called_directly():
    """A route with a query parameter of any kind is among them: its default is known."""
    hot = {
        "claim_runs", "heartbeat_run", "heartbeat_runs", "complete_run", "complete_runs", "get_job",
        "create_job", "run_job", "get_run", "fire_hook", "send_signals", "upsert_job", "update_job",
    }  # fmt: skip
    direct = {route.name for route in ROUTES if plan_of(route) is not None}
    assert hot <= direct
    assert len(direct) > 0.8 * len(ROUTES)
    assert not any(plan_of(route) for route in ROUTES if type(route) is not APIRoute)


paths = st.sampled_from([route.path for route in ROUTES]).flatmap(
    lambda path: st.tuples(
        *(
            st.one_of(
                st.sampled_from(["a", "claim", "bulk", "jobs", "run", "", "%", "ü", "a.b", "{name}"])
                if part.startswith("{")
                else st.just(part),
                st.just(part),
            )
            for part in path.split("/")
        )
    ).map("/".join)
)


@given(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"]), paths)
def test_the_route_of_a_path_is_the_one_that_the_framework_finds(method: str, path: str):
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    expected = next(
        (
            (route, child["path_params"])
            for route in APP.router.routes
            for match, child in [route.matches(scope)]
            if match is Match.FULL
        ),
        None,
    )
    found = DIRECT.find(method, path)
    if found is not None:
        assert expected is not None
        assert (found[0], found[1]) == expected
    elif expected is not None and isinstance(expected[0], APIRoute):
        # Names of instances may have slashes: the framework finds their routes.
        assert ":" in expected[0].path or plan_of(expected[0]) is None
