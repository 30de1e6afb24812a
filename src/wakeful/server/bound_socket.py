"""The listening socket of a server, and its URL."""

from __future__ import annotations

import socket

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.settings import PREFIX, Settings


def url_of(listener: socket.socket, settings: Settings) -> str:
    """Return the URL of a server on this socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{'http' if settings.tls_cert is None else 'https'}://{host}:{port}"


def bound_socket(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the address of the settings. Unavailable: it is taken."""
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InvalidArgument(f"{PREFIX}HOST: '{host}' is not an address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"cannot listen on {host} port {port}: {error.strerror}; "
            f"free the port, or set another {PREFIX}PORT"
        ) from error
    listener.set_inheritable(False)
    return listener
