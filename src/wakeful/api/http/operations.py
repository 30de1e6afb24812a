"""The declaration of an operation, and what follows from the parameters of its function.

A function that takes an `Idempotency-Key`, `If-Match` or a body has it in its parameters. So the document
says by itself that a response may be a stored one, a version stale, and a body too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from wakeful.api.http.dependencies import IN_TURN, SECURED, optional_document
from wakeful.api.http.direct import header_name
from wakeful.api.http.responses import REPLAYED, ref, responses
from wakeful.values.json_value import Json

#: The path of a workspace.
WORKSPACE: Final = "/api/workspaces/{workspace}"
F = TypeVar("F", bound=Callable[..., Any])


class ApiRouter(APIRouter):
    """Operations with one prefix, which all need a key: `ApiRouter("runs")`."""

    def __init__(self, tag: str | None = None, prefix: str = WORKSPACE) -> None:
        super().__init__(prefix=prefix, tags=[tag] if tag else None, dependencies=SECURED)

    def operation(
        self,
        route: str,
        summary: str,
        result: str | Mapping[int, str | None],
        *errors: int,
        body: tuple[str, Json] | dict[str, Any] | None = None,
        headers: tuple[str, ...] = (),
        tag: str | None = None,
        in_turn: bool = False,
    ) -> Callable[[F], F]:
        """Declare an operation: `@router.operation("POST /{run_id}/stop", "Stop a run", "Run", 409)`.

        `result` is the schema of the response, or the schemas by status, the usual one first. `errors` and
        `headers` of the responses are those that do not follow from the function. `body` is a schema with an
        example, or the content by media type. `in_turn`: it returns a list whose items may be large.
        """
        method, _, path = route.partition(" ")
        results = {200: result} if isinstance(result, str) else result
        if isinstance(body, tuple):
            body = {"application/json": {"schema": ref(body[0]), "example": body[1]}}

        def declare(function: F) -> F:
            self.add_api_route(
                path,
                function,
                methods=[method],
                summary=summary,
                status_code=next(iter(results)),
                tags=[tag] if tag else None,
                dependencies=IN_TURN if in_turn else None,
            )
            declared = cast(APIRoute, self.routes[-1])
            dependants = [*_all_dependants(declared.dependant)]
            names = {header_name(field) for each in dependants for field in each.header_params}
            found = [412] if "if-match" in names else []
            if body is not None:
                optional = any(each.call is optional_document for each in dependants)
                declared.openapi_extra = {"requestBody": {"required": not optional, "content": body}}
                found.append(413)
            kept = (*headers, REPLAYED) if "idempotency-key" in names else headers
            declared.responses = responses(results, *errors, *found, headers=kept)
            return function

        return declare


def _all_dependants(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from _all_dependants(each)
