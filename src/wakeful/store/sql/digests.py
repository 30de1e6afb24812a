"""The digests of what waits for a person (`wakeful.run.digests`).

When the last one was written is a row of `alert_cooldowns`, so that of all replicas one writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from wakeful.run.alerts import SKEW_MS
from wakeful.run.digests import DIGEST, LISTED, DigestOwner
from wakeful.run.inbox import InboxRow
from wakeful.run.run import NewRun
from wakeful.store.changelog import TransactionEvents
from wakeful.store.sql.base import SqlBase, reads
from wakeful.store.sql.budgets import START_COOLDOWN
from wakeful.store.sql.driver import SqlSession
from wakeful.store.sql.inbox import InboxFilter, count_inbox, inbox
from wakeful.store.sql.incidents import RECIPIENT_COLUMNS, read_recipients, recipient_joins

_HAS_DIGEST: Final = """ alerts IS NOT NULL AND alerts LIKE '%"digest":%'"""
#: workspaces_alerts and agents_alerts, all of them; for each, the primary keys, and twice jobs_name
DIGEST_OWNERS: Final = f"""
    SELECT i.workspace, i.agent, coalesce(i.tz, w.tz), coalesce(t.at, i.updated_at), {RECIPIENT_COLUMNS}
    FROM (
        SELECT name AS workspace, '' AS agent, tz, updated_at
        FROM workspaces /*+ INDEXED BY workspaces_alerts */ WHERE{_HAS_DIGEST}
        UNION ALL SELECT workspace, name, tz, updated_at
        FROM agents /*+ INDEXED BY agents_alerts */ WHERE{_HAS_DIGEST}
    ) i {recipient_joins()}
    LEFT JOIN alert_cooldowns t ON t.workspace = i.workspace AND t.subject = i.agent AND t.kind = '{DIGEST}'
    ORDER BY i.workspace, i.agent"""
_FIRST: Final = DigestOwner._fields.index("recipients")


async def digest_owners(session: SqlSession) -> list[DigestOwner]:
    """Return the workspaces and agents whose alert settings have a digest."""
    rows = map(iter, await session.rows(DIGEST_OWNERS))
    return [DigestOwner._make((*islice(row, _FIRST), read_recipients(row))) for row in rows]


class SqlDigests(SqlBase):
    """The digests of what waits for a person."""

    digest_owners = reads(digest_owners)

    async def send_digest(
        self,
        now_ms: int,
        owner: DigestOwner,
        due_ms: int,
        write: Callable[[Mapping[str, int], Sequence[InboxRow]], Sequence[NewRun]],
    ) -> bool:
        """Add the runs that `write` returns for what waits; False: a digest was written since `due_ms`."""

        async def run(db: Any, events: TransactionEvents) -> bool:
            session, agent = self._driver.session(db), owner.agent or None
            key = (owner.workspace, owner.agent, DIGEST)
            if not await session.execute(START_COOLDOWN, *key, now_ms, due_ms - 1, now_ms + SKEW_MS):
                return False
            only = InboxFilter(owner.workspace, agent, limit=LISTED)
            counts = await count_inbox(session, owner.workspace, agent)
            runs = write(counts, await inbox(session, only))
            if runs:
                await self._operations.insert_runs.insert_runs(db, events, now_ms, runs)
            return True

        return await self._driver.write(run)
