"""The connection of a process to NATS, and the credentials for it.

It is opened in the background and replaced when it ends. Each connection is a new client, and no client
reconnects by itself: a client that does would send later what a launch has given up, and a retry of the run
would then be in the stream twice.

A credentials file has the user's JWT, and the key that signs the server's challenge: an Ed25519 seed in the
encoding of NATS, which is base32 of two prefix bytes, 32 bytes and a CRC-16.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.job.policy import Backoff
from wakeful.logs import get_logger
from wakeful.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

_PART: Final = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s*(\S+)\s*-{3,}END ", re.MULTILINE)
_LENGTH: Final = 36
_T = TypeVar("_T")

#: Seconds for one attempt to connect, and between two pings: two without an answer end a connection.
_CONNECT_S: Final = 5
_PING_S: Final = 10
#: Seconds between two checks of whether a connection has ended without notice.
_CHECK_S: Final = 1.0
#: Seconds for which a request for messages waits.
FETCH_S: Final = 5.0
#: Seconds to close a connection.
_CLOSE_S: Final = 1.0
_BACKOFF: Final = Backoff(base_ms=200, max_ms=5_000)
_NOT_INSTALLED: Final = "the NATS client is not installed; the operator installs the extra 'nats' of Wakeful"

log = get_logger("wakeful.queue")


class Credentials(NamedTuple):
    """The credentials of a NATS user."""

    jwt: str
    key: Ed25519PrivateKey

    def sign(self, nonce: str) -> bytes:
        """Return the signature of the server's challenge, in base64."""
        return base64.b64encode(self.key.sign(nonce.encode()))


def read_credentials(path: str) -> Credentials:
    """Read a credentials file. Raises InvalidArgument, never with its content."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"WAKEFUL_NATS_CREDS: {path} cannot be read: {type(error).__name__}") from error
    parts = dict(_PART.findall(text))
    jwt, seed = parts.get("NATS USER JWT"), parts.get("USER NKEY SEED")
    if jwt is None or seed is None:
        raise InvalidArgument(f"WAKEFUL_NATS_CREDS: {path} is not a NATS credentials file")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Credentials(jwt, Ed25519PrivateKey.from_private_bytes(_seed(path, seed)))


def _seed(path: str, text: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _LENGTH or int.from_bytes(raw[-2:], "little") != binascii.crc_hqx(raw[:-2], 0):
        raise InvalidArgument(f"WAKEFUL_NATS_CREDS: the key in {path} is not valid")
    return raw[2:-2]


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """How to connect to NATS: settings of the operator."""

    #: the addresses of the servers of one cluster, with the user and password if they need them
    servers: tuple[str, ...] = ()
    #: the path of a credentials file
    creds: str | None = None
    #: the paths of PEM files: the CA of the servers, and the certificate of this client with its key
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None: that of the operating system, if a server requires TLS."""
        if self.tls_ca is None and self.tls_cert is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
            if self.tls_cert is not None:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidArgument(f"WAKEFUL_NATS_TLS_…: a PEM file cannot be read: {error}") from error
        return context


def nats_options(settings: Settings) -> NatsOptions:
    """Return how the operator's settings connect to NATS."""
    return NatsOptions(
        settings.nats_url,
        settings.nats_creds,
        settings.nats_tls_ca,
        settings.nats_tls_cert,
        settings.nats_tls_key,
    )


