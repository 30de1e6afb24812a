"""A server: its operations (`Endpoints`), and what takes several requests or is not JSON.

`AsyncClient` builds on it and returns the public model. The command line uses it directly, because its
`--json` prints what the server sends.
"""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, cast

from wakeful.client.api_key_file import key_file, read_key
from wakeful.client.connection import Connection, Query, check_next, path, read_list
from wakeful.client.endpoints import Endpoints
from wakeful.client.events import events
from wakeful.client.fields import document, label_texts
from wakeful.client.tls import ClientTls
from wakeful.client.types import EventShape, JobShape, ReportResultShape, RunShape
from wakeful.errors import FailedPrecondition, Unavailable, WakefulError
from wakeful.model import Page
from wakeful.values.json_value import Json

DEFAULT_URL: Final = "http://127.0.0.1:9253"
_PAGE: Final = 500


class RestClient(Endpoints):
    """A server. Use it as an async context manager. `AsyncClient` documents the arguments."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        workspace: str = "default",
        timeout: float = 30.0,
        cert: str | None = None,
        cert_key: str | None = None,
        ca: str | None = None,
        run_id: str | None = None,
    ) -> None:
        url = url or os.environ.get("WAKEFUL_URL") or DEFAULT_URL
        key, source = _key(url, key)
        run_id = os.environ.get("WAKEFUL_RUN_ID") if run_id is None else run_id
        tls = ClientTls(cert, cert_key, ca).or_else()
        super().__init__(Connection(url, key, timeout, tls, source, run_id or None), workspace)

    def in_workspace(self, workspace: str | None) -> Self:
        """Return the same server for another workspace."""
        other = copy.copy(self)
        other.workspace = workspace or self.workspace
        return other

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    @property
    def key(self) -> str | None:
        """The key that requests carry."""
        return self._connection.key

    @property
    def has_key(self) -> bool:
        """Whether requests carry a key."""
        return self.key is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def sign_in_link(self) -> dict[str, Json]:
        """Create a one-time link that signs in to the dashboard with the key of this client."""
        _, link = await self._connection.request("POST", "/api/sign-in-links")
        return cast(dict[str, Json], link)

    async def ready(self) -> bool:
        """Return True if the server and its database respond; Unavailable otherwise."""
        await self._connection.request("GET", "/readyz")
        return True

    def events(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        types: Iterable[str] = (),
        after: int | None = None,
        patience: float = 60.0,
        on_connection: Callable[[bool], None] = lambda connected: None,
    ) -> AsyncGenerator[EventShape, None]:
        """Yield events as they happen, over as many connections as necessary.

        `on_connection` is called with True when a connection is established, and with False when it is lost.
        """
        query: Query = {"agent": agent, "job": job, "types": ",".join(types) or None}
        return events(self._connection, path(self.workspace, "events"), query, after, patience, on_connection)

    async def save_job(self, agent: str, fields: Mapping[str, object]) -> tuple[JobShape, bool]:
        """Do `upsert_job`; also return whether it created the job."""
        where = path(self.workspace, "agents", agent, "jobs", str(fields.get("name")))
        status, reply = await self._connection.request("PUT", where, body=document(fields))
        return cast(JobShape, reply), status == 201

    async def check_job(self, agent: str, fields: Mapping[str, object]) -> JobShape | None:
        """Return what `save_job` would save, or raise its error; change nothing. Quotas are not checked.

        None: a server of an earlier version, which does not say what it would be.
        """
        where = path(self.workspace, "agents", agent, "jobs", str(fields.get("name")))
        query, headers = {"dry_run": True}, {"prefer": "return=representation"}
        _, reply = await self._connection.request(
            "PUT", where, body=document(fields), query=query, headers=headers, optional=True
        )
        return cast(JobShape | None, reply)

    async def list_every_job(
        self,
        agent: str | None = None,
        *,
        include_disabled: bool = True,
        labels: Mapping[str, str] | Sequence[str] = (),
        q: str | None = None,
        state: str | None = None,
        creator: str | None = None,
        sort: str | None = None,
        at_most: int | None = None,
    ) -> list[JobShape]:
        """Return the jobs of an agent, or of all agents, page by page.

        With `at_most`, stop after the page that reaches this number.
        """
        found: list[JobShape] = []
        cursor: str | None = None
        while True:
            page = await self.list_all_jobs(
                agent=agent,
                include_disabled=include_disabled,
                label=label_texts(labels),
                q=q,
                state=state,
                creator=creator,
                sort=sort,
                limit=_PAGE,
                cursor=cursor,
            )
            found += page
            if not page.cursor or (at_most is not None and len(found) >= at_most):
                return found
            cursor = check_next(cursor, page.cursor)

    async def send_events(
        self, agent: str, instance: str, events: Sequence[dict[str, Json]]
    ) -> list[RunShape]:
        """Send CloudEvents to an instance, all or none; return their runs."""
        if len(events) == 1:
            return [cast(RunShape, await self.send_signals(agent, events[0], instance=instance))]
        reply = await self.send_signals(agent, [*events], instance=instance)
        return read_list(reply, "runs", dict)

    async def complete_runs(self, *, runs: Sequence[Mapping[str, object]]) -> list[ReportResultShape]:
        """Report the end of several runs, each with its `id`; return the result of each, in their order."""
        results = await super().complete_runs(runs=runs)
        if [each.get("id") for each in results] != [each.get("id") for each in runs]:
            raise Unavailable("the server responded, but not as Wakeful does: the results are of other runs")
        return results

    async def discard_run(self, run_id: str) -> None:
        """Discard a dead letter; FailedPrecondition if the run is none."""
        if not await self.discard_dead_letters({"ids": [run_id]}):
            run = await self.get_run(run_id)
            raise FailedPrecondition(f"run '{run_id}' is not a dead letter: it is {run.get('state')}")

    async def replay_all(self, agent: str | None = None) -> list[str]:
        """Replay the dead letters of an agent or of all, in several requests; return their ids."""
        return await self._settle_all(self.replay_dead_letters, agent, "replayed")

    async def discard_all(self, agent: str | None = None) -> list[str]:
        """Discard the dead letters of an agent or of all, in several requests; return their ids."""
        return await self._settle_all(self.discard_dead_letters, agent, "discarded")

    async def _settle_all(
        self, request: Callable[[Mapping[str, object]], Awaitable[Page[str]]], agent: str | None, done_as: str
    ) -> list[str]:
        newest = await self.list_dead_letters(agent=agent, limit=1)
        if not newest:
            return []
        last = newest[0].get("id")
        if not isinstance(last, str):
            raise Unavailable("the server responded, but not as Wakeful does: a run has no id")
        which = {"all": True} if agent is None else {"agent": agent}
        done: list[str] = []
        cursor: str | None = None
        while True:
            # Without `through`, replayed runs that fail again would be replayed again, without an end.
            try:
                page = await request({**which, "through": last, "cursor": cursor})
            except WakefulError as error:
                if not done:
                    raise
                raise type(error)(f"{len(done)} were {done_as}, then: {error.message}") from error
            done += page
            if page.cursor is None:
                return done
            cursor = check_next(cursor, page.cursor)


def _key(url: str, given: str | None) -> tuple[str | None, str]:
    """Return the key for a server, and where it comes from and what to do if it is refused."""
    if given:
        return given, ""
    if key := os.environ.get("WAKEFUL_KEY"):
        stored = read_key(url)
        other = f", or unset it to use the key in {key_file(url)}" if stored else ""
        return key, f"it comes from WAKEFUL_KEY: set it to a key of {url}{other}"
    if key := read_key(url):
        return key, (
            f"it comes from {key_file(url)}: set WAKEFUL_KEY to a key of {url}, or create one on the machine "
            "of the server with `wakeful serve --new-key`"
        )
    return None, ""
