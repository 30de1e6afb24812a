"""The daily digest of what waits for a person (`digest` in alerts): when it is due, and its text. Pure.

The digest of a workspace is about all its agents, that of an agent about this agent. After a downtime the
last one that was missed is sent, and no other. If nothing waits, none is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple

from wakeful.cron.zone import zone
from wakeful.run.alerts import AlertText, Message, Recipients, message_runs
from wakeful.run.inbox import InboxRow
from wakeful.run.run import NewRun
from wakeful.values.instants import utc_datetime
from wakeful.values.plural import plural

#: The kind of the message.
DIGEST: Final = "digest"
#: How many items a digest names.
LISTED: Final = 10


class DigestOwner(NamedTuple):
    """A workspace or an agent whose alert settings have a digest."""

    workspace: str
    #: '' for the whole workspace
    agent: str
    #: the zone of its jobs that name none
    tz: str | None
    #: when the last digest was written; before the first, when the settings were
    since_ms: int
    recipients: Recipients


def digest_times(owner: DigestOwner, now_ms: int) -> tuple[int, int] | None:
    """Return when the last digest was due, and when the next is; None without recipients."""
    settings = owner.recipients.settings
    if settings is None or not isinstance(settings.get("digest"), str):
        return None
    clock = time.fromisoformat(str(settings["digest"]))
    local = zone(str(settings.get("digestTz") or owner.tz or "UTC"))
    today = utc_datetime(now_ms).astimezone(local.tzinfo).date()
    days = (today + timedelta(days=number) for number in (-1, 0, 1, 2))
    times = [int(local.to_utc(datetime.combine(day, clock)).timestamp() * 1000) for day in days]
    return max(at for at in times if at <= now_ms), min(at for at in times if at > now_ms)


def write_digest(
    owner: DigestOwner, now_ms: int, counts: Mapping[str, int], items: Sequence[InboxRow]
) -> tuple[NewRun, ...]:
    """Return the runs that send the digest; none if nothing waits. `items` are the newest."""
    waiting = sum(counts.values())
    if not waiting:
        return ()
    verb = "waits" if waiting == 1 else "wait"
    more = (f"and {waiting - len(items)} more",) if waiting > len(items) else ()
    lines = (*(f"- {item.title}" for item in items), *more)
    fact = f"{plural(waiting, 'thing')} {verb} for a decision"
    text = AlertText(fact, "decide with: wakeful inbox", lines=lines)
    message = Message(DIGEST, now_ms, owner.workspace, owner.agent, None, None, waiting, text)
    return message_runs(message, owner.recipients, now_ms)
