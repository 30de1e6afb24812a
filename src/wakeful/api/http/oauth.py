"""OAuth protected-resource metadata (RFC 9728): where a client gets a token that this server accepts.

It exists if the issuer of the tokens (`WAKEFUL_JWT_ISSUER`) is a URL. Without one, this server issues the
tokens for `/mcp` itself (`api.mcp.oauth`). A 401 response then names the document, so that an MCP client
finds the authorization server.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from wakeful.api.http.root_path import HOST_USER, route_path
from wakeful.errors import NotFound

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
#: The resource with a document of its own; all others use that of the server.
MCP: Final = "/mcp"

router = APIRouter(include_in_schema=False)


@router.get(WELL_KNOWN)
async def get_protected_resource(request: Request) -> Response:
    """Return the metadata of the server."""
    return _metadata(request, "")


@router.get(WELL_KNOWN + MCP)
async def get_protected_mcp(request: Request) -> Response:
    """Return the metadata of /mcp."""
    return _metadata(request, MCP)


def challenge(request: Request) -> str:
    """Return the header WWW-Authenticate of a 401 response."""
    scheme = 'Bearer realm="wakeful"'
    resource = MCP if route_path(request.scope) == MCP else ""
    own = own_issuer(request) if resource else None
    if own is None and _issuer(request) is None:
        return scheme
    if own is not None and "authorization" in request.headers:
        scheme += ', error="invalid_token"'
    return f'{scheme}, resource_metadata="{own or _base(request)}{WELL_KNOWN}{resource}"'


def own_issuer(request: Request) -> str | None:
    """Return the address of this server as the issuer of tokens for /mcp; None: it issues none.

    OAuth needs HTTPS, except on this computer. The users of a host application sign in there.
    """
    services, is_served = request.app.state.services, getattr(request.app.state, "oauth", False)
    if not is_served or not services.auth.oauth_enabled or HOST_USER in request.scope:
        return None
    base: str = services.public_url or _base(request)
    url = urlsplit(base)
    is_local = url.hostname in ("localhost", "127.0.0.1", "::1")
    return base if url.scheme == "https" or is_local else None


def _metadata(request: Request, resource: str) -> Response:
    own = own_issuer(request) if resource else None
    issuer = own or _issuer(request)
    if issuer is None:
        raise NotFound("no token issuer is configured; send an API key: 'Authorization: Bearer wk_…'")
    return JSONResponse(
        {
            "resource": f"{own or _base(request)}{resource}",
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Wakeful",
            **({"scopes_supported": ["mcp"]} if own else {}),
        },
        # the clients of web pages read it
        headers={"Access-Control-Allow-Origin": "*"},
    )


def _issuer(request: Request) -> str | None:
    issuer: str | None = request.app.state.services.auth.issuer
    return issuer if issuer is not None and issuer.startswith(("https://", "http://")) else None


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")
