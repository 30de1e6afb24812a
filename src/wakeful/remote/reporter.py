"""Report outcomes: many in one request, and each until the server has it or its run is lost.

One request is under way at a time. What ends meanwhile is in the next one, so requests become larger with the
load. During an outage the reports wait: the server refuses those whose lease was lost, and no others. One
that the server cannot write now holds up no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from wakeful.client.rest import RestClient
from wakeful.client.types import ReportResultShape
from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.logs import get_logger
from wakeful.remote.handlers import batches, unreportable
from wakeful.values.json_value import Json

Report = dict[str, Json]
#: A run and its attempt: a report of one attempt never replaces or removes that of another.
Key = tuple[str, int]

log = get_logger("wakeful.remote")


class Reporter:
    """Sends the reports of one worker.

    `on_request` is called after each request, with its error or None; `on_done` when a run and its attempt
    are reported, or their report is refused.
    """

    def __init__(
        self,
        client: RestClient,
        backoff: ReconnectBackoff,
        on_request: Callable[[WakefulError | None], None],
        on_done: Callable[[str, int], None],
    ) -> None:
        self._client = client
        self._backoff = backoff
        self._on_request = on_request
        self._on_done = on_done
        self._reports: dict[Key, Report] = {}
        self._in_flight: set[Key] = set()
        self._submitted = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._reports)

    def submit(self, report: Report) -> None:
        """Send a report as soon as possible."""
        self._reports[_key(report)] = report
        self._empty.clear()
        self._submitted.set()

    def drop(self, run_id: str, attempt: int) -> None:
        """Forget the report of an attempt that is lost, unless it is being sent."""
        if (run_id, attempt) not in self._in_flight:
            self._forget((run_id, attempt))

    async def flush(self) -> None:
        """Wait until all reports are sent."""
        await self._empty.wait()

    async def run(self) -> None:
        """Send reports until cancelled. After an error it may be called again."""
        failures = 0
        while True:
            self._submitted.clear()
            kept = False
            for batch in [*batches(self._reports.values())]:
                answered = await self._send(batch)
                kept = kept or any(self._reports.get(_key(report)) is report for report in batch)
                if not answered:
                    break
            failures = failures + 1 if kept else 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.delay(failures) if kept else None):
                    await self._submitted.wait()

    async def _send(self, batch: Sequence[Report]) -> bool:
        """Send reports together. Those that the server could not write stay. False: it did not answer."""
        self._in_flight = {_key(report) for report in batch}
        try:
            results = await self._client.complete_runs(runs=batch)
        except InvalidArgument as error:
            self._on_request(None)
            await self._send_apart(batch, error)
            return True
        except WakefulError as error:
            self._on_request(error)
            return False
        finally:
            self._in_flight = set()
        self._on_request(None)
        for report, result in zip(batch, results, strict=True):
            if result.get("code") != Unavailable.code:
                self._settle(report, result)
        return True

    async def _send_apart(self, batch: Sequence[Report], error: InvalidArgument) -> None:
        """Find out which report of a refused request the server does not accept."""
        if len(batch) == 1:
            run_id = str(batch[0]["id"])
            self._settle(
                batch[0], ReportResultShape(id=run_id, state=None, code=error.code, message=error.message)
            )
            return
        for report in batch:
            await self._send([report])

    def _settle(self, report: Report, result: ReportResultShape) -> None:
        run_id, attempt = _key(report)
        code = result.get("code")
        if code is None:
            self._forget((run_id, attempt))
            return
        message = result.get("message")
        log.warning("remote.report_refused", run_id=run_id, attempt=attempt, code=code, error=message)
        if code == InvalidArgument.code and not _is_refusal(report):
            self.submit(unreportable(report, message or ""))
        else:
            self._forget((run_id, attempt))

    def _forget(self, key: Key) -> None:
        if self._reports.pop(key, None) is not None:
            self._on_done(*key)
        if not self._reports:
            self._empty.set()


def _key(report: Report) -> Key:
    return str(report["id"]), int(str(report["attempt"]))


def _is_refusal(report: Report) -> bool:
    """Return whether the report itself says that another one was refused."""
    return str(report.get("error", "")).startswith("its outcome was refused")


class ReconnectBackoff(NamedTuple):
    """Delays that double up to a maximum, each ± 25 %, so that many workers do not return at once."""

    base_s: float = 0.5
    max_s: float = 15.0

    def delay(self, failures: int) -> float:
        """Return the delay after this number of failures in a row.

        >>> 15 * 0.75 <= ReconnectBackoff().delay(20) <= 15 * 1.25
        True
        """
        seconds = min(self.max_s, self.base_s * 2.0 ** min(failures - 1, 30))
        return seconds * random.uniform(0.75, 1.25)
