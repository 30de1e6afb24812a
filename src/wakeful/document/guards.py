"""What keeps a job from costing more than it is worth, as people write it: prechecks, budgets and alerts."""

from __future__ import annotations

import math
from typing import Final

from wakeful.document.objects import an_object, copied, durations, only, read_as
from wakeful.document.values import (
    Reader,
    flag,
    milliseconds,
    one_of,
    refuse,
    shown,
    text,
    whole,
    whole_number,
)
from wakeful.duration import DAY
from wakeful.job import Json

#: How long whoever is asked whether there is anything to do may think about it.
DEFAULT_PRECHECK_MS: Final = 10_000
_LONGEST_PRECHECK_MS: Final = 600_000
#: By kind, what else is in a precheck: first what it cannot be without.
_PRECHECKS: Final = {
    "function": ("name", "timeoutMs"),
    "webhook": ("url", "headers", "timeoutMs"),
    "command": ("argv", "env", "cwd", "timeoutMs"),
}
_NEEDED: Final = {
    "function": "a name, such as 'anything-new'",
    "webhook": "a url, such as 'https://example.com/any'",
    "command": 'an argv, such as ["/usr/local/bin/any-mail"]',
}
_CAPS: Final = ("tokensPerDay", "costPerDay")
TOKENS_PER_DAY: Final = whole(1, 2**53)
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
    "cooldownMs": milliseconds(0, 30 * DAY),
}
#: What alerts are at, where their document leaves it open.
ALERT_DEFAULTS: Final[dict[str, Json]] = {
    "failures": 3,
    "deadLetter": True,
    "missed": True,
    "budget": True,
    "cooldownMs": 3_600_000,
}


def precheck(value: object) -> dict[str, Json]:
    """Who says before each launch whether there is anything to do.

    >>> precheck({"kind": "function", "name": "anything-new", "timeout": "5s"})
    {'kind': 'function', 'name': 'anything-new', 'timeoutMs': 5000}
    """
    given = an_object(value, '{"kind": "function", "name": "anything-new"}')
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in _PRECHECKS:
        what = "it has no kind" if kind is None else f"the kind {shown(kind)} is not known"
        refuse(f"{what}; it is {one_of(_PRECHECKS)}")
    durations(given, "timeout")
    only(given, f"a precheck of the kind '{kind}'", ("kind", *_PRECHECKS[kind]))
    if "timeoutMs" in given:
        given["timeoutMs"] = read_as("timeoutMs", milliseconds(1, _LONGEST_PRECHECK_MS), given["timeoutMs"])
    needed = given.get(_PRECHECKS[kind][0])
    # What is wrong with an argv, its launcher says best.
    if not needed or (kind != "command" and not isinstance(needed, str)):
        refuse(f"a precheck of the kind '{kind}' needs {_NEEDED[kind]}")
    return copied(given)


def budget(value: object) -> dict[str, Json]:
    """How much may be used on one day (UTC).

    >>> budget({"tokens_per_day": 200_000})
    {'tokensPerDay': 200000}
    """
    given = an_object(value, '{"tokensPerDay": 200000, "costPerDay": 5}')
    only(given, "a budget", _CAPS)
    if "tokensPerDay" in given:
        given["tokensPerDay"] = read_as("tokensPerDay", TOKENS_PER_DAY, given["tokensPerDay"])
    if "costPerDay" in given:
        cost = given["costPerDay"]
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost):
            refuse(f"costPerDay: {shown(cost)} is not a number; give one such as 5 or 0.5")
        if not 0 < cost <= MOST_COST:
            refuse(f"costPerDay: {shown(cost)} is out of range; give a number above 0")
        number = whole_number(cost)
        given["costPerDay"] = cost if number is None else number
    return copied(given)


def alerts(value: object) -> dict[str, Json]:
    """Who is told when something goes wrong, and of what; whole, with what is left open at its default.

    >>> alerts({"url": "https://example.com/alerts", "failures": 5})["failures"]
    5
    >>> alerts({"channel": "telegram", "to": "@ada"})["to"]
    '@ada'
    """
    given = an_object(value, '{"url": "https://example.com/alerts"}, or {"channel": "team-ops"}')
    durations(given, "cooldown")
    only(given, "alerts", tuple(ALERT_FIELDS))
    if "url" not in given and "channel" not in given:
        refuse("there is neither a url nor a channel; give that of a webhook, a channel's name, or both")
    for name, needs in (("secret", "url"), ("to", "channel")):
        if name in given and needs not in given:
            refuse(f"{name}: it says nothing without a {needs}; give one, or leave it out")
    for name, read in ALERT_FIELDS.items():
        if name in given:
            given[name] = read_as(name, read, given[name])
    return {**ALERT_DEFAULTS, **copied(given)}
