"""The watch on Jobs goes on, whatever an API server or a proxy before it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wakeful.remote.kubernetes.api import KubernetesError
from wakeful.remote.kubernetes.templates import ATTEMPT, RUN_ID
from wakeful.remote.kubernetes.watcher import JobWatcher
from wakeful.remote.reporter import ReconnectBackoff

GOOD: dict[str, Any] = {
    "metadata": {"name": "a", "resourceVersion": "7", "labels": {RUN_ID: "r", ATTEMPT: "1"}}
}
BAD: list[Any] = [
    {},
    {"metadata": None},
    {"metadata": []},
    [],
    None,
    {"metadata": {"name": "a"}, "status": 3},
]


class _Api:
    """Answers with each item once, and then regularly."""

    def __init__(self, lists: list[Any], events: list[Any]) -> None:
        self.lists, self.events = lists, events

    async def jobs(self, selector: str) -> tuple[list[Any], str]:
        if not self.lists:
            return [], "1"
        item = self.lists.pop(0)
        if isinstance(item, Exception):
            raise item
        return [item], "1"

    async def watch_jobs(self, selector: str, version: str) -> AsyncIterator[tuple[str, Any]]:
        if self.events:
            item = self.events.pop(0)
            if isinstance(item, Exception):
                raise item
            yield "ADDED", item
            return
        yield "ADDED", GOOD
        await asyncio.Event().wait()


@pytest.mark.parametrize("bad", [*BAD, KubernetesError(502, "", "no"), RuntimeError("a bug")], ids=repr)
@pytest.mark.parametrize("where", ["list", "watch"])
async def test_a_response_that_is_garbage_does_not_end_the_watch(where: str, bad: Any):
    api: Any = _Api([bad] if where == "list" else [], [bad] if where == "watch" else [])
    watcher = JobWatcher(api, "cluster-1", ReconnectBackoff(0.001, 0.001))
    task = asyncio.create_task(watcher.run())
    try:
        async with asyncio.timeout(30):
            while watcher.job("a") is None:
                assert not task.done()
                await asyncio.sleep(0.001)
        assert watcher.reachable
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
