"""Text that runs bring from outside, by each source: every list, page, export and stream still works."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.raw_server import RawConnection, raw_server
from tests.support.rpc_client import calling
from tests.support.sse_client import listening
from tests.support.waiting import eventually
from wakeful import Permanent
from wakeful.launch.port import MAX_OUTPUT
from wakeful.run.outcome import Failed, Succeeded

#: A lone surrogate, NUL, controls, an escape sequence, bidirectional overrides, a line separator, markup.
ODD: Final = "a\ud800 \udfff\x00\x07\x1b[31m\u202e\u2066\u2028\ufeff\uffff</script>'\"\\"
#: The same as JSON with escapes: valid JSON, which no UTF-8 can hold once it is read.
ODD_JSON: Final = json.dumps({"tokens": 3, "note": ODD, ODD: [ODD]})
#: A multibyte character on the limit of outputs.
LONG: Final = "x" * (MAX_OUTPUT - 1) + "\U0001f600" + ODD

ANSWERS: Final = (
    (200, b"", b'{"usage":{"note":"\\ud800"}}'),
    (200, b"X-Wakeful-Usage: " + ODD_JSON.encode() + b"\r\n", b"ok"),
    (200, b'X-Wakeful-Usage: {"note":"\xff\xfe"}\r\n', b"\xff\xfe\x00"),
    (200, b"X-Wakeful-Usage: \xff\r\n", ODD_JSON.encode()),
    (200, b'X-Wakeful-Usage: {"n":NaN,"m":1e999}\r\n', LONG.encode("utf-8", "surrogatepass")),
    (302, b"Location: /\xff\r\n", b""),
    (500, b"Retry-After: \xff\r\n", ODD.encode("utf-8", "surrogatepass")),
    (
        200,
        b"",
        json.dumps(
            {
                "choices": [{"message": {"role": "assistant", "content": ODD}, "finish_reason": ODD}],
                "usage": {"prompt_tokens": 3, "note": ODD},
            }
        ).encode(),
    ),
    (418, b"content-encoding: \xff\r\n", f'{{"usage":{ODD_JSON}}}'.encode()),
)

#: A program that prints bytes that are not UTF-8, reports odd evidence, and fails.
PRINT: Final = r"""
import os, sys
sys.stdout.buffer.write(b"\xff\x00\xed\xa0\x80"); sys.stderr.buffer.write(b"\xff\x00\xed\xa0\x80")
open(os.environ["JOB_EVIDENCE_FILE"], "w").write('{"a": "\\ud800"}')
sys.exit(3)
"""

PAGES: Final = (
    "", "jobs", "runs", "calendar", "agents", "dead-letters", "dead-letters?view=runs", "incidents", "cost",
    "audit", "channels", "workers", "agents/default",
)  # fmt: skip
LISTS: Final = (
    "/runs?limit=200", "/jobs", "/dead-letters", "/dead-letters/groups", "/incidents", "/status", "/cost",
    "/audit", "/search?q=a", "/workers", f"{JOBS}", "/agents/default/runs?limit=200",
)  # fmt: skip


@asynccontextmanager
async def hostile_url() -> AsyncIterator[str]:
    """Serve `/0`, `/1` …: one of the answers each."""

    async def talk(connection: RawConnection) -> None:
        while True:
            head, _ = await connection.request()
            status, headers, body = ANSWERS[int(head.split(b"/")[1].split()[0])]
            await connection.send(
                b"HTTP/1.1 %d Odd\r\n%scontent-length: %d\r\n\r\n" % (status, headers, len(body)) + body
            )

    async with raw_server(talk) as server:
        yield f"http://127.0.0.1:{server.port}"


async def test_no_text_of_a_run_breaks_a_list_a_page_or_a_stream(new_app: NewApp):
    app = new_app(commands=("*",))
    outcomes: dict[str, object] = {
        "text": ODD,
        "long": LONG,
        "value": {"note": ODD, ODD: ODD},
        "usage": Succeeded(ODD, ODD_JSON, evidence=ODD_JSON),
        "no-usage": Succeeded("ok", "{", evidence="{"),
        "nan": Succeeded("ok", '{"tokens":NaN}', evidence='{"a":1e999}'),
        "deep": Succeeded("ok", "[" * 100_000),
        "failed": Failed(ODD, True, usage=ODD_JSON, output=LONG),
    }

    async def work(run: Any) -> object:
        name = str(run.job)
        if name == "raising":
            raise Permanent(ODD)
        return outcomes.get(name, '{"external_id":"\\ud800","summary":"\\u0000"}')

    app.function("work")(work)
    app.function("skip")(lambda: {"run": False, "reason": ODD})
    app.function("watch")(lambda: {"run": True, "context": {"a": "\x00\u202e"}, "state": {"a": "\x00"}})
    app.function("bad-watch")(lambda: {"run": True, "context": {"a": ODD}, "state": ODD})
    app.function("verdict")(lambda run: ODD)
    function = {"kind": "function", "name": "work"}
    async with hostile_url() as url, app, served(app) as ask:
        jobs: dict[str, dict[str, object]] = {
            **{name: {"target": function} for name in (*outcomes, "raising")},
            **{
                f"hook-{number}": {"target": {"kind": "webhook", "url": f"{url}/{number}"}}
                for number in range(len(ANSWERS))
            },
            "skipped": {"target": function, "precheck": {"kind": "function", "name": "skip"}},
            "watched": {"target": function, "precheck": {"kind": "function", "name": "watch"}},
            "refused": {"target": function, "precheck": {"kind": "function", "name": "bad-watch"}},
            "verified": {"target": function, "verify": {"kind": "function", "name": "verdict"}},
            "checked": {"target": function, "verify": {"kind": "webhook", "url": f"{url}/3"}},
            "evident": {"target": function, "evidence": ["external_id"]},
            "told": {"target": function, "payload": {"a": "\x00\u202e</script>"}, "deliver": True},
            "chat": {"target": {"kind": "chat", "url": f"{url}/7", "model": "m"}, "message": "hello"},
            "no-chat": {"target": {"kind": "chat", "url": f"{url}/8", "model": "m"}, "message": "hello"},
            "command": {"target": {"kind": "command", "argv": [sys.executable, "-c", PRINT]}},
            "after": {"target": function, "after": {"job": "text", "output": True}},
        }
        for name, fields in jobs.items():
            schedule = {} if "after" in fields else {"schedule": SELDOM}
            made = await ask("POST", JOBS, {"name": name, "maxAttempts": 1, **schedule, **fields})
            assert made.status == 201, made
        async with listening(ask) as stream, calling(ask) as call:
            await call("events.subscribe")
            for name in jobs:
                if name != "after":
                    assert (await ask("POST", f"{JOBS}/{name}/run", {})).status < 300
            await _pull_and_complete(ask)
            await eventually(lambda: _all_over(ask, len(jobs) + 2))
            assert (await ask("POST", f"{JOBS}/text/run", {})).status < 300
            last = (await ask("GET", f"{JOBS}/text/runs")).body["runs"][0]["id"]

            def is_last(run: dict[str, Any] | None, kind: str) -> bool:
                return kind == "run.finished" and run is not None and run["id"] == last

            await stream.until(lambda event: is_last(event.data["run"], event.type))
            await call.until(lambda event: is_last(event["data"]["run"], event["event"]))
        async with listening(ask, last_event_id=0) as again:  # all of them once more
            await again.until(lambda event: is_last(event.data["run"], event.type))
        await _read_everything(ask, list(jobs))
        used = {name: (await _last_run(ask, name))["usage"] for name in ("hook-0", "hook-2", "usage", "deep")}
        assert used["hook-0"] == {"note": "\ufffd"}
        assert used["hook-2"] == {"note": "\ufffd\ufffd"}
        assert (used["usage"]["tokens"], used["deep"]) == (3, None)
        for number in range(len(ANSWERS)):
            document = {"target": {"kind": "webhook", "url": f"{url}/{number}"}}
            assert (await ask("POST", f"{JOBS}/test-target", document)).status == 200


@pytest.mark.slow
async def test_a_stored_run_that_cannot_be_read_is_shown_as_such(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    """An earlier version stored such runs."""
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"wakeful.store.{module}.outcomes.storable", lambda finished: finished)
    app = new_app()
    texts = {"odd": ODD_JSON, "cut": '{"a', "infinite": '{"a":1e999}', "deep": "[" * 100_000}
    app.function("work")(lambda run: Succeeded(texts[run.job], texts[run.job], evidence=texts[run.job]))
    async with app, served(app) as ask:
        for name in texts:
            document = {"name": name, "schedule": SELDOM, "target": {"kind": "function", "name": "work"}}
            assert (await ask("POST", JOBS, document)).status == 201
            assert (await ask("POST", f"{JOBS}/{name}/run", {})).status < 300
        await eventually(lambda: _all_over(ask, len(texts)))
        async with listening(ask, last_event_id=0) as stream, calling(ask) as call:
            await call("events.subscribe", after=0)
            seen = 0
            while seen < len(texts):
                event = await stream.next_event()
                assert event is not None
                seen += event.type == "run.finished"
            for _ in range(len(texts)):
                await call.until(lambda each: each["event"] == "run.finished")
        await _read_everything(ask, list(texts))
        assert (await _last_run(ask, "cut"))["usage"] == {"unreadable": '{"a'}
        assert (await _last_run(ask, "odd"))["usage"]["tokens"] == 3


async def _last_run(ask: ApiClient, job: str) -> dict[str, Any]:
    found: dict[str, Any] = (await ask("GET", f"{JOBS}/{job}/runs")).body["runs"][0]
    return found


async def _pull_and_complete(ask: ApiClient) -> None:
    """Execute two runs outside: with text that is accepted, and with text that is refused or replaced."""
    await ask(
        "POST", JOBS, {"name": "pulled", "maxAttempts": 1, "schedule": SELDOM, "target": {"kind": "pull"}}
    )
    for _ in range(2):
        await ask("POST", f"{JOBS}/pulled/run", {})
    claimed = (await ask("POST", "/runs/claim", {"worker": "w", "limit": 2, "waitMs": 5_000})).body["runs"]
    if len(claimed) < 2:
        claimed += (await ask("POST", "/runs/claim", {"worker": "w", "waitMs": 5_000})).body["runs"]
    texts = ODD.replace("\ud800", "").replace("\udfff", "")
    for run, status in zip(claimed, ("succeeded", "failed"), strict=True):
        report = {"attempt": run["attempt"], "status": status, "output": texts, "error": texts}
        path = f"/runs/{run['id']}/complete"
        for field in ("usage", "evidence"):
            odd = await ask("POST", path, {**report, field: {"a": "\ud800"}})
            assert odd.status == 400, odd
        report["usage"] = report["evidence"] = {"a": texts, texts: 1}
        done = await ask("POST", path, report)
        assert done.status == 200, done


async def _all_over(ask: ApiClient, runs: int) -> bool:
    found = (await ask("GET", "/runs?limit=200")).body
    assert "runs" in found, found
    return len(found["runs"]) >= runs and all(run["finishedAt"] for run in found["runs"])


async def _read_everything(ask: ApiClient, jobs: list[str]) -> None:
    for path in LISTS:
        reply = await ask("GET", path)
        assert reply.status == 200, (path, reply)
    assert (await ask("GET", "/cost", headers={"accept": "text/csv"})).status == 200
    runs = (await ask("GET", "/runs?limit=200")).body["runs"]
    for run in runs:
        reply = await ask("GET", f"/runs/{run['id']}")
        assert reply.status == 200, (run["job"], reply)
        json.dumps(reply.body, ensure_ascii=False, allow_nan=False).encode()
    pages = [
        *PAGES,
        *[f"runs/{run['id']}" for run in runs],
        *[f"agents/default/jobs/{name}" for name in jobs[:8]],
    ]
    incidents = (await ask("GET", "/incidents")).body["incidents"]
    pages += [f"incidents/{each['id']}" for each in incidents]
    for page in pages:
        reply = await ask("GET", f"/workspaces/default/{page}")
        assert reply.status == 200, (page, str(reply.body)[:200])
    assert {run.job for run in await ask.app.runs.list(limit=200)} >= set(jobs)
