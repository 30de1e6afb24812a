"""Chains of jobs, each of which fires after another: that they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.store.port import Store
from wakeful.stored_text import is_storable

#: How many jobs may come after one another.
MAX_CHAIN: Final = 100


async def check_chain(store: Store, workspace: str, agent: str, name: str, after: object) -> None:
    """Refuse a job that would come after itself by way of others: it would run for ever.

    `after` is as a document has it: a name, or an object with the name as its `job`. Whether it is one at all
    is for whoever reads the document to say.
    """
    named = after.get("job") if isinstance(after, Mapping) else after
    path = [name]
    while isinstance(named, str) and is_storable(named):
        path.append(named)
        if named == name or len(path) > MAX_CHAIN:
            way = ", which comes after ".join(f"'{each}'" for each in path[:8])
            raise InvalidArgument(f"after: it would come after itself and never end: {way}")
        before = await store.job(workspace, agent, named)
        named = before.after_job if before else None
