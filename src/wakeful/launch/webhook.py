"""Webhook targets: `POST url`, signed, and never to where it may not go.

    {"kind": "webhook", "url": "https://example.com/hook", "headers": {…}, "completion": "callback"}

The body is exactly `{"job":name,"payload":…}`, the payload as it is stored, byte for byte. 2xx succeeds,
and the answer's beginning is the output; with `completion: "callback"` the run goes on until somebody
completes it. 410 fails for good and pauses the job. Everything else fails and may be tried again.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from json import dumps
from typing import Final, NamedTuple

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientPayloadError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
)
from yarl import URL

from wakeful.bounded_cache import MB, bounded_cache, text_size
from wakeful.clock import Clock, SystemClock
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.instants import iso_utc
from wakeful.job import Json
from wakeful.launch.address_guard import AddressRefused, Guard, GuardedResolver
from wakeful.launch.http_response import LimitedResponse, TooManyInterimResponses
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch, kept
from wakeful.launch.precheck import PrecheckResult, result_of_response
from wakeful.launch.secrets import SecretSource
from wakeful.launch.signing import hex_signature, standard_signature
from wakeful.launch.webhook_response import failure, read_text, usage_in
from wakeful.outcome import AwaitingCallback, Failed, Outcome, Succeeded

#: Connections at a time, to one host and in all. What waits for one waits within its timeout: so these
#: are fuses, and how much is sent to one receiver at a time is for lanes to say.
DEFAULT_PER_HOST: Final = 100
DEFAULT_CONNECTIONS: Final = 1000

#: Says in an answer what the run used, as compact JSON: `{"tokens": 1200, "cost": 0.02}`.
USAGE_HEADER: Final = "x-wakeful-usage"

_FIELDS: Final = frozenset({"kind", "url", "headers", "completion"})
_MAX_HEADERS: Final = 32
_MAX_HEADER: Final = 4096
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PRINTABLE: Final = re.compile(r"[\t\x20-\x7e]*")
#: Headers that say what is sent or how; the job's author may not.
_RESERVED: Final = re.compile(
    r"(x-wakeful|webhook|proxy|sec)-.*|traceparent|tracestate|host|connection|keep-alive|upgrade|te|trailer"
    r"|expect|content-(type|length|encoding)|transfer-encoding|accept-encoding",
    re.IGNORECASE,
)
#: Shorter than what servers keep an idle connection for (5 s is common), lest we post into one just closed.
_KEEP_ALIVE_S: Final = 4.0
_DNS_TTL_S: Final = 30
#: A storm has but a few instants, so they are remembered.
_iso: Final = lru_cache(maxsize=1024)(iso_utc)


class _Accepted(NamedTuple):
    """An answer of 2xx."""

    status: int
    text: str
    usage: str | None


class WebhookLauncher:
    """Takes runs to urls."""

    kind = "webhook"
    default_timeout_ms = 30_000

    def __init__(
        self,
        secrets: SecretSource,
        guard: Guard | None = None,
        *,
        clock: Clock | None = None,
        per_host: int = DEFAULT_PER_HOST,
        connections: int = DEFAULT_CONNECTIONS,
        tls: ssl.SSLContext | None = None,
        resolver: GuardedResolver | None = None,
    ) -> None:
        self._secrets = secrets
        self._guard = guard or Guard()
        self._clock = clock or SystemClock()
        self._per_host = per_host
        self._connections = connections
        self._tls = tls
        self._resolver = resolver or GuardedResolver(self._guard)
        self._agent = f"wakeful/{version('wakeful')}"
        self._session: ClientSession | None = None
        #: called with the status of each answer; None: there was none
        self.on_answer: Callable[[int | None], None] = lambda status: None

    async def open(self) -> None:
        """Make the client: no proxies or passwords from the environment, no cookies, no redirects."""
        connector = TCPConnector(
            resolver=self._resolver,
            socket_factory=self._guard.socket,
            ttl_dns_cache=_DNS_TTL_S,
            limit=self._connections,
            limit_per_host=self._per_host,
            keepalive_timeout=_KEEP_ALIVE_S,
            ssl=self._tls or True,
        )
        self._session = ClientSession(
            connector=connector,
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),  # the engine's business
            auto_decompress=False,
            trust_env=False,
            response_class=LimitedResponse,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            await self._resolver.close()
            self._session = None

    def check(self, target: Mapping[str, Json]) -> None:
        """Refuse a target that could never be reached, or that says what it may not."""
        unknown = sorted(target.keys() - _FIELDS)
        if unknown:
            raise InvalidArgument(
                f"target: a webhook has no field '{unknown[0][:64]}'; it has url, headers and completion"
            )
        url = _url(target.get("url"))
        try:
            self._guard.check_host(url.raw_host or "")
        except AddressRefused as error:
            raise InvalidArgument(f"target: {error}") from error
        headers = _own_headers(target.get("headers"))
        if url.user is not None and "authorization" in headers:
            raise InvalidArgument("target: the url has a user in it and there is an authorization; give one")
        if target.get("completion") not in (None, "response", "callback"):
            raise InvalidArgument("target: completion is 'response' (the default) or 'callback'")

    async def start(self, run: Launch) -> Outcome:
        """Post the run, and make of the answer an outcome."""
        try:
            secrets = self._secrets.secrets_of(run)
        except WakefulError as error:
            return Failed(kept(error.message), reason="secret_unreadable")
        if run.target.get("completion") != "callback":
            return await self._post(run, secrets)
        try:
            # The job's timeout is for the whole of it; taking it on must not take longer than any post.
            async with asyncio.timeout(self.default_timeout_ms / 1000):
                outcome = await self._post(run, secrets)
        except TimeoutError:
            return Failed(f"no answer within {self.default_timeout_ms // 1000} s", reason="timeout")
        if isinstance(outcome, Succeeded):
            return AwaitingCallback(run.timeout_ms or DEFAULT_TIMEOUT_MS, outcome.response_code)
        return outcome

    async def precheck(self, run: Launch, precheck: Mapping[str, Json]) -> PrecheckResult:
        """Post the run to the url of a precheck: the answer says whether there is anything to do.

        It is signed as the run is, and has an id of its own: who does each thing once does not take the run
        for done because it was asked about it.
        """
        asked = run.sent_to(precheck, run.payload_text)
        asked.idempotency_key = f"{run.idempotency_key}-precheck"
        try:
            secrets = self._secrets.secrets_of(run)
        except WakefulError as error:
            return Failed(kept(error.message))
        answer = await self._exchange(asked, secrets, {"x-wakeful-precheck": "1"})
        return answer if isinstance(answer, Failed) else result_of_response(answer.status, answer.text)

    async def _post(self, run: Launch, secrets: tuple[bytes, ...]) -> Outcome:
        answer = await self._exchange(run, secrets)
        if isinstance(answer, Failed):
            return answer
        return Succeeded(answer.text or None, answer.usage, answer.status)

    async def _exchange(
        self, run: Launch, secrets: tuple[bytes, ...], more: Mapping[str, str] | None = None
    ) -> _Accepted | Failed:
        assert self._session is not None, "open() comes first"
        try:
            url = _url(run.target.get("url"))
            self._guard.check_host(url.raw_host or "")  # for the sentence; the sockets are what guards
            body = body_of(run)
            headers = self._headers(run, secrets, body)
            if "headers" in run.target:
                headers.update(_own_headers(run.target["headers"]))
            if more is not None:
                headers.update(more)
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
                self.on_answer(response.status)
                text = await read_text(response)
                usage = usage_in(response.headers.get(USAGE_HEADER), text)
                if 200 <= response.status < 300:
                    return _Accepted(response.status, text, usage)
                failed = failure(response, text, self._clock.now_ms())
                return failed._replace(usage=usage) if usage else failed
        except InvalidArgument as error:
            return Failed(kept(error.message), permanent=True, reason="invalid_target")
        except (ClientError, OSError) as error:
            self.on_answer(None)
            return _broken(error)
        except ValueError as error:  # aiohttp's word for what it will not send
            return Failed(kept(f"target: {error}"), permanent=True, reason="invalid_target")

    def _headers(self, run: Launch, secrets: tuple[bytes, ...], body: bytes) -> dict[str, str]:
        timestamp = self._clock.now_ms() // 1000
        headers = {
            "content-type": "application/json",
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": self._agent,
            "webhook-id": run.idempotency_key,
            "webhook-timestamp": str(timestamp),
            "x-wakeful-run-id": run.id,
            "x-wakeful-attempt": str(run.attempt),
            "x-wakeful-scheduled-at": _iso(run.scheduled_ms),
            "x-wakeful-trigger": run.trigger,
            "x-wakeful-missed": str(run.missed),
            "traceparent": traceparent(run),
        }
        previous_ms = _previous_ms(run)
        if previous_ms is not None:
            headers["x-wakeful-previous-tick"] = _iso(previous_ms)
        if secrets:
            headers["x-wakeful-signature"] = hex_signature(secrets[0], body)
            headers["webhook-signature"] = standard_signature(secrets, run.idempotency_key, timestamp, body)
        return headers


def _previous_ms(run: Launch) -> int | None:
    try:
        return run.previous_ms
    except InvalidArgument:  # its job has a schedule that cannot be read any more: the run goes all the same
        return None


def body_of(run: Launch) -> bytes:
    """What is posted: `{"job":name,"payload":…}`, the payload's own text untouched."""
    return f'{{"job":{dumps(run.job)},"payload":{run.payload_text or "null"}}}'.encode()


