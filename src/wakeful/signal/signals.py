"""Signals: CloudEvents 1.0 that agents receive and send, as immutable values. Pure.

A signal is stored and sent in the structured mode of CloudEvents (`to_text`); `wakeful.signal.requests` reads
every mode of HTTP. Its data is any JSON value of at most 64 KB; bytes are data too, and are written as
`data_base64`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json, compact, json_from_stored, json_value, quote
from wakeful.values.stored_text import UNSTORABLE, is_storable

SPECVERSION: Final = "1.0"
#: The most bytes of the data as compact JSON.
MAX_DATA: Final = 65_536
#: The most characters of a type, and the most bytes of an id and a source: they are keys of an index.
MAX_TYPE: Final = 255
MAX_ID: Final = 512
MAX_SOURCE: Final = 1_024
_MAX_TEXT: Final = 1_024
_MAX_EXTENSIONS: Final = 64

#: What a CloudEvents extension attribute can be.
Extension = str | int | bool
_RESERVED: Final = frozenset(
    "specversion id source type subject time dataschema datacontenttype data data_base64".split()
)
_EXTENSION_NAME: Final = re.compile("[a-z0-9]{1,64}")
_CONTENT_TYPE: Final = re.compile(r"[^\s/;]+/[^\s/;]+(\s*;.*)?")
_NO_EXTENSIONS: Final[Mapping[str, Extension]] = MappingProxyType({})
_INT32: Final = 2**31


class NotJson(InvalidArgument):
    """A text is not JSON."""


@dataclass(slots=True, init=False, eq=False, repr=False)
class Signal:
    """A CloudEvent: an immutable value with a type and data.

    Without an `id` it gets a new one (`generated_id` is true then). `source` and `time` may be missing until
    it is sent: the sender fills them in. Further keyword arguments are CloudEvents extensions.

    >>> signal = Signal("report.generate", {"month": 3}, id="7", source="/billing")
    >>> signal.to_text()
    '{"specversion":"1.0","id":"7","source":"/billing","type":"report.generate","data":{"month":3}}'
    >>> Signal.from_json(signal.to_json()) == signal
    True
    >>> Signal("report.generate").generated_id
    True
    """

    type: str
    #: JSON, or bytes; do not change it
    data: Json | bytes
    id: str
    source: str | None
    subject: str | None
    time: datetime | None
    dataschema: str | None
    datacontenttype: str | None
    extensions: Mapping[str, Extension]
    #: whether the id was not given but created here: no other signal can be its duplicate
    generated_id: bool

    def __init__(
        self,
        /,
        type: str,
        data: object = None,
        *,
        id: str | None = None,
        source: str | None = None,
        subject: str | None = None,
        time: datetime | str | None = None,
        dataschema: str | None = None,
        datacontenttype: str | None = None,
        **extensions: Extension,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "type", check_type(type))
        set_(self, "data", _check_data(data))
        set_(self, "generated_id", id is None)
        set_(self, "id", str(uuid4()) if id is None else check_text("id", id, MAX_ID))
        set_(self, "source", None if source is None else _uri("source", source))
        set_(self, "subject", None if subject is None else check_text("subject", subject, _MAX_TEXT))
        set_(self, "time", None if time is None else _time(time))
        set_(self, "dataschema", None if dataschema is None else _uri("dataschema", dataschema))
        set_(self, "datacontenttype", None if datacontenttype is None else _content_type(datacontenttype))
        set_(self, "extensions", _check_extensions(extensions) if extensions else _NO_EXTENSIONS)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a signal cannot be changed; create another one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a signal cannot be changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signal) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.type, self.source, self.id))

    def __repr__(self) -> str:
        given = [] if self.generated_id else [f"id={self.id!r}"]
        given += [
            f"{name}={getattr(self, name)!r}"
            for name in ("source", "subject")
            if getattr(self, name) is not None
        ]
        data = [] if self.data is None else [repr(self.data)[:200]]
        return f"Signal({', '.join([repr(self.type), *data, *given])})"

    def __copy__(self) -> Signal:
        return self

    def __deepcopy__(self, memo: object) -> Signal:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (self.to_text(), self.generated_id))

    def to_json(self) -> dict[str, Json]:
        """Return the structured mode: attributes, extensions, then `data` or `data_base64`."""
        event: dict[str, Json] = {"specversion": SPECVERSION, "id": self.id}
        if self.source is not None:
            event["source"] = self.source
        event["type"] = self.type
        if self.subject is not None:
            event["subject"] = self.subject
        if self.time is not None:
            event["time"] = _rfc3339(self.time)
        if self.dataschema is not None:
            event["dataschema"] = self.dataschema
        if self.datacontenttype is not None:
            event["datacontenttype"] = self.datacontenttype
        if self.extensions:
            event.update(self.extensions)
        if isinstance(self.data, bytes):
            event["data_base64"] = base64.b64encode(self.data).decode()
        elif self.data is not None:
            event["data"] = self.data
        return event

    def to_text(self) -> str:
        """Return the structured mode as compact JSON text."""
        return compact(self.to_json())

    def sent(self, source: str, time: datetime) -> Signal:
        """Return the signal as it is sent: `source` and `time` are filled in if it has none."""
        if self.source is not None and self.time is not None:
            return self
        other = _copy(self)
        if self.source is None:
            object.__setattr__(other, "source", _uri("source", source))
        if self.time is None:
            object.__setattr__(other, "time", _time(time))
        return other

    @staticmethod
    def from_json(event: object, *, source: str | None = None) -> Signal:
        """Return the signal of a structured CloudEvent, or raise InvalidArgument.

        `source` is the source of an event that has none, for senders whose source is known otherwise.

        >>> Signal.from_json({"specversion": "1.0", "id": "1", "source": "/a"})
        Traceback (most recent call last):
        wakeful.errors.InvalidArgument: type: it is missing; a CloudEvent needs ...
        """
        if not isinstance(event, Mapping):
            raise InvalidArgument(
                f"{quote(event)} is not a CloudEvent; send an object with specversion, id, source and type"
            )
        given = {key: value for key, value in event.items() if value is not None}
        if source is not None:
            given.setdefault("source", source)
        _check_required(given)
        if "data" in given and "data_base64" in given:
            raise InvalidArgument("data: the event has data and data_base64; give one of the two")
        data: object = given.pop("data", None)
        if "data_base64" in given:
            data = _decode_base64(given.pop("data_base64"))
        del given["specversion"]
        for name in given:
            if not isinstance(name, str):
                raise InvalidArgument(f"the attribute name {quote(name)} is not text")
            if name not in _RESERVED:
                _check_extension_name(name)
        return Signal(data=data, **given)

    @staticmethod
    def from_text(text: str | bytes) -> Signal:
        """Return the signal of a structured CloudEvent in JSON text."""
        return Signal.from_json(load_json(text, "the signal"))

    @staticmethod
    def from_stored(text: str) -> Signal:
        """Return the signal that `to_text` wrote, without another validation."""
        event: dict[str, Any] = json_from_stored(text)
        event.pop("specversion", None)
        time, encoded = event.pop("time", None), event.pop("data_base64", None)
        return _make_unchecked(
            type=event.pop("type"),
            id=event.pop("id"),
            source=event.pop("source", None),
            subject=event.pop("subject", None),
            dataschema=event.pop("dataschema", None),
            datacontenttype=event.pop("datacontenttype", None),
            time=None if time is None else _time(time),
            data=event.pop("data", None) if encoded is None else base64.b64decode(encoded),
            extensions=MappingProxyType(event) if event else _NO_EXTENSIONS,
        )

    @staticmethod
    def of_job(type: str, data: Json, *, id: str, source: str, time: datetime) -> Signal:
        """Return the signal of a run of a job. Its payload was checked when it was stored."""
        return _make_unchecked(
            type=type,
            id=id,
            source=source,
            subject=None,
            dataschema=None,
            datacontenttype=None,
            time=time,
            data=data,
            extensions=_NO_EXTENSIONS,
        )


def _make_unchecked(**attributes: object) -> Signal:
    signal = Signal.__new__(Signal)
    object.__setattr__(signal, "generated_id", False)
    for name, value in attributes.items():
        object.__setattr__(signal, name, value)
    return signal


def check_type(value: object) -> str:
    """Return the type of a signal if it is valid, else raise InvalidArgument."""
    text = check_text("type", value, MAX_TYPE)
    if "*" in text:
        raise InvalidArgument(f"type: {quote(text)} is a pattern; a signal has one type, without '*'")
    return text


def _copy(signal: Signal) -> Signal:
    other = Signal.__new__(Signal)
    for name in Signal.__slots__:
        object.__setattr__(other, name, getattr(signal, name))
    return other


def _restore(text: str, generated_id: bool) -> Signal:
    signal = Signal.from_stored(text)
    object.__setattr__(signal, "generated_id", generated_id)
    return signal


def _check_required(event: Mapping[str, object]) -> None:
    version = event.get("specversion")
    if version != SPECVERSION:
        what = "it is missing" if version is None else f"{quote(version)} is not supported"
        raise InvalidArgument(f"specversion: {what}; send '{SPECVERSION}'")
    for name, example in (
        ("id", "an id that is unique for its source"),
        ("source", "a source such as '/billing'"),
        ("type", "a type such as 'report.generate'"),
    ):
        if name not in event:
            raise InvalidArgument(f"{name}: it is missing; a CloudEvent needs {example}")


def check_text(name: str, value: object, longest: int) -> str:
    """Return printable text of at most `longest` bytes, else raise InvalidArgument."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}: {quote(value)} is not text; put it in quotes")
    if not value.strip():
        raise InvalidArgument(f"{name}: it is empty; give it some text")
    if len(value) > longest or (not value.isascii() and len(value.encode(errors="replace")) > longest):
        raise InvalidArgument(f"{name}: it is longer than {longest} bytes")
    if not value.isprintable():
        if not is_storable(value):
            raise InvalidArgument(f"{name}: {UNSTORABLE}")
        raise InvalidArgument(f"{name}: {quote(value)} has a control character; remove it")
    return value


