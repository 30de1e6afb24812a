"""HTTP requests with signals, and requests to trigger URLs. Pure.

Signals come in the structured, binary and batch modes of CloudEvents 1.0. The body of a request to a trigger
URL is a payload. Senders differ: GitHub and Stripe send JSON, Slack sends forms, scripts send text or
nothing, and `curl -d` declares JSON as a form. So the body decides, and the content type only where the body
is ambiguous.
"""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from wakeful.errors import InvalidArgument
from wakeful.signal.signals import NotJson, Signal, load_json
from wakeful.values.json_value import Json, quote

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
#: The most signals of one batch.
MAX_BATCH: Final = 1_000

#: Content types of plain JSON; `curl -d` sends the last one.
_PLAIN: Final = ("", "application/json", "application/x-www-form-urlencoded")
#: A header value as a quoted string of HTTP, and a character in it that is quoted with a backslash.
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_QUOTED_PAIR: Final = re.compile(r"\\(.)")
_JSON_TYPE: Final = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE)
_FORM: Final = "application/x-www-form-urlencoded"
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^\s";]+)', re.IGNORECASE)
#: The charsets of text that senders use. Others of Python are not for text of the web, and `punycode` takes
#: minutes for a body of the largest size.
_CHARSETS: Final = re.compile(
    r"utf-(8|8-sig|(16|32)(-[bl]e)?)|ascii|iso8859-\d+|cp(125\d|437|850|874|932|949)|koi8-[rtu]|mac-roman"
    r"|shift_jis|euc_(jp|kr)|iso2022_(jp|kr)|gb(k|2312|18030)|big5|tis-620"
)
#: The most fields of a form.
_MAX_FIELDS: Final = 1_000


class SignalRequest(NamedTuple):
    """The signals of an HTTP request."""

    signals: list[Signal]
    #: whether the request was a batch, so that the response is a list too
    batch: bool


def read_request(headers: Mapping[str, str], body: bytes, *, source: str | None = None) -> SignalRequest:
    """Return the signals of an HTTP request in structured, binary or batch mode, or raise InvalidArgument.

    The mode follows from `content-type`; a request with `ce-` headers is in binary mode. Plain
    `application/json` with an event or a list of events is accepted too. NotJson: the body is not JSON.

    >>> headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "t"}
    >>> read_request({**headers, "Content-Type": "application/json"}, b"[1]").signals[0].data
    [1]
    """
    lower = {name.lower(): value for name, value in headers.items()}
    content_type = lower.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (STRUCTURED, BATCH) and any(name.startswith("ce-") for name in lower):
        return SignalRequest([_binary(lower, content_type, body, source)], False)
    if kind not in (STRUCTURED, BATCH, *_PLAIN):
        raise InvalidArgument(
            f"the request is no CloudEvent: its content type is {quote(kind)}; send {STRUCTURED}, {BATCH}, "
            "or ce- headers with any body"
        )
    if not body:
        raise NotJson("the body is empty; send a CloudEvent as JSON, or its attributes as ce- headers")
    value = load_json(body, "the body")
    if kind == BATCH and not isinstance(value, list):
        raise InvalidArgument("the body is no batch: send a list of events, or use the content type of one")
    if isinstance(value, list) and kind != STRUCTURED:
        if len(value) > MAX_BATCH:
            raise InvalidArgument(f"the batch has {len(value)} events; send at most {MAX_BATCH} at once")
        return SignalRequest([_of_batch(index, each, source) for index, each in enumerate(value)], True)
    return SignalRequest([Signal.from_json(value, source=source)], False)


def _of_batch(index: int, event: object, source: str | None) -> Signal:
    try:
        return Signal.from_json(event, source=source)
    except InvalidArgument as error:
        raise InvalidArgument(f"event {index} of the batch: {error.message}") from None


def _binary(headers: Mapping[str, str], content_type: str, body: bytes, source: str | None) -> Signal:
    event: dict[str, object] = {
        name.removeprefix("ce-"): _header_value(value)
        for name, value in headers.items()
        if name.startswith("ce-")
    }
    for name in ("data", "data_base64", "datacontenttype"):
        if name in event:
            raise InvalidArgument(f"ce-{name}: in binary mode the body and content-type give it; remove it")
    if content_type:
        event["datacontenttype"] = content_type
    if body:
        event |= _body(body, content_type)
    return Signal.from_json(event, source=source)


def _header_value(value: str) -> str:
    r"""Return the value of an attribute: without quotes and backslashes, then percent-decoded.

    >>> _header_value('"Euro \\"%E2%82%AC\\""')
    'Euro "€"'
    """
    value = value.strip()
    if _QUOTED.fullmatch(value):
        value = _QUOTED_PAIR.sub(r"\1", value[1:-1])
    return unquote(value)


def _body(body: bytes, content_type: str) -> dict[str, object]:
    if not content_type or _JSON_TYPE.fullmatch(content_type):
        return {"data": load_json(body, "the body")}
    if content_type.lower().startswith("text/"):
        try:
            return {"data": body.decode()}
        except UnicodeDecodeError:
            raise InvalidArgument("the body is not UTF-8 text; send it in UTF-8, or as bytes") from None
    return {"data_base64": base64.b64encode(body).decode()}


def read_body(content_type: str, body: bytes) -> object:
    """Return the payload of a request: JSON, a form as an object, or text; None for an empty body.

    NotJson: the content type says that it is JSON, and it is not. InvalidArgument: it is not text.

    >>> read_body("application/x-www-form-urlencoded", b'{"to": "me"}')
    {'to': 'me'}
    >>> read_body("application/x-www-form-urlencoded", b"text=hi+there&tag=a&tag=b")
    {'text': 'hi there', 'tag': ['a', 'b']}
    >>> read_body("text/plain", b"deployed"), read_body("", b"")
    ('deployed', None)
    """
    if not body.strip():
        return None
    if _JSON_TYPE.fullmatch(content_type):
        return load_json(body, "the body")
    text = _decode_body(content_type, body)
    try:
        return load_json(text, "the body")
    except NotJson:
        pass
    if content_type.partition(";")[0].strip().lower() == _FORM and "=" in text:
        return _form(text)
    return text


def _decode_body(content_type: str, body: bytes) -> str:
    found = _CHARSET.search(content_type)
    charset = found[1] if found else "utf-8"
    try:
        if not _CHARSETS.fullmatch(codecs.lookup(charset).name):
            raise LookupError(charset)
        return body.decode(charset)
    except LookupError:
        raise InvalidArgument(f"the charset {quote(charset)} is unknown; send the body in UTF-8") from None
    except UnicodeError:
        raise InvalidArgument(
            f"the body is not text in {charset}; send JSON, a form or text, and binary data as base64"
        ) from None


def _form(text: str) -> dict[str, Json]:
    """Return the fields of a form. A field that occurs several times has a list."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidArgument(f"the form has more than {_MAX_FIELDS} fields; send JSON") from None
    found: dict[str, list[Json]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
