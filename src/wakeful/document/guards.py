"""Prechecks, budgets and alerts in a document."""

from __future__ import annotations

from typing import Final

from wakeful.document.kinds import Kind, flag, milliseconds, text, whole
from wakeful.document.objects import check_names, copy_object, read_as, read_object, replace_duration
from wakeful.document.values import one_of, refuse, shown, whole_number
from wakeful.duration import DAY
from wakeful.job.job import Json

#: The timeout of a precheck that sets none.
DEFAULT_PRECHECK_MS: Final = 10_000
_LONGEST_PRECHECK_MS: Final = 600_000
#: The fields of each kind of precheck; the first is required.
_PRECHECKS: Final = {
    "function": ("name", "timeoutMs"),
    "webhook": ("url", "headers", "timeoutMs"),
    "command": ("argv", "env", "cwd", "timeoutMs"),
}
_EXAMPLES: Final = {
    "function": "a name, such as 'anything-new'",
    "webhook": "a url, such as 'https://example.com/any'",
    "command": 'an argv, such as ["/usr/local/bin/any-mail"]',
}
_TOKEN_CAPS: Final = ("tokensPerDay", "tokensPerRun")
_COST_CAPS: Final = ("costPerDay", "costPerRun")
TOKENS: Final = whole(1, 2**53)
MOST_COST: Final = 1e12
#: The fields of alerts.
ALERT_FIELDS: Final[dict[str, Kind]] = {
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
#: The values of alert fields that a document leaves out.
ALERT_DEFAULTS: Final[dict[str, Json]] = {
    "failures": 3,
    "deadLetter": True,
    "missed": True,
    "budget": True,
    "cooldownMs": 3_600_000,
}


def precheck(value: object) -> dict[str, Json]:
    """Return the check that runs before each launch.

    >>> precheck({"kind": "function", "name": "anything-new", "timeout": "5s"})
    {'kind': 'function', 'name': 'anything-new', 'timeoutMs': 5000}
    """
    values = read_object(value, '{"kind": "function", "name": "anything-new"}')
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in _PRECHECKS:
        what = "it has no kind" if kind is None else f"the kind {shown(kind)} is not known"
        refuse(f"{what}; it is {one_of(_PRECHECKS)}")
    replace_duration(values, "timeout")
    check_names(values, f"a precheck of the kind '{kind}'", ("kind", *_PRECHECKS[kind]))
    if "timeoutMs" in values:
        values["timeoutMs"] = read_as("timeoutMs", milliseconds(1, _LONGEST_PRECHECK_MS), values["timeoutMs"])
    needed = values.get(_PRECHECKS[kind][0])
    # The launcher validates an argv.
    if not needed or (kind != "command" and not isinstance(needed, str)):
        refuse(f"a precheck of the kind '{kind}' needs {_EXAMPLES[kind]}")
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
            refuse(f"{cap}: {shown(cost)} is not a number; give one such as 5 or 0.5")
        if not 0 < cost <= MOST_COST:
            refuse(f"{cap}: {shown(cost)} is out of range; give a number above 0")
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
    for name, needs in (("secret", "url"), ("to", "channel")):
        if name in values and needs not in values:
            refuse(f"{name}: it has no effect without a {needs}; give one, or leave it out")
    for name, read in ALERT_FIELDS.items():
        if name in values:
            values[name] = read_as(name, read, values[name])
    return {**ALERT_DEFAULTS, **copy_object(values)}
