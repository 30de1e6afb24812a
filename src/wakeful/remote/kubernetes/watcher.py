"""The state of all Jobs of an executor: a list, and then a watch from the version of that list.

A watch that ends is renewed from the last version. If that version is too old (410 Gone), or the connection
was lost, the Jobs are listed again. Jobs that are missing then were deleted meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from contextlib import aclosing
from typing import Final

from wakeful.logs import get_logger
from wakeful.remote.kubernetes.api import KubernetesApi, KubernetesError
from wakeful.remote.kubernetes.states import JobView, Manifest, job_view
from wakeful.remote.kubernetes.templates import EXECUTOR
from wakeful.remote.reporter import ReconnectBackoff

#: A watch that ends earlier, in seconds and without an event, is renewed after a delay.
_SHORT_S: Final = 1.0
_GONE: Final = 410
#: How many Jobs are remembered that were deleted after they had finished.
_MOST_ENDED: Final = 1_000

log = get_logger("wakeful.remote")


class JobWatcher:
    """Knows the Jobs of one executor."""

    def __init__(self, api: KubernetesApi, executor: str, backoff: ReconnectBackoff) -> None:
        self._api = api
        self._selector = f"{EXECUTOR}={executor}"
        self._backoff = backoff
        self._jobs: dict[str, JobView] = {}
        #: Jobs that had finished and are deleted, such as by `ttlSecondsAfterFinished: 0`, the oldest first
        self._ended: dict[str, JobView] = {}
        self._changes: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._listed = asyncio.Event()
        self._failed = False
        #: how many lists were read, and how many requests failed in a row
        self.lists = 0
        self.failures = 0

    @property
    def reachable(self) -> bool:
        """Whether the Jobs are known: they were listed, and the last request succeeded."""
        return self._listed.is_set()

    def jobs(self) -> list[JobView]:
        """Return all Jobs that are known."""
        return [*self._jobs.values()]

    def job(self, name: str) -> JobView | None:
        """Return a Job, also one that was deleted after its end; None: it is not known yet, or deleted."""
        return self._jobs.get(name) or self._ended.get(name)

    def learn(self, manifest: Manifest) -> None:
        """Add a Job that was just created or read, before the watch reports it."""
        view = job_view(manifest)
        if view is not None:
            self._jobs.setdefault(view.name, view)

    def change(self, name: str) -> asyncio.Event:
        """Return the event of the next change of a Job, or of the next list. Take it before you look."""
        return self._changes[name]

    async def wait_listed(self) -> None:
        """Wait until the Jobs are known."""
        await self._listed.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
        version: str | None = None
        while True:
            asked_s = 0
            try:
                if version is None:
                    version = await self._list()
                version, useful = await self._watch(version)
                self.failures = 0 if useful else self.failures + 1
            except KubernetesError as error:
                version, asked_s = None, error.retry_after_s
                self.failures += 1
                if error.status == _GONE:
                    log.info("kubernetes.relisted", error=error.message)
                else:
                    self._note_failure(error.message)
            except Exception as error:  # a response of another shape than that of Kubernetes
                version = None
                self.failures += 1
                self._note_failure(f"the response cannot be read: {type(error).__name__}: {error}")
            if self.failures > (1 if self.reachable else 0):
                await asyncio.sleep(max(self._backoff.delay(self.failures), asked_s))

    async def _list(self) -> str:
        found, version = await self._api.jobs(self._selector)
        known = self._jobs.keys()
        self._jobs = {view.name: view for view in map(job_view, found) if view is not None}
        self.lists += 1
        self._listed.set()
        if self._failed:
            self._failed = False
            log.info("kubernetes.connected")
        self._notify([*(known | self._changes.keys())])
        return version

    async def _watch(self, version: str) -> tuple[str, bool]:
        """Apply changes until the watch ends. Returns the last version, and whether it was of use."""
        loop = asyncio.get_running_loop()
        started, useful = loop.time(), False
        async with aclosing(self._api.watch_jobs(self._selector, version)) as events:
            async for kind, manifest in events:
                version, useful = str(manifest["metadata"]["resourceVersion"]), True
                self.failures = 0
                if kind != "BOOKMARK":
                    self._apply(kind, manifest)
        return version, useful or loop.time() - started > _SHORT_S

    def _apply(self, kind: str, manifest: Manifest) -> None:
        view = job_view(manifest)
        if view is None:
            return
        if kind == "DELETED":
            self._jobs.pop(view.name, None)
            if view.end is not None:
                self._ended[view.name] = view
                if len(self._ended) > _MOST_ENDED:
                    del self._ended[next(iter(self._ended))]
        else:
            self._jobs[view.name] = view
        self._notify([view.name])

    def _notify(self, names: Iterable[str]) -> None:
        for name in names:
            event = self._changes.pop(name, None)
            if event is not None:
                event.set()

    def _note_failure(self, why: str) -> None:
        self._listed.clear()
        if not self._failed:
            self._failed = True
            log.warning("kubernetes.unreachable", error=why)
