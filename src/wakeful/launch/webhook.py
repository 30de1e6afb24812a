"""Webhook targets: a signed `POST url`, to allowed addresses only.

    {"kind": "webhook", "url": "https://example.com/hook", "headers": {…}, "completion": "callback"}

The body is exactly `{"job":name,"payload":…}`, with the stored bytes of the payload. 2xx succeeds, and the
beginning of the response is the output; with `completion: "callback"` the run continues until it is
completed. 410 fails permanently and pauses the job. Everything else fails and may be retried.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from json import dumps
from typing import Final, NamedTuple

from yarl import URL

from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.launch.address_guard import AddressGuard, AddressRefused, GuardedResolver
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.messages import MAX_HEADER, HttpError, connection_failure, read_headers
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, MAX_OUTPUT, MAX_READ, Launch, launch_traceparent, truncate
from wakeful.launch.precheck import MAX_ANSWER, PrecheckResult, result_of_response
from wakeful.launch.secrets import SecretSource, hex_signature, standard_signature
from wakeful.launch.verify import VerifyLaunch, verdict_of_response
from wakeful.launch.webhook_response import body_limit, failed_response, judge_response, read_text, read_usage
from wakeful.run.outcome import AwaitingCallback, Failed, Outcome, Succeeded
from wakeful.run.verification import Verdict
from wakeful.values.bounded_cache import MB, bounded_cache, text_size
from wakeful.values.clock import Clock
from wakeful.values.duration import spell_duration
from wakeful.values.instants import iso_utc
from wakeful.values.json_value import Json
from wakeful.values.package import VERSION

#: The most connections to one host, and in total, or the number of slots if that is larger. Waiting for one
#: counts towards the timeout, so these are safety limits: lanes limit how much is sent to one receiver.
DEFAULT_PER_HOST: Final = 100
DEFAULT_CONNECTIONS: Final = 1000

#: The response header with the usage of the run: `{"tokens": 1200, "cost": 0.02}`.
USAGE_HEADER: Final = b"x-wakeful-usage"

_FIELDS: Final = frozenset({"kind", "url", "headers", "completion"})
#: How many headers of a response a test returns.
_MAX_SHOWN_HEADERS: Final = 50
#: Headers that a job cannot set.
_RESERVED: Final = re.compile(
    r"(x-wakeful|webhook|proxy|sec)-.*|traceparent|tracestate|host|connection|keep-alive|upgrade|te|trailer"
    r"|expect|content-(type|length|encoding)|transfer-encoding|accept-encoding",
    re.IGNORECASE,
)
#: Runs of a storm share few instants, so they are cached.
_iso: Final = lru_cache(maxsize=1024)(iso_utc)


class _Accepted(NamedTuple):
    """A 2xx response."""

    status: int
    text: str
    usage: str | None


class Exchange(NamedTuple):
    """A request of a test, and what came of it."""

    url: str
    headers: dict[str, str]
    body: str
    #: the response; None: there was none
    status: int | None = None
    response_headers: tuple[tuple[str, str], ...] = ()
    text: str = ""
    #: None: the response is a success
    failure: Failed | None = None


class WebhookLauncher:
    """Posts runs to URLs. `on_response` is called with each status; None: there was no response.

    `slots` is how many runs are launched at once: each of them gets a connection.
    """

    kind = "webhook"
    default_timeout_ms = 30_000

    def __init__(
        self,
        secrets: SecretSource,
        guard: AddressGuard,
        clock: Clock,
        on_response: Callable[[int | None], None],
        *,
        slots: int = 0,
        per_host: int | None = None,
        tls: ssl.SSLContext | None = None,
        resolver: GuardedResolver | None = None,
    ) -> None:
        self._secrets = secrets
        self._guard = guard
        self._clock = clock
        self._on_response = on_response
        self._per_host = per_host or max(DEFAULT_PER_HOST, slots)
        self._connections = max(DEFAULT_CONNECTIONS, slots)
        self._tls = tls
        self._resolver = resolver
        self._agent = f"wakeful/{VERSION}"
        self._client: HttpClient | None = None

    async def open(self) -> None:
        """Create the client."""
        self._client = HttpClient(
            self._guard,
            connections=self._connections,
            per_host=self._per_host,
            tls=self._tls,
            resolver=self._resolver,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for a target that is invalid or can never be reached."""
        unknown = sorted(target.keys() - _FIELDS)
        if unknown:
            raise InvalidArgument(
                f"target: a webhook has no field '{unknown[0][:64]}'; it has url, headers and completion"
            )
        url = parse_url(target.get("url"))
        try:
            self._guard.check_host(url.raw_host or "")
        except AddressRefused as error:
            raise InvalidArgument(f"target: {error}") from error
        headers = _own_headers(target.get("headers"))
        if url.user is not None and "authorization" in headers:
            raise InvalidArgument("target: the url has a user, and headers have authorization; set only one")
        if target.get("completion") not in (None, "response", "callback"):
            raise InvalidArgument("target: completion is 'response' (the default) or 'callback'")

    async def start(self, run: Launch) -> Outcome:
        """Post the run and return its outcome."""
        try:
            secrets = self._secrets.find_secrets(run)
        except WakefulError as error:
            return Failed(truncate(error.message), reason="secret_unreadable")
        if run.target.get("completion") != "callback":
            return await self._post(run, secrets)
        try:
            # The timeout of the job covers the whole run. Accepting it must not take longer than any post.
            async with asyncio.timeout(self.default_timeout_ms / 1000):
                outcome = await self._post(run, secrets)
        except TimeoutError:
            return Failed(f"no response within {self.default_timeout_ms // 1000} s", reason="timeout")
        if isinstance(outcome, Succeeded):
            return AwaitingCallback(run.timeout_ms or DEFAULT_TIMEOUT_MS, outcome.response_code)
        return outcome

    async def precheck(self, run: Launch, precheck: Mapping[str, Json]) -> PrecheckResult:
        """Post the run, with the state that the last precheck left, to the URL of its precheck.

        It is signed like the run and has an id of its own, so that a receiver that acts once per id does not
        take the later run for a duplicate.
        """
        request = run.with_target(precheck, run.payload_text)
        request.idempotency_key = f"{run.idempotency_key}-precheck"
        try:
            secrets = self._secrets.find_secrets(run)
        except WakefulError as error:
            return Failed(truncate(error.message))
        response = await self._exchange(request, secrets, precheck=True)
        if isinstance(response, Failed):
            return response
        return result_of_response(response.status, response.text)

    async def verify(self, run: VerifyLaunch, verify: Mapping[str, Json]) -> Verdict | Failed:
        """Post the run to the URL of its verification, or get the URL of an `http` check."""
        if verify.get("kind") == "http":
            return await self._get(verify)
        try:
            secrets = self._secrets.find_secrets(run)
        except WakefulError as error:
            return Failed(truncate(error.message))
        request = run.with_target(verify, run.payload_text)
        response = await self._exchange(request, secrets, report=run.report)
        if isinstance(response, Failed):  # a 410 of a check says nothing about the work
            return response._replace(permanent=response.permanent and response.response_code is None)
        return verdict_of_response(response.text)

    async def _get(self, verify: Mapping[str, Json]) -> Verdict | Failed:
        assert self._client is not None, "open() comes first"
        try:
            url = parse_url(verify.get("url"))
            self._guard.check_host(url.raw_host or "")
            headers = {"accept": "*/*", "accept-encoding": "identity", "user-agent": self._agent}
            headers.update(_own_headers(verify.get("headers")))
            response = await self._client.request("GET", url, headers, None, body_limit(verify))
            return judge_response(response, verify, self._clock.now_ms())
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True)
        except (HttpError, OSError) as error:
            return connection_failure(error)
        except ValueError as error:  # a header that cannot be sent
            return Failed(truncate(f"url: {error}"), permanent=True)

    async def _post(self, run: Launch, secrets: tuple[bytes, ...]) -> Outcome:
        response = await self._exchange(run, secrets)
        if isinstance(response, Failed):
            return response
        return Succeeded(response.text or None, response.usage, response.status)

    async def _exchange(
        self,
        run: Launch,
        secrets: tuple[bytes, ...],
        *,
        precheck: bool = False,
        report: str | None = None,
    ) -> _Accepted | Failed:
        assert self._client is not None, "open() comes first"
        try:
            if report is not None:
                body = report.encode()
            else:
                body = precheck_body(run) if precheck else self._body(run)
            url, headers = self._request(run, secrets, body)
            if precheck:
                headers["x-wakeful-precheck"] = "1"
            if report is not None:
                headers["x-wakeful-verify"] = "1"
            limit = MAX_ANSWER if precheck else MAX_READ
            response = await self._client.request("POST", url, headers, body, limit)
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True, reason="invalid_target")
        except (HttpError, OSError) as error:
            self._on_response(None)
            return connection_failure(error)
        except ValueError as error:  # a header that cannot be sent
            return Failed(truncate(f"target: {error}"), permanent=True, reason="invalid_target")
        self._on_response(response.status)
        text = read_text(response, limit)
        usage = read_usage(response.header(USAGE_HEADER), text)
        if not precheck:
            text = truncate(text)
        if 200 <= response.status < 300:
            return _Accepted(response.status, text, usage)
        failed = failed_response(response, text, self._clock.now_ms())
        return failed._replace(usage=usage) if usage else failed

    async def test(self, run: Launch, secrets: tuple[bytes, ...], wait_ms: int) -> Exchange:
        """Post a run that is only a test, and return the request and the response.

        Raises InvalidArgument for a target that is not valid, Unavailable if this process launches no runs.
        """
        if self._client is None:
            raise Unavailable("no engine runs in this process; send the request to another one")
        body = webhook_body(run)
        url, headers = self._request(run, secrets, body)
        sent = Exchange(str(url), headers, body.decode())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                response = await self._client.request("POST", url, headers, body, MAX_OUTPUT)
        except TimeoutError:
            failure = Failed(f"no response within {spell_duration(wait_ms)}", reason="timeout")
            return sent._replace(failure=failure)
        except (HttpError, OSError) as error:
            return sent._replace(failure=connection_failure(error))
        except ValueError as error:  # a header that cannot be sent
            raise InvalidArgument(f"target: {error}") from error
        text = read_text(response)
        shown = [(name, value[:MAX_HEADER]) for name, value in response.headers[:_MAX_SHOWN_HEADERS]]
        answered = sent._replace(status=response.status, response_headers=tuple(shown), text=text)
        if 200 <= response.status < 300:
            return answered
        return answered._replace(failure=failed_response(response, text, self._clock.now_ms()))

    def _body(self, run: Launch) -> bytes:
        return webhook_body(run)

    def _request(self, run: Launch, secrets: tuple[bytes, ...], body: bytes) -> tuple[URL, dict[str, str]]:
        """Return the URL and the headers of a request. Raises InvalidArgument."""
        url = parse_url(run.target.get("url"))
        self._guard.check_host(url.raw_host or "")  # for a clear error; the socket does the real check
        headers = self._headers(run, secrets, body)
        if "headers" in run.target:
            headers.update(_own_headers(run.target["headers"]))
        return url, headers

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
    except InvalidArgument:  # the schedule of its job cannot be read: send the run without it
        return None


