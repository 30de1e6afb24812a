"""Write the document of a job as texts that create it.

A document of the largest size takes seconds, so large ones are written in a thread. It is the only one: texts
wait for each other, and hold up nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from wakeful.document import Defaults
from wakeful.document.values import compact, json_value
from wakeful.errors import InvalidArgument
from wakeful.job.job import Json
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.job_snippets import Snippets, snippets

#: A document of so many characters is written in a few milliseconds.
_SMALL: Final = 1_024
_thread: Final = ThreadPoolExecutor(1, "job-texts")


class JobTexts:
    """Writes jobs as YAML, curl, CLI and Python."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def write(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        document: Mapping[str, object],
        base_url: str,
    ) -> Snippets:
        """Return the texts that create the job of a document, which need not be valid yet."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        content = json_value(document, None)
        if not isinstance(content, dict):
            raise InvalidArgument("a job is an object with a name and a schedule")
        return await write_texts(content, workspace, agent, base_url, self._accounts.defaults)


async def write_texts(
    document: Mapping[str, Json], workspace: str, agent: str, base_url: str, defaults: Defaults
) -> Snippets:
    """Return the texts that create the job of a document; a large one is written off the event loop."""
    write = partial(snippets, document, workspace, agent, base_url, defaults)
    if len(compact(dict(document))) <= _SMALL:
        return write()
    return await asyncio.get_running_loop().run_in_executor(_thread, write)
