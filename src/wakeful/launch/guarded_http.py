"""The HTTP client of launchers: connects to allowed addresses only, and what its errors mean."""

from __future__ import annotations

import ssl
from typing import Final

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientPayloadError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
)

from wakeful.launch.address_guard import AddressGuard, AddressRefused, GuardedResolver
from wakeful.launch.http_response import LimitedResponse, TooManyInterimResponses
from wakeful.launch.port import truncate
from wakeful.outcome import Failed

#: Shorter than the idle timeout of common servers (5 s), so that no request meets a closed connection.
_KEEP_ALIVE_S: Final = 4.0
_DNS_TTL_S: Final = 30


def guarded_session(
    guard: AddressGuard,
    resolver: GuardedResolver,
    *,
    connections: int,
    per_host: int,
    tls: ssl.SSLContext | None = None,
) -> ClientSession:
    """Return a client without proxies or credentials of the environment, and without cookies or timeouts."""
    connector = TCPConnector(
        resolver=resolver,
        socket_factory=guard.socket,
        ttl_dns_cache=_DNS_TTL_S,
        limit=connections,
        limit_per_host=per_host,
        keepalive_timeout=_KEEP_ALIVE_S,
        ssl=tls or True,
    )
    return ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None),
        auto_decompress=False,
        trust_env=False,
        response_class=LimitedResponse,
    )


def connection_failure(error: Exception) -> Failed:
    """Return the failure of a connection that could not be opened, or broke."""
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    if isinstance(cause, AddressRefused):
        return Failed(truncate(str(cause)), permanent=True, reason="address_refused")
    if isinstance(error, InvalidURL):
        return Failed(truncate(f"target: {error}"), permanent=True, reason="invalid_target")
    if isinstance(error, ServerDisconnectedError):
        message = "the connection was closed before a response arrived"
    elif isinstance(error, ClientPayloadError):
        message = "the response was cut off"
    elif isinstance(error, TooManyInterimResponses):
        message = str(error)
    elif isinstance(error, ClientConnectorCertificateError):
        message = f"the certificate of {error.host} was not accepted: {error.certificate_error}"
    elif isinstance(error, ClientConnectorDNSError):
        message = f"the name {error.host} could not be resolved: {cause}"
    elif isinstance(error, ClientConnectorError):
        message = f"could not connect to {error.host}:{error.port}: {cause}"
    else:
        message = f"{type(error).__name__}: {error}"
    return Failed(truncate(message), reason="network")
