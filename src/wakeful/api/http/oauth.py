"""OAuth protected-resource metadata (RFC 9728): where a client gets a token that this server accepts.

It exists if the issuer of the tokens (`WAKEFUL_JWT_ISSUER`) is a URL. A 401 response then names the document,
so that an MCP client finds the authorization server.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from wakeful.api.http.root_path import route_path
from wakeful.errors import NotFound

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
#: The resource with a document of its own; all others use that of the server.
_MCP: Final = "/mcp"

router = APIRouter(include_in_schema=False)


@router.get(WELL_KNOWN)
async def get_protected_resource(request: Request) -> Response:
    """Return the metadata of the server."""
    return _metadata(request, "")


@router.get(WELL_KNOWN + _MCP)
async def get_protected_mcp(request: Request) -> Response:
    """Return the metadata of /mcp."""
    return _metadata(request, _MCP)


def challenge(request: Request) -> str:
    """Return the header WWW-Authenticate of a 401 response."""
    scheme = 'Bearer realm="wakeful"'
    if _issuer(request) is None:
        return scheme
    resource = _MCP if route_path(request.scope) == _MCP else ""
    return f'{scheme}, resource_metadata="{_base(request)}{WELL_KNOWN}{resource}"'


def _metadata(request: Request, resource: str) -> Response:
    issuer = _issuer(request)
    if issuer is None:
        raise NotFound("no token issuer is configured; send an API key: 'Authorization: Bearer wk_…'")
    return JSONResponse(
        {
            "resource": f"{_base(request)}{resource}",
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Wakeful",
        }
    )


def _issuer(request: Request) -> str | None:
    issuer: str | None = request.app.state.services.auth.issuer
    return issuer if issuer is not None and issuer.startswith(("https://", "http://")) else None


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")
