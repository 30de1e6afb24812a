"""Check that chains of jobs (`after`) have no cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.store.port import Store
from wakeful.stored_text import is_storable

#: The longest chain of jobs.
MAX_CHAIN: Final = 100


async def check_chain(store: Store, workspace: str, agent: str, name: str, after: object) -> None:
    """Raise InvalidArgument if a job would follow itself through others: the chain would never end.

    `after` is the field of a document: a name, or an object with the name in `job`. Other values are ignored:
    the reader of the document refuses them.
    """
    named = after.get("job") if isinstance(after, Mapping) else after
    path = [name]
    while isinstance(named, str) and is_storable(named):
        path.append(named)
        if named == name or len(path) > MAX_CHAIN:
            chain = ", which comes after ".join(f"'{each}'" for each in path[:8])
            raise InvalidArgument(f"after: it would come after itself and never end: {chain}")
        before = await store.job(workspace, agent, named)
        named = before.after_job if before else None
