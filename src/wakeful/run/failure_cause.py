"""The cause of a failed run, as a short text that is the same for each failure of one kind. Pure.

Failures of one job with one cause are one incident (`wakeful.run.incidents`), so a cause has no variable
parts: no ids, numbers, addresses or times.
"""

from __future__ import annotations

import re
from typing import Final

#: The length of a cause.
MAX_CAUSE: Final = 120
#: Reasons that do not say what failed: the error text does.
_GENERAL: Final = frozenset({"failed", "permanent", "precheck_failed", "network", "unavailable"})
#: `exit 3: …` and `killed by SIGKILL: …`, of a command.
_COMMAND_END: Final = re.compile(r"(exit \d{1,3}|killed by \w+)\b")
# Errors are text of users, and a cause is computed in a transaction. So each expression takes a time that is
# proportional to the length of the text: it does not go back (`*+`), or only a few characters.

#: The name of an exception, as in `ValueError: …` or `asyncpg.exceptions.UniqueViolationError: …`.
_EXCEPTION: Final = re.compile(r"(?:[A-Za-z_]\w*+\.)*+((?=[A-Z][A-Z_]*+[a-z])\w++)(?=:\s|$)")

# Parts of an error text that vary between failures of one kind. The order matters: a URL contains an address,
# and an address contains numbers.
_VARIABLE: Final = re.compile(
    r"""
      (?P<kept>\b(?:http|status|code|exit)[ :=]{1,2}\d{1,3}\b)  # a status is part of the cause
    | [a-z][a-z0-9+.-]{0,30}://\S+                         # URLs
    | \S[^\s@]{0,63}@\S+                                   # mail addresses
    | '[^'\n]*' | "[^"\n]*" | `[^`\n]*`                    # quoted values
    | (?<![\w.])/(?:[\w.-]++/){0,30}[\w.-]*\d[\w.-]*(?:/[\w.-]*)*    # paths with a number
    | \b0x[0-9a-f]+\b                                      # memory addresses
    | \b[\w-]{0,64}\d(?:[\w.:+-]*\w)?                      # words with a digit: ids, times, numbers, hosts
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MARKS: Final = re.compile(r"#(?:[\s,;:/.\[\]()-]*#)+")


def failure_cause(reason: str | None, response_code: int | None, error: str | None) -> str:
    """Return the cause of a failed run: by its status code, its reason, its exception, or its error text.

    >>> failure_cause("http", 503, "HTTP 503 Service Unavailable"), failure_cause("timeout", None, "…")
    ('http 503', 'timeout')
    >>> failure_cause("exit", None, "exit 3: no space left on /var/tmp/job-81")
    'exit 3'
    >>> failure_cause(None, None, "ValueError: run 17 has no rows")
    'ValueError'
    >>> failure_cause("network", None, "could not connect to example.com:443: connection refused")
    'network: could not connect to example.com:#: connection refused'
    >>> failure_cause(None, None, "order 81-a of '2027-03-01' was refused")
    'order # of # was refused'
    >>> failure_cause(None, None, "upstream 10.0.0.7 answered HTTP 502 after 31 ms")
    'upstream # answered HTTP 502 after # ms'
    """
    text = error or ""
    if response_code is not None and reason in ("http", "gone"):
        return f"http {response_code}"
    if reason in ("exit", "killed"):
        end = _COMMAND_END.match(text)
        return end[1] if end else reason
    if reason is not None and reason not in _GENERAL:
        return reason[:MAX_CAUSE]
    if reason in ("network", "precheck_failed"):
        detail = _without_variables(text.removeprefix("precheck: "))
        return f"{reason}: {detail}"[:MAX_CAUSE] if detail else reason
    exception = _EXCEPTION.match(text)
    if exception:
        return exception[1][:MAX_CAUSE]
    return _without_variables(text) or reason or "failed"


def _without_variables(text: str) -> str:
    """Return the first line of an error with `#` for each part that varies."""
    line = text.strip().partition("\n")[0][:2_000]
    return " ".join(_MARKS.sub("#", _VARIABLE.sub(_mark, line)).split())[:MAX_CAUSE].rstrip()


def _mark(match: re.Match[str]) -> str:
    return match["kept"] or "#"
