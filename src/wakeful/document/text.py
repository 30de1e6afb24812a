"""The parts of a definition as text for a store: compact JSON, equal for equal parts.

Keys are sorted and defaults are left out, so that many jobs have the same texts: the planner finds nearly all
of them in a cache, which is bounded in bytes. Stored text is not validated again; text that cannot be read
raises InvalidArgument. The objects that are returned are shared: do not change them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import lru_cache
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from wakeful.document.fields import POLICY, STORED_WORK, TIMING, Field
from wakeful.errors import InvalidArgument
from wakeful.job.job import Timing, Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.values.bounded_cache import MB, bounded_cache, text_size
from wakeful.values.json_value import Json, compact, quote
from wakeful.values.stored_text import clean_text, read_cleaned_json

T = TypeVar("T")

#: The size of a text and its parsed object together, relative to the text: an upper bound.
_PARSED: Final = 8
#: How much is shown of text that cannot be read.
_SHOWN: Final = 200


@bounded_cache(2 * MB, lambda text, timing: _PARSED * text_size(text))
def timing_to_text(timing: Timing) -> str:
    """Return the timing as text.

    >>> timing_to_text(timing_from_text('{"schedule":{"everyMs":60000,"kind":"every"}}'))
    '{"schedule":{"everyMs":60000,"kind":"every"}}'
    """
    return _write_fields(timing, TIMING)


@bounded_cache(8 * MB, lambda timing, text: _PARSED * text_size(text))
def timing_from_text(text: str) -> Timing:
    """Return the timing that `timing_to_text` wrote: the same object for the same text while it is cached."""
    return _read_fields(Timing, text, TIMING)


@bounded_cache(2 * MB, lambda text, policy: _PARSED * text_size(text))
def policy_to_text(policy: Policy) -> str:
    """Return the policy as text.

    >>> policy_to_text(Policy()), policy_to_text(Policy(overlap="queue", max_attempts=3))
    ('{}', '{"maxAttempts":3,"overlapPolicy":"queue"}')
    """
    return _write_fields(policy, POLICY)


@bounded_cache(4 * MB, lambda policy, text: _PARSED * text_size(text))
def policy_from_text(text: str) -> Policy:
    """Return the policy that `policy_to_text` wrote.

    >>> policy_from_text('{"maxAttempts":3}') == Policy(max_attempts=3)
    True
    """
    return _read_fields(Policy, text, POLICY)


def policy_or_default(text: str | None) -> Policy:
    """Return the policy of a job; the default if there is none, or it cannot be read.

    Whoever runs the job reports a policy that cannot be read.
    """
    try:
        return DEFAULT_POLICY if text is None else policy_from_text(text)
    except InvalidArgument:
        return DEFAULT_POLICY


def work_to_text(work: Work) -> str:
    """Return the work as text, without its payload, which has its own column.

    >>> work_to_text(Work({"kind": "pull"}, payload=[1], message="hello"))
    '{"message":"hello","target":{"kind":"pull"}}'
    """
    return _write_fields(work, STORED_WORK)


@bounded_cache(8 * MB, lambda work, text: _PARSED * text_size(text))
def work_from_text(text: str) -> Work:
    """Return the work that `work_to_text` wrote, without its payload.

    >>> work_from_text('{"message":"hello"}') == Work(message="hello")
    True
    """
    return _read_fields(Work, text, STORED_WORK)


def payload_to_text(payload: Json) -> str | None:
    """Return the payload as text with its keys in the given order; None if there is none.

    >>> payload_to_text({"to": "me", "at": [9, 17]}), payload_to_text(None)
    ('{"to":"me","at":[9,17]}', None)
    """
    return None if payload is None else compact(payload)


def payload_from_text(text: str | None) -> Json:
    """Return the payload that `payload_to_text` wrote."""
    return None if text is None else _json(text, "payload")


def json_from_text(text: str | None) -> Json:
    """Return JSON of a run as it is shown. What cannot be read does not hide the rest of the run.

    >>> json_from_text('{"tokens":3}'), json_from_text('{"tokens":')
    ({'tokens': 3}, {'unreadable': '{"tokens":'})
    """
    if text is None:
        return None
    try:
        return cast(Json, read_cleaned_json(text))
    except ValueError:
        return {"unreadable": clean_text(text[:_SHOWN])}


def _write_fields(part: Timing | Policy | Work, table: Sequence[Field]) -> str:
    values = ((field, getattr(part, field.attr)) for field in table)
    return compact(
        {field.name: field.kind.write(value) for field, value in values if value != field.default}, sort=True
    )


def _read_fields(kind: type[T], text: str, table: Sequence[Field]) -> T:
    what, hints = kind.__name__.lower(), _hints(cast(Any, kind))
    stored = _json(text, what)
    by_name = {field.name: field for field in table}
    if not isinstance(stored, dict) or not stored.keys() <= by_name.keys():
        raise InvalidArgument(f"the stored {what} {quote(text)} has unknown fields")
    try:
        values = {by_name[name].attr: by_name[name].kind.restore(value) for name, value in stored.items()}
        part = kind(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"the stored {what} {quote(text)} cannot be read: {error}") from error
    for attr, value in values.items():
        if not _fits(value, hints[attr]):
            raise InvalidArgument(f"the stored {what} cannot be read: its {attr} is {quote(value)}")
    return part


def _json(text: str, what: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"the stored {what} {quote(text)} is not JSON: {error}") from error
    return value


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has the declared type of an attribute; a bool is not an int here."""
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if dataclasses.is_dataclass(hint):
        attrs = (field.name for field in dataclasses.fields(hint))
        return type(value) is hint and all(_fits(getattr(value, a), _hints(hint)[a]) for a in attrs)
    return isinstance(value, origin) if origin else type(value) is hint
