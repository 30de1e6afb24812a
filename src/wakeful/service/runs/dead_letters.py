"""Dead letters: groups by cause, lists, and replaying or discarding those that a filter selects.

A cause is computed from the error, not stored. So each call looks at a bounded number of dead letters.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.run.dead_letter_groups import (
    DeadLetterGroup,
    DeadLetterRow,
    DeadLetterSelection,
    group_dead_letters,
)
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.runs.runs import MANY, RunService
from wakeful.store.idempotency import Keyed
from wakeful.store.port import Store
from wakeful.store.rows import RunView
from wakeful.store.stats import DeadLetterFilter
from wakeful.values.ids import is_id

#: How many of the newest dead letters the groups are made of.
GROUPED: Final = 2_000
#: How many dead letters a page of a list looks at, and a request that replays or discards those that match.
LISTED: Final = 2_000
SCANNED: Final = 10_000
_BATCH: Final = 1_000
_FIELDS: Final = ("agent", "job", "cause", "through")


class DeadLetterGroups(NamedTuple):
    """Groups of the newest dead letters."""

    groups: list[DeadLetterGroup]
    #: how many dead letters they are made of, and whether there are older ones
    scanned: int
    more: bool


class Selected(NamedTuple):
    """Dead letters that a selection means, oldest first."""

    ids: list[str]
    #: the id after which to continue; None: there are no others
    after: str | None


class DeadLetterService:
    """Groups, lists, replays and discards dead letters."""

    def __init__(self, store: Store, accounts: Accounts, runs: RunService) -> None:
        self._store = store
        self._accounts = accounts
        self._runs = runs

    async def groups(
        self, principal: Principal, workspace: str, agent: str | None = None, job: str | None = None
    ) -> DeadLetterGroups:
        """Return the newest dead letters by job and cause."""
        visible = await self._visible(principal, workspace, agent)
        only = DeadLetterFilter(workspace, visible, limit=GROUPED + 1)
        letters = await self._store.dead_letters(only)
        selection = DeadLetterSelection(job=job)
        shown = letters[:GROUPED]
        groups = group_dead_letters(letter for letter in shown if selection.includes(letter))
        return DeadLetterGroups(groups, len(shown), len(letters) > GROUPED)

    async def list(
        self,
        principal: Principal,
        workspace: str,
        selection: DeadLetterSelection,
        *,
        before: str | None = None,
        limit: int = 50,
    ) -> tuple[builtins.list[RunView], str | None]:
        """List selected dead letters, newest first, and the id before which the next page begins."""
        visible = await self._visible(principal, workspace, selection.agent)
        found: builtins.list[str] = []
        scanned = 0
        while True:
            only = DeadLetterFilter(
                workspace, visible, through=selection.through, before=before, limit=_BATCH
            )
            letters = await self._store.dead_letters(only)
            for letter in letters:
                if selection.includes(letter):
                    found.append(letter.id)
                    if len(found) > limit:
                        return await self._in_order(found[:limit]), found[limit - 1]
            scanned += len(letters)
            if len(letters) < _BATCH:
                return await self._in_order(found), None
            before = letters[-1].id
            if scanned >= LISTED:
                return await self._in_order(found), before

    async def select(
        self,
        principal: Principal,
        workspace: str,
        selection: DeadLetterSelection,
        *,
        after: str | None = None,
        limit: int = MANY,
    ) -> Selected:
        """Return the ids of the oldest selected dead letters, up to `limit`. For admins."""
        await self._accounts.authorize(principal, "dead-letter", workspace)
        visible = await self._visible(principal, workspace, selection.agent)
        found: builtins.list[str] = []
        scanned = 0
        while scanned < SCANNED:
            letters = await self._oldest(workspace, visible, selection, after)
            for letter in letters:
                if len(found) == limit:
                    return Selected(found, after)
                after = letter.id
                if selection.includes(letter):
                    found.append(letter.id)
            scanned += len(letters)
            if len(letters) < _BATCH:
                return Selected(found, None)
        return Selected(found, after)

    async def replay(
        self,
        principal: Principal,
        workspace: str,
        selected: Sequence[str],
        *,
        keyed: Keyed[Sequence[str]] | None = None,
    ) -> Sequence[str]:
        """Replay these dead letters; see `RunService.replay_many`."""
        return await self._runs.replay_many(principal, workspace, selected, keyed=keyed)

    async def discard(self, principal: Principal, workspace: str, selected: Sequence[str]) -> Sequence[str]:
        """Discard these dead letters; see `RunService.discard_many`."""
        return await self._runs.discard_many(principal, workspace, selected)

    async def _oldest(
        self, workspace: str, agent: str | None, selection: DeadLetterSelection, after: str | None
    ) -> builtins.list[DeadLetterRow]:
        return await self._store.dead_letters(
            DeadLetterFilter(
                workspace, agent, after=after, through=selection.through, oldest_first=True, limit=_BATCH
            )
        )

    async def _visible(self, principal: Principal, workspace: str, agent: str | None) -> str | None:
        await self._accounts.authorize(principal, "read", workspace, agent)
        await self._accounts.check_agent(principal, workspace, agent)
        return visible_agent(principal, agent)

    async def _in_order(self, ids: Sequence[str]) -> builtins.list[RunView]:
        found = {run.id: run for run in await self._store.runs_by_ids(ids)} if ids else {}
        await self._accounts.names.load(run.triggered_by for run in found.values())
        return [found[run_id] for run_id in ids if run_id in found]


def read_selection(document: dict[str, object]) -> DeadLetterSelection:
    """Return the selection of a request.

    >>> read_selection({"cause": "http 503", "job": "digest"}).cause
    'http 503'
    """
    for name in _FIELDS:
        value = document.get(name)
        if not isinstance(value, str | None) or (isinstance(value, str) and len(value) > 200):
            raise InvalidArgument(f"{name}: write a text of at most 200 characters")
    given = {name: str(document[name]) for name in _FIELDS if document.get(name) is not None}
    if "through" in given and not is_id(given["through"]):
        raise InvalidArgument("through: it is not the id of a run; use that of the newest run to select")
    return DeadLetterSelection(**given)
