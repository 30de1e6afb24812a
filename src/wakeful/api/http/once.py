"""`Idempotency-Key`: a request that is sent again is done once, and answered the same again.

A place is kept in the database before anything is done, so that of two at the same moment, here or on two
replicas, one acts and the other waits for its answer. What was refused was not done: its key is free again.
Where it is not known whether something was done, because the process died in the middle or the database went
away, the place stays taken: rather no answer than a deed done twice. Keys belong to whoever sent them, and
are kept for a day.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Header, Request
from starlette.responses import Response

from wakeful.api.http.asking import services_of
from wakeful.api.http.problems import Busy, Malformed
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.launch.secrets import Keyring
from wakeful.logs import get_logger
from wakeful.service.access import Principal, permit
from wakeful.store.office import Answer

IdempotencyKey = Annotated[
    str | None,
    Header(
        description="Any text of your own, up to 255 characters: the same request with the same key, within "
        "a day, is done once and answered the same again.",
    ),
]

_KEPT_MS: Final = 24 * 3_600_000
#: how long a request waits for the one before it, and how often it looks
_PATIENCE_S: Final = 10.0
_LOOK_S: Final = 0.05
#: after so long nobody works on it any more
_GIVEN_UP_MS: Final = 60_000
_REPLAYED: Final = "Idempotency-Replayed"
_HEADERS: Final = ("location", "etag")
_KEY: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
_SEALED: Final = "sealed:"

log = get_logger("wakeful.http")


async def once(
    request: Request, who: Principal, workspace: str, act: Callable[[], Awaitable[Response]]
) -> Response:
    """Do it, unless the request brings a key with which it was done before."""
    given = request.headers.get("idempotency-key")
    if given is None:
        return await act()
    if not _KEY.fullmatch(given):
        raise Malformed("Idempotency-Key: give 1 to 255 printable ASCII characters")
    permit(who, "read", workspace)  # nobody takes places in somebody else's workspace
    services = services_of(request)
    store = services.store
    key = _hash(who.actor, given)
    fingerprint = _hash(request.method, request.url.path, request.url.query, await request.body())
    now_ms = store.clock.now_ms()
    place = Answer(workspace, key, fingerprint, 0, "", now_ms)
    first = await store.keep_answer(place, now_ms - _KEPT_MS)
    if first is not None:
        return await _again(request, first, fingerprint, services.keyring)
    try:
        response = await act()
    except Unavailable:
        raise
    except WakefulError:
        await store.settle_answer(workspace, key, None)
        raise
    kept = _written(response, services.keyring)
    try:
        await store.settle_answer(workspace, key, response.status_code, kept)
    except Unavailable as error:  # it is done all the same, and whoever asked may know
        log.warning("answer.lost", path=request.url.path, error=error.message)
    return response


async def _again(request: Request, first: Answer, fingerprint: str, keyring: Keyring) -> Response:
    """The first answer, once there is one."""
    store = services_of(request).store
    if first.fingerprint != fingerprint:
        raise InvalidArgument(
            "Idempotency-Key: this key was used for another request; use a new one for each thing to be done"
        )
    looks = round(_PATIENCE_S / _LOOK_S)
    while first.status == 0:
        if store.clock.now_ms() - first.created_ms > _GIVEN_UP_MS:
            raise Busy(
                "a request with this Idempotency-Key was begun and never answered, and may have been done; "
                "look whether it was, and use a new key"
            )
        looks -= 1
        found = await store.answer(first.workspace, first.key) if looks else None
        if found is None:
            raise Busy("a request with this Idempotency-Key is being worked on; send it again in a moment")
        first = found
        if first.status == 0:
            await asyncio.sleep(_LOOK_S)
    return _read(first, keyring)


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode(errors="backslashreplace") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8) + raw)
    return digest.hexdigest()


def _written(response: Response, keyring: Keyring) -> str:
    headers = {name: response.headers[name] for name in _HEADERS if name in response.headers}
    body = bytes(response.body).decode()
    text = compact({"headers": dict(headers), "body": body})
    if not body or "secret" not in json.loads(body):
        return text
    # A webhook's secret is shown once; in the database it lies only sealed, here as elsewhere.
    return _SEALED + b64encode(keyring.seal(text.encode())).decode()


def _read(answer: Answer, keyring: Keyring) -> Response:
    text = answer.body
    if text.startswith(_SEALED):
        text = keyring.open(b64decode(text.removeprefix(_SEALED))).decode()
    kept = json.loads(text)
    response = Response(
        kept["body"].encode(), answer.status, {**kept["headers"], _REPLAYED: "true"}, "application/json"
    )
    if not kept["body"]:
        del response.headers["content-type"]
    return response
