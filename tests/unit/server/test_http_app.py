"""A group of routes: it matches as its routes would one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.testclient import TestClient

from wakeful.server.http_app import RouteGroup


def route(path: str, method: str, text: str) -> Route:
    async def endpoint(request: Request) -> Response:
        return PlainTextResponse(f"{text} {request.path_params.get('name', '')}".strip())

    return Route(path, endpoint, methods=[method])


PAGES = (
    route("/pages/fixed", "GET", "fixed"),
    route("/pages/{name}", "POST", "changed"),
    route("/pages/{name}", "GET", "shown"),
)
OTHER = route("/other", "GET", "other")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[(method, "/pages/fixed") for method in ("GET", "POST", "PUT")],
        *[(method, "/pages/ada") for method in ("GET", "POST", "PUT")],
        ("GET", "/pages/ada/more"),
        ("GET", "/other"),
        ("GET", "/pages"),
    ],
)
def test_a_group_responds_as_its_routes(method: str, path: str) -> None:
    plain: list[BaseRoute] = [*PAGES, OTHER]
    grouped: list[BaseRoute] = [RouteGroup("/pages/", PAGES), OTHER]
    replies = [
        TestClient(Starlette(routes=routes)).request(method, path, follow_redirects=False)
        for routes in (plain, grouped)
    ]
    assert replies[0].status_code == replies[1].status_code
    assert replies[0].text == replies[1].text


def test_a_group_under_a_root_path_matches() -> None:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/base/pages/ada", "root_path": "/base"}
    match, child = RouteGroup("/pages/", PAGES).matches(scope)
    assert (match, child["path_params"]) == (Match.FULL, {"name": "ada"})
