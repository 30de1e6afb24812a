"""`verify` and `evidence` in a document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wakeful.document.kinds import Kind, milliseconds, text, whole
from wakeful.document.objects import check_names, copy_object, read_as, read_object, replace_duration
from wakeful.document.values import one_of, refuse, shown
from wakeful.duration import DAY
from wakeful.job.job import Json

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
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")
#: The fields of each kind; the first is required, except for `manual`.
_KINDS: Final = {
    "function": ("name", "timeoutMs"),
    "webhook": ("url", "headers", "timeoutMs"),
    "command": ("argv", "env", "cwd", "timeoutMs"),
    "http": ("url", "status", "contains", "newerThanMs", "headers", "timeoutMs"),
    MANUAL: ("timeoutMs",),
}
_EXAMPLES: Final = {
    "function": "a name, such as 'is-published'",
    "webhook": "a url, such as 'https://example.com/is-published'",
    "command": 'an argv, such as ["/usr/local/bin/is-published"]',
    "http": "a url, such as 'https://example.com/report.html'",
}
_HTTP: Final[dict[str, Kind]] = {
    "status": whole(100, 599),
    "contains": text(1_024),
    "newerThanMs": milliseconds(1),
}


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
    if not isinstance(kind, str) or kind not in _KINDS:
        what = "it has no kind" if kind is None else f"the kind {shown(kind)} is not known"
        refuse(f"{what}; it is {one_of(_KINDS)}")
    replace_duration(values, "timeout")
    if kind == "http":
        replace_duration(values, "newerThan")
    check_names(values, f"a check of the kind '{kind}'", ("kind", *_KINDS[kind]))
    if "timeoutMs" in values:
        longest = LONGEST_CONFIRM_MS if kind == MANUAL else LONGEST_VERIFY_MS
        values["timeoutMs"] = read_as("timeoutMs", milliseconds(1, longest), values["timeoutMs"])
    if kind != MANUAL:
        needed = values.get(_KINDS[kind][0])
        # The launcher validates an argv and a URL.
        if not needed or (kind != "command" and not isinstance(needed, str)):
            refuse(f"a check of the kind '{kind}' needs {_EXAMPLES[kind]}")
    if kind == "http":
        for name, read in _HTTP.items():
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
        refuse(f'{shown(value)} is not a list; write names, such as ["external_id"]')
    if len(names) > MAX_NAMES:
        refuse(f"it has {len(names)} names; at most {MAX_NAMES}")
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            refuse(
                f"{shown(name)} is not the name of a field; write one without spaces, at most "
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
