"""A part of the API of a workspace."""

from __future__ import annotations

from typing import cast

from wakeful.client.connection import Connection, Query, path, read_list
from wakeful.values.json_value import Json


class RestPart:
    """Endpoints below the path of a workspace."""

    def __init__(self, connection: Connection, workspace: str) -> None:
        self._connection = connection
        self._workspace = workspace

    async def _request(
        self, method: str, *parts: str, body: Json = None, query: Query | None = None
    ) -> dict[str, Json]:
        where = path(self._workspace, *parts)
        return cast(dict[str, Json], await self._connection.request(method, where, body=body, query=query))

    async def _list(self, name: str) -> list[Json]:
        """Return all objects of a kind."""
        return read_list(await self._request("GET", name), name, dict)
