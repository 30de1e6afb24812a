"""The authorization server of `/mcp`, for assistants that people connect with its address alone.

The protocol is the library's: metadata, requests, PKCE, errors. Clients are public: they have no secrets, so
an authorization code is protected by PKCE and by its redirect address. A client is known by the address of
its metadata document, or registers itself. The page on which a person approves is `dashboard.consent`.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

from mcp.server.auth.handlers.metadata import MetadataHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.revoke import RevocationHandler
from mcp.server.auth.handlers.token import TokenErrorResponse, TokenHandler
from mcp.server.auth.json_response import PydanticJSONResponse
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.server.auth.routes import cors_middleware
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import (
    DEFAULT_GRANT_TYPES,
    InvalidRedirectUriError,
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wakeful.api.http.dependencies import address_of, services_of
from wakeful.api.http.oauth import MCP, own_issuer
from wakeful.api.http.problems import Malformed
from wakeful.errors import InvalidArgument, NotFound
from wakeful.service.auth.oauth import ACCESS_MS, Approval, OAuthTokenRow
from wakeful.service.services import Services

METADATA: Final = "/.well-known/oauth-authorization-server"
AUTHORIZE: Final = "/oauth/authorize"
TOKEN: Final = "/oauth/token"
REGISTER: Final = "/oauth/register"
REVOKE: Final = "/oauth/revoke"
#: The only scope. What an assistant may do is chosen by the person.
SCOPE: Final = "mcp"
_MOST_REDIRECTS: Final = 20
_LONGEST_REDIRECT: Final = 1_000
_LONGEST_DOCUMENT: Final = 10_240
_FORM: Final = "application/x-www-form-urlencoded"
#: Schemes whose addresses run or show what they contain.
_REFUSED_SCHEMES: Final = frozenset("javascript data file blob about vbscript ftp ws wss".split())


class Client(OAuthClientInformationFull):
    """A client, with redirect addresses and scopes as this server reads them."""

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Return a registered address; at this computer, the port may be another (RFC 8252)."""
        if redirect_uri is not None and any(
            _without_port(redirect_uri) == _without_port(known) for known in self.redirect_uris or ()
        ):
            return redirect_uri
        return super().validate_redirect_uri(redirect_uri)

    def validate_scope(self, requested_scope: str | None) -> list[str]:
        """Return the only scope, whatever is requested: the response to the client names it."""
        return [SCOPE]


class Code(AuthorizationCode):
    """A code with what a person approved."""

    approval: Approval


class Refresh(RefreshToken):
    """A refresh token with its row."""

    row: OAuthTokenRow


class Access(AccessToken):
    """An access token with its row."""

    row: OAuthTokenRow


class Asked(NamedTuple):
    """A valid authorization request."""

    client: Client
    params: AuthorizationParams


