"""The client of @modelcontextprotocol/sdk in Node: it connects with the address of /mcp alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.api.mcp.test_oauth import database
from tests.integration.conftest import NewApp
from tests.support.api_client import served
from tests.support.browser_client import browsing
from tests.support.node_packages import node_package
from tests.support.tools import tool
from tests.support.waiting import PATIENCE
from wakeful.service.auth.access import LOCAL

pytest.importorskip("mcp")

from tests.support.mcp_oauth import Person

__all__ = ["database"]

_SCRIPT = Path(__file__).parents[3] / "support" / "mcp_oauth_client.mjs"


async def test_the_client_in_node_connects_with_the_address_alone(new_app: NewApp):
    node, packages = tool("node"), node_package("@modelcontextprotocol/sdk")
    async with new_app() as app, served(app) as operator, browsing(operator.url) as browser:
        await app.services.agents.put(LOCAL, "default", "writer", {})
        await browser.sign_in((await operator.new("admin")).key)
        person = Person(browser)
        process = await asyncio.create_subprocess_exec(
            node,
            str(_SCRIPT),
            f"{operator.url}/mcp",
            str(packages),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE):
                address = (await process.stdout.readline()).decode().strip()
                await person.open(address)
                process.stdin.write(person.location.encode() + b"\n")
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert json.loads(output) == {"tools": ["cron"], "listed": [], "savedTokens": 2}