def _uri(name: str, value: object) -> str:
    text = check_text(name, value, MAX_SOURCE)
    if " " in text:
        raise InvalidArgument(f"{name}: {quote(text)} has a space; a URI has none, write '%20'")
    return text


def _content_type(value: object) -> str:
    text = check_text("datacontenttype", value, _MAX_TEXT)
    if not _CONTENT_TYPE.fullmatch(text):
        raise InvalidArgument(
            f"datacontenttype: {quote(text)} is no content type; write 'application/json' or 'text/plain'"
        )
    return text


def _time(value: object) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidArgument(
                f"time: {quote(value)} is not an RFC 3339 time such as '2027-03-01T09:00:00Z'"
            ) from None
    if not isinstance(value, datetime):
        raise InvalidArgument(f"time: {quote(value)} is not a time; give a datetime, or RFC 3339 text")
    if value.tzinfo is None:
        raise InvalidArgument(f"time: {value.isoformat()} has no zone; add 'Z' or an offset such as '+01:00'")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(f"time: {value.isoformat()} is out of range in UTC") from None


def _rfc3339(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _check_data(data: object) -> Json | bytes:
    if data is None:
        return None
    try:
        if isinstance(data, bytes | bytearray | memoryview):
            raw = bytes(data)
            json_value(base64.b64encode(raw).decode(), MAX_DATA)
            return raw
        return json_value(data, MAX_DATA)
    except InvalidArgument as error:
        raise InvalidArgument(f"data: {error.message}") from None


def _check_extensions(extensions: Mapping[str, object]) -> Mapping[str, Extension]:
    if len(extensions) > _MAX_EXTENSIONS:
        raise InvalidArgument(f"the signal has {len(extensions)} extensions; at most {_MAX_EXTENSIONS}")
    checked: dict[str, Extension] = {}
    for name, value in extensions.items():
        _check_extension_name(name)
        if isinstance(value, int) and -_INT32 <= value < _INT32:  # a bool too
            checked[name] = value
        elif isinstance(value, str):
            checked[name] = check_text(name, value, _MAX_TEXT)
        else:
            raise InvalidArgument(
                f"{name}: {quote(value)} cannot be an extension, which is text, true, false or a 32-bit "
                "integer; put other values into data"
            )
    return MappingProxyType(checked)


def _check_extension_name(name: str) -> None:
    if name in _RESERVED or not _EXTENSION_NAME.fullmatch(name):
        raise InvalidArgument(
            f"{quote(name)} is no name of an extension; use lowercase letters and digits, such as 'traceid'"
        )


def _decode_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidArgument(f"data_base64: {quote(value)} is not text in base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(f"data_base64: {quote(value)} is not base64") from None


def load_json(text: str | bytes, what: str) -> object:
    """Return the value of JSON text, or raise NotJson; `what` names the text in the message."""
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise NotJson(f"{what} is nested too deeply; flatten it") from None
    except ValueError as error:  # also text that is no UTF-8
        raise NotJson(f"{what} is not JSON: {error}") from None
    return value


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")