class Provider(OAuthAuthorizationServerProvider[Code, Refresh, Access]):
    """What the library asks of this server, for one request.

    With `fetches`, metadata documents are fetched; without it, a client is known once a person approved it.
    """

    def __init__(self, services: Services, issuer: str, *, fetches: bool = False) -> None:
        self._services = services
        self._oauth = services.auth.oauth
        self._resource = issuer + MCP
        self._fetches = fetches
        #: the authorization request, if it is valid
        self.asked: Asked | None = None
        #: why a metadata document cannot be used
        self.problem: str | None = None

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Return a client."""
        documents = self._services.auth.client_documents
        try:
            if self._fetches and documents.is_address(client_id):
                return read_document(client_id, await documents.fetch(client_id))
        except InvalidArgument as error:
            self.problem = error.message
            return None
        row = await self._oauth.client(client_id)
        return None if row is None else Client.model_validate_json(row.document)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Add a client that registers itself. It gets no secret, whatever it asked for."""
        try:
            check_client(client_info)
            await self._oauth.register(client_info.client_id, _stored(client_info))
        except InvalidRedirectUriError as error:
            raise RegistrationError("invalid_redirect_uri", error.message) from error
        except InvalidArgument as error:
            raise RegistrationError("invalid_client_metadata", error.message) from error

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Keep a valid request; the page asks the person then."""
        if params.resource is not None and params.resource.rstrip("/") != self._resource:
            raise AuthorizeError(
                "invalid_target", f"resource: this server issues tokens for {self._resource}"
            )
        assert isinstance(client, Client)
        self.asked = Asked(client, params.model_copy(update={"resource": self._resource}))
        return self._resource

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> Code | None:
        """Return a code that can be exchanged."""
        found = await self._oauth.find_approval(authorization_code, client.client_id)
        if found is None or found.resource != self._resource:
            return None
        return Code(
            code=authorization_code,
            scopes=[SCOPE],
            expires_at=float("inf"),  # checked already, with the clock of the database
            client_id=client.client_id,
            code_challenge=found.code_challenge,
            redirect_uri=AnyUrl(found.redirect_uri),
            redirect_uri_provided_explicitly=found.redirect_uri_given,
            resource=found.resource,
            approval=found,
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: Code
    ) -> OAuthToken:
        """Return the first tokens of a grant."""
        code, approval = authorization_code.code, authorization_code.approval
        return _response(await self._oauth.exchange_code(code, client.client_id, approval))

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> Refresh | None:
        """Return a refresh token that can be exchanged."""
        row = await self._oauth.find_token(refresh_token, client.client_id)
        if row is None or row.kind != "refresh" or row.resource != self._resource:
            return None
        return Refresh(token=refresh_token, client_id=row.client_id, scopes=[SCOPE], row=row)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: Refresh, scopes: list[str]
    ) -> OAuthToken:
        """Return the next tokens of a grant."""
        return _response(await self._oauth.refresh(refresh_token.row))

    async def load_access_token(self, token: str) -> Access | None:
        """Return an access token, to revoke it; `OAuthService.authenticate` is for calls."""
        row = await self._oauth.find_token(token)
        if row is None or row.kind != "access":
            return None
        return Access(token=token, client_id=row.client_id, scopes=[SCOPE], row=row)

    async def revoke_token(self, token: Access | Refresh) -> None:
        """End the grant of a token."""
        await self._oauth.revoke(token.row)


def check_client(client: OAuthClientInformationFull) -> None:
    """Make a client public, and raise InvalidArgument or InvalidRedirectUriError if it cannot be accepted."""
    uris = client.redirect_uris or []
    if not 1 <= len(uris) <= _MOST_REDIRECTS:
        raise InvalidArgument(f"redirect_uris: give 1 to {_MOST_REDIRECTS} addresses")
    for uri in uris:
        _check_redirect(uri)
    client.token_endpoint_auth_method = "none"
    client.client_secret = client.client_secret_expires_at = None
    client.grant_types, client.scope = list(DEFAULT_GRANT_TYPES), SCOPE
    if len(_stored(client)) > _LONGEST_DOCUMENT:
        raise InvalidArgument(f"the metadata has more than {_LONGEST_DOCUMENT} characters")


def read_document(client_id: str, document: bytes) -> Client:
    """Return the client of a metadata document, or raise InvalidArgument."""
    try:
        content = json.loads(document)
        if not isinstance(content, dict) or content.get("client_id") != client_id:
            raise InvalidArgument("client_id: the document at its address does not have the same client_id")
        client = Client.model_validate(content)
        check_client(client)
    except InvalidRedirectUriError as error:
        raise InvalidArgument(error.message) from error
    except (ValidationError, ValueError, RecursionError) as error:
        raise InvalidArgument("client_id: the document at its address is not client metadata") from error
    return client


def is_local(uri: AnyUrl) -> bool:
    """Return whether an address is one of the computer of the person."""
    return uri.scheme == "http" and _is_loopback(uri.host or "")


def _check_redirect(uri: AnyUrl) -> None:
    text = str(uri)
    if uri.scheme in _REFUSED_SCHEMES or (uri.scheme == "http" and not is_local(uri)):
        raise InvalidRedirectUriError(f"redirect_uris: {text[:200]}: use https, or http at localhost")
    if uri.fragment is not None or uri.username or uri.password or len(text) > _LONGEST_REDIRECT:
        raise InvalidRedirectUriError(
            f"redirect_uris: {text[:200]}: an address has no fragment, no user, and at most "
            f"{_LONGEST_REDIRECT} characters"
        )
    if uri.scheme == "https" and not uri.host:
        raise InvalidRedirectUriError(f"redirect_uris: {text[:200]}: it has no host")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(uri: AnyUrl) -> object:
    return (uri.host, uri.path, uri.query) if is_local(uri) else uri


def _stored(client: OAuthClientInformationFull) -> str:
    return client.model_dump_json(exclude_none=True)


def _response(tokens: tuple[str, str] | None) -> OAuthToken:
    if tokens is None:
        raise TokenError("invalid_grant", "it was used already, or has ended")
    access, refresh = tokens
    return OAuthToken(access_token=access, expires_in=ACCESS_MS // 1_000, scope=SCOPE, refresh_token=refresh)


# --- routes ---------------------------------------------------------------------------------------------

_REGISTRATION: Final = ClientRegistrationOptions(enabled=True, default_scopes=[SCOPE])


def routes() -> list[Route]:
    """Return the routes of the authorization server, except the page of the person."""
    return [
        _route(METADATA, _metadata, "GET"),
        _route(TOKEN, _token, "POST"),
        _route(REGISTER, _register, "POST"),
        _route(REVOKE, _revoke, "POST"),
    ]


def _route(path: str, handle: Callable[[Request], Awaitable[Response]], method: str) -> Route:
    methods = [method, "OPTIONS"]
    return Route(path, cors_middleware(handle, methods), methods=methods, include_in_schema=False)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, or raise Malformed. Files are not read."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Malformed(f"the body is not a form; send {_FORM}")
    return {name: value for name, value in (await request.form()).items() if isinstance(value, str)}


def issuer_of(request: Request) -> str:
    """Return the issuer, which is the address of this server. NotFound: it has no authorization server."""
    issuer = own_issuer(request)
    if issuer is None:
        raise NotFound("this server connects no assistants by OAuth; send an API key in a header")
    return issuer


async def _metadata(request: Request) -> Response:
    issuer = issuer_of(request)
    metadata = OAuthMetadata.model_validate(
        {
            "issuer": issuer,
            "authorization_endpoint": issuer + AUTHORIZE,
            "token_endpoint": issuer + TOKEN,
            "registration_endpoint": issuer + REGISTER,
            "revocation_endpoint": issuer + REVOKE,
            "scopes_supported": [SCOPE],
            "grant_types_supported": DEFAULT_GRANT_TYPES,
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": True,
            "authorization_response_iss_parameter_supported": True,
        }
    )
    return await MetadataHandler(metadata).handle(request)


async def _token(request: Request) -> Response:
    issuer = issuer_of(request)
    resource = (await read_form(request)).get("resource")
    if resource and resource.rstrip("/") != issuer + MCP:
        error = TokenErrorResponse(error="invalid_target", error_description=f"resource: use {issuer}{MCP}")
        return PydanticJSONResponse(error, 400, {"Cache-Control": "no-store"})
    provider = Provider(services_of(request), issuer)
    response = await TokenHandler(provider, ClientAuthenticator(provider)).handle(request)
    return cast(Response, response)


async def _register(request: Request) -> Response:
    issuer, services = issuer_of(request), services_of(request)
    services.auth.oauth.count_registration(address_of(request))
    return await RegistrationHandler(Provider(services, issuer), _REGISTRATION).handle(request)


async def _revoke(request: Request) -> Response:
    provider: Any = Provider(services_of(request), issuer_of(request))
    form = await read_form(request)
    if "client_secret" not in form:  # the library requires the field, also of clients without a secret
        request._form = FormData({**form, "client_secret": ""})
    return await RevocationHandler(provider, ClientAuthenticator(provider)).handle(request)
