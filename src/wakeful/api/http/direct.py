"""Direct calls of routes, without the cost of the framework's routing and dependency solving.

A route is declared once, with FastAPI. From this declaration follow the OpenAPI document and, for most
routes, a direct call: the dependencies in their order, then the endpoint. The framework handles all other
requests: those with a query string, and those of routes that need more than paths, headers and plain
dependencies (`plan_of`). The results are the same; a test sends requests both ways.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, get_type_hints

from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wakeful.api.http.root_path import route_path

#: Takes the request and the results of the dependencies before it; returns an argument.
_Get = Callable[[Request, list[Any]], object]
_Handlers = Mapping[Any, Callable[[Request, Any], Any]]
#: The types of defaults that calls can share.
_SHARED: Final = (type(None), str, int, float, bool, tuple)
#: The types of parameters that need no conversion.
_TEXTS: Final = (str, str | None)


class _Call(NamedTuple):
    """A function, and where its arguments come from."""

    function: Callable[..., Awaitable[Any]]
    arguments: tuple[tuple[str, _Get], ...]

    def begin(self, request: Request, results: list[Any]) -> Awaitable[Any]:
        return self.function(**{name: get(request, results) for name, get in self.arguments})


class Plan(NamedTuple):
    """How the endpoint of a route is called."""

    dependencies: tuple[_Call, ...]
    endpoint: _Call

    async def respond(self, request: Request) -> Response:
        """Call the dependencies, then the endpoint."""
        results: list[Any] = []
        for each in self.dependencies:
            results.append(await each.begin(request, results))
        response: Response = await self.endpoint.begin(request, results)
        return response


class _NotDirect(Exception):
    """The framework must handle the route."""


def plan_of(route: APIRoute) -> Plan | None:
    """Return how to call the endpoint of a route directly; None: the framework must."""
    try:
        if type(route) is not APIRoute:  # its class has a handler of its own, as that of pages
            raise _NotDirect
        if get_type_hints(route.endpoint).get("return") is not Response:
            raise _NotDirect
        calls: list[_Call] = []
        endpoint = _call_of(route.dependant, calls, {})
        return Plan(tuple(calls), endpoint)
    except _NotDirect:
        return None


def _call_of(dependant: Dependant, calls: list[_Call], known: dict[object, int]) -> _Call:
    """Return the call of a function; append those of its dependencies, each once."""
    if dependant.call is None or not inspect.iscoroutinefunction(dependant.call):
        raise _NotDirect  # a thread, or something to close at the end
    others = (
        dependant.cookie_params,
        dependant.body_params,
        dependant.websocket_param_name,
        dependant.http_connection_param_name,
        dependant.response_param_name,
        dependant.background_tasks_param_name,
        dependant.security_scopes_param_name,
    )
    if any(others):
        raise _NotDirect
    arguments: list[tuple[str, _Get]] = []
    for each in dependant.dependencies:
        function: object = each.call
        if each.name is None and isinstance(function, SecurityBase):
            continue  # it is there for the document
        if each.call not in known or not each.use_cache:
            call = _call_of(each, calls, known)
            known[each.call] = len(calls)
            calls.append(call)
        if each.name is not None:
            arguments.append((each.name, _result_getter(known[each.call])))
    if dependant.request_param_name is not None:
        arguments.append((dependant.request_param_name, lambda request, results: request))
    for field in dependant.path_params:
        _check_text(field.field_info)
        arguments.append((field.name, _path_getter(field.name)))
    for field in dependant.header_params:
        _check_text(field.field_info)
        arguments.append((field.name, _header_getter(header_name(field), _default_of(field.field_info))))
    arguments += [
        (field.name, _value_getter(_default_of(field.field_info))) for field in dependant.query_params
    ]
    return _Call(dependant.call, tuple(arguments))


def header_name(field: ModelField) -> str:
    """Return the name of the header that a parameter takes."""
    return field.alias if field.alias != field.name else field.name.replace("_", "-")


def _check_text(info: Any) -> None:
    if info.annotation not in _TEXTS or info.metadata:
        raise _NotDirect


def _default_of(info: Any) -> object:
    if info.is_required() or not isinstance(info.default, _SHARED):
        raise _NotDirect
    return info.default


def _result_getter(number: int) -> _Get:
    return lambda request, results: results[number]


def _path_getter(name: str) -> _Get:
    return lambda request, results: request.scope["path_params"][name]


def _header_getter(name: str, default: object) -> _Get:
    return lambda request, results: request.headers.get(name, default)


def _value_getter(value: object) -> _Get:
    return lambda request, results: value


class _Node:
    """The routes of a method below a part of the path."""

    __slots__ = ("any", "parts", "route")

    def __init__(self) -> None:
        self.parts: dict[str, _Node] = {}
        self.any: _Node | None = None
        #: the place of a route in the list
        self.route: int | None = None


class DirectRoutes:
    """Calls routes directly where that is possible, and otherwise the app that it wraps."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], handlers: _Handlers) -> None:
        self._app = app
        self._handlers = handlers
        self._routes: list[tuple[Route, tuple[str, ...]]] = []
        #: the plans of the routes that have been requested: all of them would delay the start
        self._plans: dict[int, Plan | None] = {}
        self._roots: dict[str, _Node] = {}
        for route in routes:
            if isinstance(route, Route) and not any(":" in part for part in _parts(route.path)):
                self._add(route)

    def _add(self, route: Route) -> None:
        parts = _parts(route.path)
        names = tuple(part[1:-1] for part in parts if part.startswith("{"))
        for method in route.methods or ():
            node = self._roots.setdefault(method, _Node())
            for part in parts:
                if part.startswith("{"):
                    node.any = node.any or _Node()
                    node = node.any
                else:
                    node = node.parts.setdefault(part, _Node())
            if node.route is None:
                node.route = len(self._routes)
        self._routes.append((route, names))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str], Plan] | None:
        """Return the first route that matches, with the parameters of its path; None: the framework must."""
        root = self._roots.get(method)
        if root is None:
            return None
        parts = _parts(path)
        place = _first(root, parts, 0)
        if place is None:
            return None
        route, names = self._routes[place]
        if place not in self._plans:
            self._plans[place] = plan_of(route) if isinstance(route, APIRoute) else None
        plan = self._plans[place]
        if plan is None:
            return None
        declared = _parts(route.path)
        values = [part for part, each in zip(parts, declared, strict=True) if each.startswith("{")]
        return route, dict(zip(names, values, strict=True)), plan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        found = None
        if scope["type"] == "http" and not scope["query_string"]:
            found = self.find(scope["method"], route_path(scope))
        if found is None:
            await self._app(scope, receive, send)
            return
        route, scope["path_params"], plan = found
        scope["route"], scope["endpoint"] = route, route.endpoint
        request = Request(scope, receive, send)
        started = False

        async def respond(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            response = await plan.respond(request)
            await response(scope, receive, respond)
        except Exception as error:
            handler = next(
                (self._handlers[each] for each in type(error).__mro__ if each in self._handlers), None
            )
            if handler is None or started:
                raise
            response = await handler(request, error)
            await response(scope, receive, send)


def _parts(path: str) -> list[str]:
    return path.split("/")


def _first(node: _Node, parts: list[str], depth: int) -> int | None:
    """Return the place of the first route that matches the rest of a path."""
    if depth == len(parts):
        return node.route
    part = parts[depth]
    found: int | None = None
    following = node.parts.get(part)
    if following is not None:
        found = _first(following, parts, depth + 1)
    if node.any is not None and part:
        other = _first(node.any, parts, depth + 1)
        if found is None or (other is not None and other < found):
            found = other
    return found
