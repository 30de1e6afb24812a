"""Checks that refuse query parameters and body fields that a route does not declare.

The names come from the route: its query parameters, and the schema of its `request_body(…)`. So the check
applies to every route, and a new parameter is accepted as soon as the route declares it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request

from wakeful.api.http.schemas import SCHEMAS
from wakeful.errors import InvalidArgument

_SHOWN: Final = 5
_LONGEST_NAME: Final = 64


def check_query(request: Request) -> None:
    """Raise InvalidArgument for a query parameter that the route does not declare."""
    if request.scope["query_string"]:
        refuse_unknown(request.query_params, _query_names(request.scope["route"]), "parameter")


def check_fields(request: Request, fields: Iterable[str]) -> None:
    """Raise InvalidArgument for a body field that the schema of the route does not declare."""
    names = _field_names(request.scope["route"])
    if names is not None:
        refuse_unknown(fields, names, "field")


def declares_body(request: Request) -> bool:
    """Return whether the route declares a body."""
    return "requestBody" in (request.scope["route"].openapi_extra or {})


def refuse_unknown(given: Iterable[str], known: tuple[str, ...], kind: str) -> None:
    """Raise InvalidArgument with the unknown names among parameters or fields, and the known ones."""
    unknown = [name[:_LONGEST_NAME] for name in dict.fromkeys(given) if name not in known]
    if unknown:
        none = "there is no such" if len(unknown) == 1 else "there are no such"
        kinds = kind if len(unknown) == 1 else f"{kind}s"
        choice = f"there are {', '.join(known)}" if known else f"this path takes no {kind}s"
        raise InvalidArgument(f"{', '.join(unknown[:_SHOWN])}: {none} {kinds}; {choice}")


def _query_names(route: APIRoute) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_parameters(route.dependant)))


def _parameters(dependant: Dependant) -> Iterable[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def _field_names(route: APIRoute) -> tuple[str, ...] | None:
    """Return the fields of the body; None if any are allowed."""
    content = (route.openapi_extra or {})["requestBody"]["content"]["application/json"]
    schema = SCHEMAS[content["schema"]["$ref"].rpartition("/")[2]]
    return None if schema.get("additionalProperties", True) else tuple(schema["properties"])
