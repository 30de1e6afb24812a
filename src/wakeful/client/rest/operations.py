"""The endpoints of workers, channels and settings."""

from __future__ import annotations

from typing import Final, cast

from wakeful.client.connection import path, read_list
from wakeful.client.rest.part import RestPart
from wakeful.client.types import ChannelsShape, ChannelTestShape, SettingShape, WorkersShape

#: Seconds that the server waits for the service of a channel, besides the usual timeout.
_SEND_TIMEOUT: Final = 30.0


class RestOperations(RestPart):
    """Workers, channels and settings."""

    async def workers(self) -> WorkersShape:
        """Return the processes that take runs, and the executors that hold claimed runs."""
        reply = await self._request("GET", "workers")
        for name in ("workers", "executors"):
            read_list(reply, name, dict)
        return cast(WorkersShape, reply)

    async def channels(self) -> ChannelsShape:
        """Return the channels and the recent deliveries of the workspace."""
        reply = await self._request("GET", "channels")
        for name in ("channels", "deliveries"):
            read_list(reply, name, dict)
        return cast(ChannelsShape, reply)

    async def test_channel(self, name: str, to: str | None = None) -> ChannelTestShape:
        """Send a test message and wait for the result."""
        where = path(self._workspace, "channels", name, "test")
        reply = await self._connection.request("POST", where, body={"to": to}, extra_timeout=_SEND_TIMEOUT)
        return cast(ChannelTestShape, reply)

    async def settings(self) -> list[SettingShape]:
        """Return the settings of the process that answers."""
        return cast(list[SettingShape], await self._list("settings"))
