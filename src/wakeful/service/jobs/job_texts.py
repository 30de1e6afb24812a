"""Write the document of a job as texts that create it."""

from __future__ import annotations

from collections.abc import Mapping

from wakeful.document.values import json_value
from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.job_snippets import Snippets, snippets


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
        return snippets(content, workspace, agent, base_url, self._accounts.defaults)