def traceparent(run: Launch) -> str:
    """W3C trace context: one trace for a run, its retries and replays, by their key; a span an attempt."""
    key = run.idempotency_key
    # A tick's key is a hash already, and hashing is what this would cost most.
    digits = key if _DIGEST.fullmatch(key) else sha256(key.encode()).hexdigest()
    span = (int(digits[32:48], 16) + run.attempt) % (2**64 - 1) + 1  # never all zeros: that is no span
    return f"00-{digits[:32]}-{span:016x}-01"


def _url(value: Json) -> URL:
    """The url of a target; InvalidArgument if it can be none."""
    if not isinstance(value, str):
        raise InvalidArgument("target: a webhook needs a url, such as 'https://example.com/hook'")
    return _parsed(value)


@bounded_cache(4 * MB, lambda url, text: 1_000 + 6 * text_size(text))
def _parsed(text: str) -> URL:
    try:
        url = URL(text)
        if url.scheme in ("http", "https") and url.raw_host and url.port:
            return url
    except ValueError:
        pass
    raise InvalidArgument(
        f"target: '{text[:200]}' is no http or https address; give one such as 'https://example.com/hook'"
    )


def _own_headers(value: Json) -> dict[str, str]:
    """The headers that a target adds, names in lower case; InvalidArgument for what it may not."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MAX_HEADERS:
        raise InvalidArgument(
            f"target: headers is an object of at most {_MAX_HEADERS} names, each with a text"
        )
    headers: dict[str, str] = {}
    for name, text in value.items():
        if not _TOKEN.fullmatch(name) or _RESERVED.fullmatch(name):
            raise InvalidArgument(
                f"target: a job cannot set the header '{name[:64]}'; it is reserved, or no header's name"
            )
        if not isinstance(text, str) or len(text) > _MAX_HEADER or not _PRINTABLE.fullmatch(text):
            raise InvalidArgument(
                f"target: the header '{name[:64]}' is not one line of ASCII, at most {_MAX_HEADER} characters"
            )
        headers[name.lower()] = text
    return headers


def _broken(error: Exception) -> Failed:
    """What a connection that was not to be had, or broke, means."""
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    if isinstance(cause, AddressRefused):
        return Failed(kept(str(cause)), permanent=True, reason="address_refused")
    if isinstance(error, InvalidURL):
        return Failed(kept(f"target: {error}"), permanent=True, reason="invalid_target")
    if isinstance(error, ServerDisconnectedError):
        said = "the connection was closed before an answer came"
    elif isinstance(error, ClientPayloadError):
        said = "the answer broke off before its end"
    elif isinstance(error, TooManyInterimResponses):
        said = str(error)
    elif isinstance(error, ClientConnectorCertificateError):
        said = f"the certificate of {error.host} was not accepted: {error.certificate_error}"
    elif isinstance(error, ClientConnectorDNSError):
        said = f"the name {error.host} could not be resolved: {cause}"
    elif isinstance(error, ClientConnectorError):
        said = f"could not connect to {error.host}:{error.port}: {cause}"
    else:
        said = f"{type(error).__name__}: {error}"
    return Failed(kept(said), reason="network")