def webhook_body(run: Launch) -> bytes:
    """Return the body: `{"job":name,"payload":…}`, with the stored text of the payload."""
    return f'{{"job":{dumps(run.job)},"payload":{run.payload_text or "null"}}}'.encode()


def precheck_body(run: Launch) -> bytes:
    """Return the body of a precheck: that of the run, and the `state` that the last precheck left, if any."""
    body = webhook_body(run)
    state = None if run.watch is None else run.watch.state
    return body if state is None else body[:-1] + f',"state":{state}}}'.encode()


def traceparent(run: Launch) -> str:
    """Return the W3C trace context: that of the launch span if tracing is on, else what it would be."""
    return run.traceparent or launch_traceparent(run.idempotency_key, run.attempt)


def parse_url(value: Json) -> URL:
    """Return the URL of a target. Raises InvalidArgument."""
    if not isinstance(value, str):
        raise InvalidArgument("target: a webhook needs a url, such as 'https://example.com/hook'")
    return _parse_url(value)


@bounded_cache(4 * MB, lambda url, text: 1_000 + 6 * text_size(text))
def _parse_url(text: str) -> URL:
    try:
        url = URL(text)
        if url.scheme in ("http", "https") and url.raw_host and url.port:
            return url
    except ValueError:
        pass
    raise InvalidArgument(
        f"target: '{text[:200]}' is not an http or https URL; write one such as 'https://example.com/hook'"
    )


def _own_headers(value: Json) -> dict[str, str]:
    """Return the headers of a target, names in lower case. Raises InvalidArgument."""
    return {name.lower(): text for name, text in read_headers(value, _RESERVED).items()}
