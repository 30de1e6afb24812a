"""A preview of a schedule: what an expression means and when it fires next.

python -m wakeful "0 9 * * MON-FRI" --tz Europe/Berlin
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from wakeful.cron import Cron
from wakeful.errors import InvalidSchedule


def lines(cron: Cron, after: datetime, count: int) -> Iterator[str]:
    """One line for each tick, and one between two ticks where the clocks have changed."""
    ticks = cron.upcoming(after, count)
    if not ticks:
        yield "never within 100 years"
        return
    yield _line(ticks[0])
    for earlier, later in pairwise(ticks):
        if change := _offset(later) - _offset(earlier):
            yield f"-- clocks go {'forward' if change > timedelta(0) else 'back'} {_amount(abs(change))} --"
        yield _line(later)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the preview; exit code 2 and a sentence where the schedule cannot be read."""
    parser = argparse.ArgumentParser(prog="wakeful", description="Preview a cron expression.")
    parser.add_argument("expression", help="5 fields, or 6 with leading seconds; quote it")
    parser.add_argument("--tz", default="UTC", help="an IANA time zone (default: UTC)")
    parser.add_argument("-n", "--count", type=_positive, default=5, help="how many ticks (default: 5)")
    parser.add_argument("--after", type=_instant, help="an ISO 8601 time, UTC unless it says (default: now)")
    args = parser.parse_args(argv)

    try:
        cron = Cron(args.expression, tz=args.tz)
    except InvalidSchedule as error:
        print(f"wakeful: {error}", file=sys.stderr)
        return 2

    print(cron.explain())
    for line in lines(cron, args.after or datetime.now(UTC), args.count):
        print(_dim(line) if line.startswith("--") else line)
    return 0


def _line(tick: datetime) -> str:
    local = tick.isoformat(" ", "seconds")
    utc = tick.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{tick:%a} {local}   {utc}"


def _offset(tick: datetime) -> timedelta:
    return tick.utcoffset() or timedelta(0)


def _amount(change: timedelta) -> str:
    hours, minutes = divmod(int(change.total_seconds()) // 60, 60)
    return " ".join(part for part in (f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes)) if part)


def _dim(text: str) -> str:
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return text if plain else f"\033[2m{text}\033[0m"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an ISO 8601 time") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


if __name__ == "__main__":
    sys.exit(main())
