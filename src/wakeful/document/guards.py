"""Prechecks, budgets, alerts, `verify` and `evidence` in a document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wakeful.document.kinds import (
    Kind,
    Reader,
    check_names,
    clock,
    copy_object,
    flag,
    milliseconds,
    read_as,
    read_object,
    read_zone,
    replace_duration,
    text,
    whole,
)
from wakeful.job.target_kinds import CHECK_KINDS
from wakeful.values.duration import DAY
from wakeful.values.json_value import Json, list_choices, quote, refuse, whole_number

#: The timeout of a precheck that sets none.
DEFAULT_PRECHECK_MS: Final = 10_000
_LONGEST_PRECHECK_MS: Final = 600_000
#: The fields of each kind of precheck; the first is required.
_PRECHECKS: Final = {name: (*check.names, "timeoutMs") for name, check in CHECK_KINDS.items()}
_TOKEN_CAPS: Final = ("tokensPerDay", "tokensPerRun")
_COST_CAPS: Final = ("costPerDay", "costPerRun")
TOKENS: Final = whole(1, 2**53)
MOST_COST: Final = 1e12
#: The fields of alerts.
ALERT_FIELDS: Final[dict[str, Reader]] = {
    "url": text(2_048),
    "secret": text(1_024),
    "channel": text(1_024),
    "to": text(1_024),
    "failures": whole(1, 1_000_000),
    "deadLetter": flag,
    "missed": flag,
    "budget": flag,
    "waiting": flag,
    "digest": clock,
    "digestTz": read_zone,
    "cooldownMs": milliseconds(0, 30 * DAY),
}
#: The values of alert fields that a document leaves out.
ALERT_DEFAULTS: Final[dict[str, Json]] = {
    "failures": 3,
    "deadLetter": True,
    "missed": True,
    "budget": True,
    "waiting": False,
    "cooldownMs": 3_600_000,
}
#: How long a check may take if it sets no timeout.
DEFAULT_VERIFY_MS: Final = 30_000
LONGEST_VERIFY_MS: Final = 600_000
#: How long a person has to confirm a run, if the job sets no timeout.
DEFAULT_CONFIRM_MS: Final = DAY
LONGEST_CONFIRM_MS: Final = 30 * DAY
#: The most fields that `evidence` names, and the longest name.
MAX_NAMES: Final = 16
LONGEST_NAME: Final = 64
MANUAL: Final = "manual"
_EVIDENCE_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")
#: The fields of each kind; the first is required, except for `manual`.
_VERIFY_KINDS: Final = {
    **_PRECHECKS,
    "http": ("url", "status", "contains", "newerThanMs", "headers", "timeoutMs"),
    MANUAL: ("timeoutMs",),
}
_VERIFY_EXAMPLES: Final = {
    **{name: check.verify for name, check in CHECK_KINDS.items()},
    "http": "a url, such as 'https://example.com/report.html'",
}
_HTTP_FIELDS: Final[dict[str, Kind]] = {
    "status": whole(100, 599),
    "contains": text(1_024),
    "newerThanMs": milliseconds(1),
}


def precheck(value: object) -> dict[str, Json]:
    """Return the check that runs before each launch.

    >>> precheck({"kind": "function", "name": "anything-new", "timeout": "5s"})
    {'kind': 'function', 'name': 'anything-new', 'timeoutMs': 5000}
    """
    values = read_object(value, '{"kind": "function", "name": "anything-new"}')
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in _PRECHECKS:
        what = "it has no kind" if kind is None else f"the kind {quote(kind)} is not known"
        refuse(f"{what}; it is {list_choices(_PRECHECKS)}")
    replace_duration(values, "timeout")
    check_names(values, f"a precheck of the kind '{kind}'", ("kind", *_PRECHECKS[kind]))
    if "timeoutMs" in values:
        values["timeoutMs"] = read_as("timeoutMs", milliseconds(1, _LONGEST_PRECHECK_MS), values["timeoutMs"])
    needed = values.get(_PRECHECKS[kind][0])
    if not needed or (CHECK_KINDS[kind].is_text and not isinstance(needed, str)):
        refuse(f"a precheck of the kind '{kind}' needs {CHECK_KINDS[kind].precheck}")
    return copy_object(values)


def budget(value: object) -> dict[str, Json]:
    """Return how much may be used per day (UTC) and per run.

    >>> budget({"tokens_per_day": 200_000})
    {'tokensPerDay': 200000}
    """
    values = read_object(value, '{"tokensPerDay": 200000, "costPerDay": 5}')
    check_names(values, "a budget", ("tokensPerDay", "costPerDay", "tokensPerRun", "costPerRun"))
    for cap in _TOKEN_CAPS:
        if cap in values:
            values[cap] = read_as(cap, TOKENS, values[cap])
    for cap in _COST_CAPS:
        if cap not in values:
            continue
        cost = values[cap]
        if isinstance(cost, bool) or not isinstance(cost, int | float):
            refuse(f"{cap}: {quote(cost)} is not a number; give one such as 5 or 0.5")
        if not 0 < cost <= MOST_COST:
            refuse(f"{cap}: {quote(cost)} is out of range; give a number above 0")
        number = whole_number(cost)
        values[cap] = cost if number is None else number
    return copy_object(values)


def alerts(value: object) -> dict[str, Json]:
    """Return where alerts go and which events cause them, with defaults for fields that are left out.

    >>> alerts({"url": "https://example.com/alerts", "failures": 5})["failures"]
    5
    >>> alerts({"channel": "telegram", "to": "@ada"})["to"]
    '@ada'
    """
    values = read_object(value, '{"url": "https://example.com/alerts"}, or {"channel": "team-ops"}')
    replace_duration(values, "cooldown")
    check_names(values, "alerts", tuple(ALERT_FIELDS))
    if "url" not in values and "channel" not in values:
        refuse("it has neither a url nor a channel; give a webhook's url, a channel's name, or both")
    for name, needs in (("secret", "url"), ("to", "channel"), ("digestTz", "digest")):
        if name in values and needs not in values:
            refuse(f"{name}: it has no effect without a {needs}; give one, or leave it out")
    for name, read in ALERT_FIELDS.items():
        if name in values:
            values[name] = read_as(name, read, values[name])
    return {**ALERT_DEFAULTS, **copy_object(values)}


def verify(value: object) -> dict[str, Json]:
    """Return the check that runs after each successful launch.

    >>> verify({"kind": "http", "url": "https://example.com/report", "newer_than": "1h"})
    {'kind': 'http', 'url': 'https://example.com/report', 'newerThanMs': 3600000}
    >>> verify("manual")
    {'kind': 'manual'}
    """
    if value == MANUAL:
        value = {"kind": MANUAL}
    values = read_object(value, '{"kind": "http", "url": "https://example.com/report.html"}')
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in _VERIFY_KINDS:
        what = "it has no kind" if kind is None else f"the kind {quote(kind)} is not known"
        refuse(f"{what}; it is {list_choices(_VERIFY_KINDS)}")
    replace_duration(values, "timeout")
    if kind == "http":
        replace_duration(values, "newerThan")
    check_names(values, f"a check of the kind '{kind}'", ("kind", *_VERIFY_KINDS[kind]))
    if "timeoutMs" in values:
        longest = LONGEST_CONFIRM_MS if kind == MANUAL else LONGEST_VERIFY_MS
        values["timeoutMs"] = read_as("timeoutMs", milliseconds(1, longest), values["timeoutMs"])
    if kind != MANUAL:
        needed = values.get(_VERIFY_KINDS[kind][0])
        is_text = kind not in CHECK_KINDS or CHECK_KINDS[kind].is_text
        if not needed or (is_text and not isinstance(needed, str)):
            refuse(f"a check of the kind '{kind}' needs {_VERIFY_EXAMPLES[kind]}")
    if kind == "http":
        for name, read in _HTTP_FIELDS.items():
            if name in values:
                values[name] = read_as(name, read, values[name])
    return copy_object(values)


def evidence(value: object) -> tuple[str, ...]:
    """Return the names of the fields that a success must bring, from a list or from a single name.

    >>> evidence(["external_id", "result_url"]), evidence("external_id")
    (('external_id', 'result_url'), ('external_id',))
    """
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        refuse(f'{quote(value)} is not a list; write names, such as ["external_id"]')
    if len(names) > MAX_NAMES:
        refuse(f"it has {len(names)} names; at most {MAX_NAMES}")
    for name in names:
        if not isinstance(name, str) or not _EVIDENCE_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            refuse(
                f"{quote(name)} is not the name of a field; write one without spaces, at most "
                f"{LONGEST_NAME} characters, such as 'external_id'"
            )
    return tuple(dict.fromkeys(names))


def timeout_ms(verify: Mapping[str, Json]) -> int:
    """Return how long a check may take, or a person has to confirm.

    >>> timeout_ms({"kind": "http", "url": "https://example.com"}), timeout_ms({"kind": "manual"})
    (30000, 86400000)
    """
    set_ms = verify.get("timeoutMs")
    if isinstance(set_ms, int):
        return set_ms
    return DEFAULT_CONFIRM_MS if verify.get("kind") == MANUAL else DEFAULT_VERIFY_MS
