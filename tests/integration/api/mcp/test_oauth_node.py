"""Clients in Node that others wrote: the SDK and the Inspector connect with the address of /mcp alone."""

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
from tests.support.web_programs import free_port
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


async def _inspect(folder: Path, url: str, *options: str) -> asyncio.subprocess.Process:
    """Start the official Inspector, which lists the tools. It finds no browser."""
    packages = node_package("@modelcontextprotocol/inspector")
    program = packages / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
    own = {"HOME": str(folder), "PATH": str(folder), "MCP_INSPECTOR_SECRET_STORE": "memory"}
    return await asyncio.create_subprocess_exec(
        tool("node"),
        *(str(program), "--cli", f"{url}/mcp", "--transport", "http", "--method", "tools/list", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**own, "MCP_AUTO_OPEN_ENABLED": "true"},
    )


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_signs_in_with_the_address_alone_or_takes_a_key(
    new_app: NewApp, tmp_path: Path, era: str
):
    async with new_app() as app, served(app) as operator, browsing(operator.url) as browser:
        await app.services.agents.put(LOCAL, "default", "writer", {})
        await browser.sign_in((await operator.new("admin")).key)
        person, callback = Person(browser), f"http://127.0.0.1:{free_port()}/oauth/callback"
        key = ("--header", f"Authorization: Bearer {operator.key}")
        with_key = await _inspect(tmp_path, operator.url, "--protocol-era", era, *key)
        by_oauth = await _inspect(tmp_path, operator.url, "--protocol-era", era, "--callback-url", callback)
        try:
            assert by_oauth.stdout is not None
            async with asyncio.timeout(PATIENCE):
                address = ""
                while not address.startswith("http"):
                    line = await by_oauth.stdout.readline()
                    assert line, "the Inspector ended"
                    address = line.decode().partition("navigate to: ")[2].strip()
                await person.open(address)
                async with operator.session.get(person.location) as response:
                    assert response.status == 200
                outputs = [(await each.communicate())[0] for each in (with_key, by_oauth)]
        finally:
            for each in (with_key, by_oauth):
                if each.returncode is None:
                    each.kill()
                    await each.wait()
    for output in outputs:
        found, _ = json.JSONDecoder().raw_decode(output[output.index(b"{") :].decode())
        assert [each["name"] for each in found["tools"]] == ["cron"]
