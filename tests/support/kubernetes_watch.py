"""The watches of the Kubernetes API: events of objects from a version on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from tests.support.kubernetes_status import ApiError, Object
from tests.support.kubernetes_store import ObjectStore, Selector

_EMPTY_POD: Object = {"containers": None}
#: The empty objects of bookmarks, with the fields that their types require.
_EMPTY: dict[str, Object] = {
    "pods": {"kind": "Pod", "apiVersion": "v1", "spec": _EMPTY_POD},
    "jobs": {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "spec": {"template": {"metadata": {"creationTimestamp": None}, "spec": _EMPTY_POD}},
    },
}


@dataclass
class Watch:
    """An open watch. `version` is the last one that it has shown; 0: it starts with the present objects."""

    resource: str
    namespace: str
    chosen: Selector
    version: int
    seconds: float
    bookmarks: bool
    #: set when a bookmark is to be sent
    wanted: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, store: ObjectStore, send: Callable[[Object], Awaitable[None]]) -> None:
        """Send events until the time is over or the version is too old."""
        if self.version == 0:
            self.version = store.version
            for item in filter(self.chosen, store.all(self.resource, self.namespace)):
                await send({"type": "ADDED", "object": item})
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    await self._send_new(store, send)
        except TimeoutError:
            if self.bookmarks:
                await send(self._bookmark())
        except ApiError as error:
            await send({"type": "ERROR", "object": error.body})

    async def _send_new(self, store: ObjectStore, send: Callable[[Object], Awaitable[None]]) -> None:
        """Send what is new, then wait for a change or the wish for a bookmark."""
        changes = store.changes_after(self.version, self.resource, self.namespace)
        shown = max(self.version, store.version)
        for change in changes:
            event = change.event(self.chosen)
            if event is not None:
                await send(event)
            self.version = change.version
        self.version = shown
        if self.wanted.is_set() and self.bookmarks:
            await send(self._bookmark())
        self.wanted.clear()
        if store.version <= shown:
            await _first(store.next_write().wait(), self.wanted.wait())

    def _bookmark(self) -> Object:
        metadata = {"resourceVersion": str(self.version), "creationTimestamp": None}
        return {"type": "BOOKMARK", "object": {**_EMPTY[self.resource], "metadata": metadata, "status": {}}}


async def _first(*waits: Coroutine[None, None, object]) -> None:
    """Wait until one of these is done."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
