"""The client with texts that no address and no header can carry, and values that are not JSON."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.raw_server import RawConnection, raw_server
from tests.support.waiting import PATIENCE
from tests.unit.client.test_wrong_responses import GIVEN, client_methods
from wakeful import AsyncClient, InvalidArgument
from wakeful.client.connection import path
from wakeful.client.rest import RestClient
from wakeful.errors import WakefulError

TEXTS = {"control": "a\x00\n\r\x1b\x7f", "surrogate": "\ud800", "empty": "", "elsewhere": ".."}


async def respond(connection: RawConnection) -> None:
    while True:
        await connection.request()
        await connection.send(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"ok": true}')


def calls_with(kind: object, method: Any, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the arguments for a call for each parameter that takes text."""
    known = GIVEN if kind is AsyncClient else {**GIVEN, "start": "x", "end": "x"}
    parameters = [
        each for each in inspect.signature(method).parameters.values() if each.kind is not each.VAR_KEYWORD
    ]
    needed = {each.name: known.get(each.name, "x") for each in parameters if each.default is each.empty}
    for each in parameters:
        if str(each.annotation) in ("str", "str | None"):
            yield each.name, {**needed, each.name: text}


@pytest.mark.parametrize("kind", [AsyncClient, RestClient])
@pytest.mark.parametrize("what", TEXTS)
async def test_an_odd_text_is_sent_or_an_error_of_wakeful(kind: Any, what: str):
    wrong, called = {}, 0
    async with raw_server(respond) as server, kind(f"http://127.0.0.1:{server.port}", "wk_x") as client:
        for name, method in client_methods(client):
            for parameter, given in calls_with(kind, method, TEXTS[what]):
                called += 1
                positional = [
                    given.pop(each.name)
                    for each in inspect.signature(method).parameters.values()
                    if each.kind is each.POSITIONAL_ONLY
                ]
                try:
                    async with asyncio.timeout(PATIENCE):
                        await method(*positional, **given)
                except WakefulError:
                    pass
                except Exception as error:
                    wrong[f"{name}({parameter})"] = repr(error)
    assert not wrong
    assert called > 50


@pytest.mark.parametrize("text", ["wk_a\nb", "wk_a\x00", "wk_\x7f", "wk_\ud800"])
async def test_a_key_or_a_run_that_no_header_can_carry_is_refused_without_showing_it(text: str):
    for key, run_id in ((text, None), ("wk_x", text)):
        async with RestClient("http://127.0.0.1:1", key, run_id=run_id) as client:
            with pytest.raises(InvalidArgument, match="cannot be sent") as refused:
                await client.get_status()
        assert text not in refused.value.message


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'a' * 64}", "http://h/\x01", "http://h\x00"])
async def test_an_address_that_cannot_be_one_is_refused(url: str):
    async with RestClient(url, "wk_x") as client:
        with pytest.raises(InvalidArgument, match="is not the address of a server"):
            await client.get_status()


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_path_does_not_lead_to_another_resource(part: str):
    with pytest.raises(InvalidArgument, match="is not a name or an id"):
        path("default", "agents", part, "jobs")


@pytest.mark.parametrize("what", ["bytes", "a long number", "an object"])
async def test_a_payload_that_is_not_json_is_refused(what: str):
    value: Any = {"bytes": b"abc", "a long number": 10**5000, "an object": object()}[what]
    async with AsyncClient("http://127.0.0.1:1", "wk_x") as client:
        with pytest.raises(InvalidArgument, match="JSON"):
            await client.jobs.run("digest", payload={"data": [value]})
