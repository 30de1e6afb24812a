"""The processes of a server read each other's metrics, over unix sockets in a directory of their own.

A process also writes its counters to a file, before it returns them. So a counter never goes back: if the
process ends, its file has all that was ever returned, and the process that replaces it continues from there.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry

from wakeful.logs import get_logger
from wakeful.server.processes.metrics import (
    Collected,
    Snapshot,
    continued,
    from_json,
    lasting,
    merged,
    snapshot_of,
    to_json,
)
from wakeful.values.process_share import ProcessShare

#: Seconds for the response of another process.
_TIMEOUT_S: Final = 2.0
_MAX_BYTES: Final = 1 << 24

log = get_logger("wakeful.metrics")


class MetricsExchange:
    """The metrics of this process for the others, and theirs for it."""

    def __init__(self, folder: Path, share: ProcessShare, registry: CollectorRegistry) -> None:
        self._folder = folder
        self._share = share
        self._registry = registry
        self._earlier: Snapshot = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._earlier = self._written(self._share.number)
        place = self._socket(self._share.number)
        place.unlink(missing_ok=True)  # of the process that this one replaces
        self._server = await asyncio.start_unix_server(self._respond, place)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            self._socket(self._share.number).unlink(missing_ok=True)
            self._snapshot()

    async def collect_all(self) -> Collected:
        """Return the metrics of all processes. Of one that does not respond, the counters it wrote last."""
        others = [number for number in range(1, self._share.count + 1) if number != self._share.number]
        found = await asyncio.gather(*map(self._of, others))
        return Collected(merged(self._snapshot(), found))

    def _snapshot(self) -> Snapshot:
        """Return the metrics of this process, after their counters are written."""
        snapshot = continued(self._earlier, snapshot_of(self._registry.collect()))
        file = self._file(self._share.number)
        new = file.with_suffix(".new")
        try:
            new.write_text(json.dumps(to_json(lasting(snapshot))), encoding="utf-8")
            os.replace(new, file)
        except FileNotFoundError:  # the supervisor has ended, and this process will
            pass
        except OSError as error:
            log.warning("metrics.not_written", error=str(error))
        return snapshot

    async def _of(self, number: int) -> Snapshot:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._socket(number), limit=_MAX_BYTES)
                try:
                    return from_json(json.loads(await reader.read(-1)))
                finally:
                    writer.close()
        return self._written(number)

    def _written(self, number: int) -> Snapshot:
        try:
            return from_json(json.loads(self._file(number).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    async def _respond(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the other process has ended
            writer.write(json.dumps(to_json(self._snapshot())).encode())
            await writer.drain()
        writer.close()

    def _socket(self, number: int) -> Path:
        return self._folder / f"{number}.sock"

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.json"
