"""Masking of credentials in targets, prechecks and alerts: only admins see them, other roles see `***`.

A document that was read with masked values may be sent back: an unchanged field keeps its stored value. Any
other value with `***` is refused, so that no credential is lost or sent to another address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from wakeful.document import write_definition
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition
from wakeful.service.auth.access import Principal
from wakeful.store.internal_jobs import ALERT_JOBS
from wakeful.values.json_value import Json

MASK: Final = "***"
#: The fields of a job that may hold credentials.
FIELDS: Final = ("target", "precheck", "verify")
#: Every value in these objects is masked.
_OBJECTS: Final = frozenset({"headers", "env"})
_ADDRESSES: Final = frozenset({"url", "servers", "broker"})
#: `unreadable` has stored text that is not JSON (`json_from_text`).
_CREDENTIAL: Final = re.compile(
    r"secret|token|passw|api_?key|authorization|credential|^unreadable$", re.IGNORECASE
)


def sees_credentials(principal: Principal) -> bool:
    """Return whether the principal sees credentials."""
    return principal.role == "admin"


def mask_value(value: Json) -> Json:
    """Return a target, or a part of one, with its credentials masked.

    >>> mask_value(
    ...     {"kind": "webhook", "url": "https://me:pw@a.example/hook?key=1", "headers": {"x-key": "abc"}}
    ... )
    {'kind': 'webhook', 'url': 'https://***@a.example/hook?***', 'headers': {'x-key': '***'}}
    """
    if isinstance(value, list):
        return [mask_value(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _mask_field(name, each) for name, each in value.items()}


def mask_alerts(value: Json) -> Json:
    """Return alerts with their webhook URL masked, which is a credential as a whole.

    >>> mask_alerts({"url": "https://hooks.example.com/services/T0/B0/abc", "failures": 3})
    {'url': 'https://hooks.example.com/***', 'failures': 3}
    """
    shown = mask_value(value)
    if not isinstance(value, dict) or not isinstance(shown, dict) or not isinstance(value.get("url"), str):
        return shown
    return {**shown, "url": _host_alone(str(value["url"]))}


def mask_job(definition: Definition) -> dict[str, Json]:
    """Return the document of a job with its credentials masked."""
    return mask_document(write_definition(definition))


def mask_document(document: Mapping[str, Json]) -> dict[str, Json]:
    """Return the document of a job, or a job as every interface returns it, with its credentials masked."""
    mask = mask_alerts if document.get("name") in ALERT_JOBS else mask_value
    return {**document, **{field: mask(document[field]) for field in FIELDS if field in document}}


def unmask(document: Mapping[str, object], old: Definition | None = None) -> Mapping[str, object]:
    """Return the document with the stored values of masked fields; `old` is the stored job.

    Raise InvalidArgument if a field with `***` differs from what was read.
    """
    given: dict[str, object] = {}
    for field in FIELDS:
        try:
            if field in document and has_mask(document[field]):
                given[field] = document[field]
        except RecursionError:
            raise InvalidArgument(f"{field}: it is nested too deeply; flatten it") from None
    if not given:
        return document
    shown, kept = ({}, {}) if old is None else (mask_job(old), write_definition(old))
    for field, value in given.items():
        if field not in shown or value != shown[field]:
            raise InvalidArgument(
                f"{field}: '{MASK}' stands for a masked value; write the value itself, or send the {field} "
                f"exactly as it was read to keep it"
            )
    return {**document, **{field: kept[field] for field in given}}


def _mask_field(name: str, value: Json) -> Json:
    if name in _OBJECTS and isinstance(value, dict):
        return dict.fromkeys(value, MASK)
    if name in _ADDRESSES and isinstance(value, list):
        return [_mask_url(each) if isinstance(each, str) else mask_value(each) for each in value]
    if name in _ADDRESSES and isinstance(value, str):
        return _mask_url(value)
    return _mask_texts(value) if name in _OBJECTS or _CREDENTIAL.search(name) else mask_value(value)


def _mask_texts(value: Json) -> Json:
    """Return a value with each of its texts masked."""
    if isinstance(value, list):
        return [_mask_texts(each) for each in value]
    if isinstance(value, dict):
        return {name: _mask_texts(each) for name, each in value.items()}
    return MASK if isinstance(value, str) else value


def _mask_url(url: str) -> str:
    """Return the URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    host = f"{MASK}@{parts.netloc.rpartition('@')[2]}" if "@" in parts.netloc else parts.netloc
    hidden = parts._replace(
        netloc=host, query=MASK if parts.query else "", fragment=MASK if parts.fragment else ""
    )
    return urlunsplit(hidden)


def _host_alone(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{MASK}"


def has_mask(value: object) -> bool:
    """Return whether a value that is masked when it is read has the mask. Other text may contain `***`."""
    if type(value) is dict or isinstance(value, Mapping):  # the check of an abstract class is slow
        return any(_field_has_mask(str(name), each) for name, each in value.items())
    return isinstance(value, list | tuple) and any(has_mask(each) for each in value)


def _field_has_mask(name: str, value: object) -> bool:
    if isinstance(value, str) and MASK not in value:  # the common case
        return False
    if name in _OBJECTS or _CREDENTIAL.search(name):
        return _text_has_mask(value)
    if name in _ADDRESSES:
        return any(MASK in each if isinstance(each, str) else has_mask(each) for each in _items(value))
    return has_mask(value)


def _text_has_mask(value: object) -> bool:
    """Return whether a text in a value has the mask."""
    if isinstance(value, Mapping):
        return any(map(_text_has_mask, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_text_has_mask, value))
    return isinstance(value, str) and MASK in value


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)