class NatsConnection:
    """A connection that is opened again when it ends."""

    def __init__(self, options: NatsOptions, name: str = "wakeful") -> None:
        self._options = options
        self._name = name
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        #: why there is no connection
        self.error = "it has not connected yet"

    @property
    def configured(self) -> bool:
        """Whether the operator has set servers."""
        return bool(self._options.servers)

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._client is not None

    @property
    def server(self) -> str:
        """The address of the connected server, without credentials; empty if there is none."""
        url = None if self._client is None else self._client.connected_url
        return "" if url is None else url.netloc.rpartition("@")[2]

    async def open(self) -> None:
        """Begin to connect. Does not wait for the connection."""
        if self.configured and self._keeper is None:
            self._connected, self._closed = asyncio.Event(), asyncio.Event()
            self._keeper = asyncio.create_task(self._keep(), name="wakeful-nats")

    async def close(self) -> None:
        """Disconnect."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        self.error = "it is closed"

    async def client(self, wait_s: float = 0) -> Client:
        """Return the connected client; wait so long for it. Raises Unavailable with the cause."""
        if self._client is None and wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._connected.wait()
        if self._client is None:
            raise Unavailable(f"NATS is not reachable: {self.error}")
        return self._client

    async def jetstream(self, wait_s: float = 0) -> JetStreamContext:
        """Return JetStream of the connected client; as `client`."""
        return (await self.client(wait_s)).jetstream()

    async def _keep(self) -> None:
        tries = 0
        while True:
            try:
                client = await without_cancel(self._connect())
            except Exception as error:
                tries += 1
                message = _cause(error)
                if message != self.error:
                    log.warning("nats.unavailable", error=message)
                self.error = message
                await asyncio.sleep(_BACKOFF.delay_ms(min(tries, 10), self._name) / 1000)
                continue
            tries = 0
            self._client = client
            self._connected.set()
            log.info("nats.connected", server=self.server)
            try:
                await self._wait_closed(client)
                self.error = _cause(client.last_error or ConnectionError("the connection ended"))
                log.warning("nats.disconnected", error=self.error)
            finally:
                self._client = None
                self._connected.clear()
                await _close(client)

    async def _wait_closed(self, client: Client) -> None:
        """Wait until a connection has ended. The client does not say so if it fails while it closes."""
        while not client.is_closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self._closed.wait()
                    return

    async def _connect(self) -> Client:
        """Connect to one of the servers, in random order. Raises the error of the last one."""
        try:
            from nats.aio.client import Client
        except ImportError:
            raise Unavailable(_NOT_INSTALLED) from None
        self._closed.clear()
        options = self._options
        credentials = None if options.creds is None else read_credentials(options.creds)
        tls = options.context()
        failure: Exception = Unavailable("no server is set")
        for server in random.sample(options.servers, len(options.servers)):
            client = Client()
            ended = asyncio.Event()

            async def note_end(ended: asyncio.Event = ended) -> None:
                ended.set()

            try:
                if credentials is not None:
                    client._auth_configured = True  # it is not set for a signature callback
                async with asyncio.timeout(_CONNECT_S):
                    await client.connect(
                        server,
                        name=self._name,
                        allow_reconnect=False,
                        connect_timeout=_CONNECT_S,
                        ping_interval=_PING_S,
                        error_cb=_ignore,
                        closed_cb=note_end,
                        tls=tls,
                        signature_cb=None if credentials is None else credentials.sign,
                        user_jwt_cb=None if credentials is None else credentials.jwt.encode,
                    )
                self._closed = ended
                return client
            except Exception as error:
                failure = error
                await _close(client)
        raise failure


async def take_messages(
    connection: NatsConnection,
    subscription: JetStreamContext.PullSubscription,
    handle: Callable[[Msg], Coroutine[Any, Any, None]],
    running: set[asyncio.Task[None]],
    most: int,
) -> None:
    """Handle the messages of a subscription, at most so many at once, until the connection ends.

    `running` are the tasks that do so.
    """
    import nats.errors

    try:
        while connection.connected:
            free = most - len(running)
            if free <= 0:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                messages = await subscription.fetch(free, timeout=FETCH_S)
            except nats.errors.TimeoutError:
                continue
            for message in messages:
                task = asyncio.create_task(handle(message), name="wakeful-message")
                running.add(task)
                task.add_done_callback(running.discard)
    finally:  # so that no message goes to a request that has ended, such as one that is put back
        with contextlib.suppress(Exception):
            await subscription.unsubscribe()
            await (await connection.client()).flush(1)


async def without_cancel(call: Awaitable[_T]) -> _T:
    """Await a call of the client. Raises Unavailable if the client cancels it, as it does when it closes.

    Otherwise the task that awaits it would end as if it had been cancelled itself.
    """
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Unavailable("the connection to NATS ended") from None


async def _close(client: Client) -> None:
    """Close a client. After a failed TLS handshake this never ends, so it has a limit."""
    if client.is_closed:
        client._status = client.DISCONNECTED  # it may have failed while it closed: its tasks still run
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_S):
            await without_cancel(client.close())


async def _ignore(error: Exception) -> None:
    """Ignore an error of the client: it is the cause of the end of the connection, or of a call."""


def _cause(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not respond"
    message = error.message if isinstance(error, Unavailable | InvalidArgument) else str(error)
    return message or type(error).__name__
