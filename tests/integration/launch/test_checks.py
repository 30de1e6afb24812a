"""The kinds of checks against real receivers and programs: http, webhook and command; and evidence files."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import stat
import sys
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.receiver import Receiver
from tests.support.waiting import over
from wakeful import Command, Run, Wakeful

pytestmark = on_one_store
HOUR = 3_600_000


async def checked(app: Wakeful, name: str = "a", **fields: Any) -> Run:
    """Create a job, run it once, and return the run when it is over."""
    document = {"schedule": SELDOM, "max_attempts": 1, "target": {"kind": "echo"}, **fields}
    await app.jobs.create(name, **document)
    return await over(app, (await app.jobs.run(name)).id)


def answering(status: int = 200, text: str = "", **headers: str) -> Any:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(
            status=status, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return answer


def exists(path: str) -> bool:
    return Path(path).exists()


def modified(age_s: float) -> str:
    return formatdate(time() - age_s, usegmt=True)


MOVED = answering(302, location="https://b.example")


# --- http -------------------------------------------------------------------------------------------------


HTTP: list[tuple[dict[str, Any], Any, str | None]] = [
    ({}, answering(), None),
    ({}, answering(204), None),
    ({}, answering(404), "HTTP 404 instead of 2xx"),
    ({}, answering(500), "HTTP 500 instead of 2xx"),
    (
        {},
        answering(302, location="https://b.example"),
        "HTTP 302 instead of 2xx to https://b.example; red",
    ),
    ({"status": 302}, MOVED, None),
    ({"status": 404}, answering(404), None),
    ({"status": 200}, answering(204), "HTTP 204 instead of 200"),
    ({"contains": "Zoë"}, answering(text="for Zoë"), None),
    ({"contains": "Zoë"}, answering(text="for Zoe"), "the response does not contain 'Zoë'"),
    ({"contains": "x"}, answering(404, "x"), "HTTP 404 instead of 2xx"),
    ({"contains": "end"}, answering(text="x" * 500_000 + "end"), None),
    ({"contains": "end"}, answering(text="x" * 1_100_000 + "end"), "the response does not contain 'end'"),
    ({"newerThanMs": 24 * HOUR}, answering(last_modified=modified(60)), None),
    ({"newerThanMs": 24 * HOUR}, answering(last_modified=modified(-60)), None),
    ({"newerThanMs": HOUR}, answering(last_modified=modified(7_200)), "Last-Modified is 2 hours"),
    ({"newerThanMs": HOUR}, answering(), "the response has no Last-Modified"),
    ({"newerThanMs": HOUR}, answering(last_modified="yesterday"), "Last-Modified is not a date"),
    (
        {"newerThanMs": HOUR},
        answering(last_modified=modified(-7_200)),
        "Last-Modified is in the future",
    ),
]


async def test_an_http_check_compares_the_response(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        for number, (fields, answer, error) in enumerate(HTTP):
            receiver.answer = answer
            run = await checked(app, f"a{number}", verify={"kind": "http", "url": receiver.url, **fields})
            if error is None:
                assert (run.state, run.error) == ("succeeded", None), (fields, number)
            else:
                assert (run.state, run.reason) == ("failed", "unverified"), (fields, number)
                assert (run.error or "").startswith(f"not verified: {error}"), (fields, run.error)
    assert [request.method for request in receiver.requests] == ["GET"] * len(HTTP)


async def test_an_http_check_that_cannot_connect_is_tried_three_times(new_app: NewApp):
    async with new_app() as app:
        run = await checked(app, verify={"kind": "http", "url": "http://127.0.0.1:1/"})
    assert (run.reason, run.attempt) == ("unverified", 1)
    assert (run.error or "").startswith("verify: could not connect to 127.0.0.1:1")


async def test_a_check_does_not_reach_private_addresses(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        for name, kind in (("a", "http"), ("b", "webhook")):
            url = receiver.url.replace("127.0.0.1", "localhost")
            document: Any = {"kind": kind, "url": url}
            await app.jobs.create(name, schedule=SELDOM, target={"kind": "echo"}, verify=document)
    async with new_app(allow_private_targets=False) as app:
        for name in ("a", "b"):
            run = await over(app, (await app.jobs.run(name)).id)
            assert (run.state, run.reason, run.attempt) == ("failed", "unverified", 1), name
            assert "private" in (run.error or "") or "loopback" in (run.error or ""), run.error
    assert receiver.requests == []


# --- webhook ----------------------------------------------------------------------------------------------


async def test_a_webhook_check_is_signed_and_carries_output_and_evidence(new_app: NewApp, receiver: Receiver):
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"verified": True})

    receiver.answer = answer
    async with new_app() as app:
        document: Any = {"kind": "webhook", "url": receiver.url, "headers": {"x-team": "ops"}}
        job = await app.jobs.create(
            "a", schedule=SELDOM, target={"kind": "echo"}, verify=document, payload={"external_id": 7}
        )
        run = await over(app, (await app.jobs.run("a")).id)
    assert run.state == "succeeded"
    body = json.loads(receiver.bodies[0])
    assert body == {
        "job": "a", "payload": {"external_id": 7}, "output": run.output, "evidence": run.evidence,
    }  # fmt: skip
    headers = receiver.headers
    assert (headers["x-wakeful-verify"], headers["x-team"], headers["x-wakeful-run-id"]) == (
        "1",
        "ops",
        run.id,
    )
    assert headers["webhook-id"] == f"{run.idempotency_key}-verify"
    secret = base64.b64decode((job.secret or "").removeprefix("whsec_"))
    assert headers["x-wakeful-signature"] == hmac.new(secret, receiver.bodies[0], hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("answer", "error", "requests"),
    [
        (answering(text='{"verified": false, "reason": "no invoice"}'), "not verified: no invoice", 1),
        (answering(text="ok"), 'verify: the response is neither {"verified": true}', 3),
        (answering(204), 'verify: the response is neither {"verified": true}', 3),
        (answering(410), "verify: HTTP 410 Gone", 3),
    ],
)
async def test_a_webhook_check_answers_with_verified(
    new_app: NewApp, receiver: Receiver, answer: Any, error: str, requests: int
):
    receiver.answer = answer
    async with new_app() as app:
        run = await checked(app, verify={"kind": "webhook", "url": receiver.url})
        job = await app.jobs.get("a")
    assert (run.state, run.reason, job.enabled) == ("failed", "unverified", True)
    assert (run.error or "").startswith(error)
    assert len(receiver.requests) == requests


# --- commands ---------------------------------------------------------------------------------------------


def script(tmp_path: Path, name: str, text: str) -> str:
    file = tmp_path / name
    file.write_text(f"#!{sys.executable}\nimport json, os, sys\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


REPORT = "open(os.environ['JOB_EVIDENCE_FILE'], 'w').write"
COMMANDS: list[tuple[str, str | None]] = [
    ("assert json.load(sys.stdin)['evidence'] == {'external_id': 'x'}", None),
    ("assert os.environ['WAKEFUL_VERIFY'] == '1' and 'JOB_EVIDENCE_FILE' not in os.environ", None),
    ("print('no such post'); sys.exit(1)", "not verified: no such post"),
    ("print('odd', file=sys.stderr); sys.exit(2)", "verify: exit 2: odd"),
]


async def test_a_command_check_answers_with_its_exit_code(new_app: NewApp, tmp_path: Path):
    work = script(tmp_path, "work", f'{REPORT}(\'{{"external_id": "x"}}\')')
    async with new_app(commands=[f"{tmp_path}/*"]) as app:
        for number, (code, error) in enumerate(COMMANDS):
            check = script(tmp_path, f"check{number}", code)
            verify = {"kind": "command", "argv": [check]}
            run = await checked(app, f"a{number}", target=Command(work), verify=verify)
            assert (run.state, run.error) == ("succeeded" if error is None else "failed", error), code
            assert run.evidence == {"external_id": "x"}


#: What a program does, the evidence of its run, and why it is not sufficient; None: it is.
FILES: list[tuple[str, Any, str | None]] = [
    ("open(file, 'w').write('{\"external_id\": 1}')", {"external_id": 1}, None),
    ("print('{\"external_id\": 2}')", {"external_id": 2}, None),
    ("", None, ""),
    ("open(file, 'w')", None, ": JOB_EVIDENCE_FILE is empty"),
    ("open(file, 'w').write('external_id=1')", None, ": JOB_EVIDENCE_FILE: it is not valid JSON"),
    ("open(file, 'w').write('[1]')", None, ": JOB_EVIDENCE_FILE: it is not an object"),
    (
        "open(file, 'w').write(json.dumps({'external_id': 'x' * 20_000}))",
        None,
        ": JOB_EVIDENCE_FILE: it has",
    ),
    ("open(file, 'w').write(' ' * 70_000)", None, ": JOB_EVIDENCE_FILE is empty"),
    ("open(file, 'w').write('x' * 70_000)", None, ": JOB_EVIDENCE_FILE has more than 64 KB"),
    ("os.mkdir(file)", None, ": JOB_EVIDENCE_FILE is not a plain file"),
    ("os.mkfifo(file)", None, ": JOB_EVIDENCE_FILE is not a plain file"),
    ("os.symlink('/etc/hostname', file)", None, ": JOB_EVIDENCE_FILE is not a plain file"),
    ("open(file, 'w').write('{\"summary\": \"sent\"}')", {"summary": "sent"}, ""),
]


async def test_a_command_reports_evidence_in_a_file(new_app: NewApp, tmp_path: Path):
    async with new_app(commands=[f"{tmp_path}/*"]) as app:
        for number, (code, evidence, why) in enumerate(FILES):
            work = script(tmp_path, f"work{number}", f"file = os.environ['JOB_EVIDENCE_FILE']\n{code}")
            run = await checked(app, f"a{number}", target=Command(work), evidence=["external_id"])
            assert run.evidence == evidence, code
            if why is None:
                assert (run.state, run.error) == ("succeeded", None), code
            else:
                assert (run.state, run.reason) == ("failed", "unverified"), code
                expected = f"the evidence 'external_id' is missing{why}"
                assert (run.error or "").startswith(expected), (code, run.error)


async def test_unreadable_evidence_of_a_job_that_requires_none_does_not_fail_it(
    new_app: NewApp, tmp_path: Path
):
    work = script(tmp_path, "work", "open(os.environ['JOB_EVIDENCE_FILE'], 'w').write('odd')")
    async with new_app(commands=[work]) as app:
        run = await checked(app, target=Command(work))
    assert (run.state, run.evidence) == ("succeeded", None)


async def test_the_evidence_files_are_private_and_deleted(new_app: NewApp, tmp_path: Path):
    code = """
file = os.environ['JOB_EVIDENCE_FILE']
assert not os.path.exists(file)
open(file, 'w').write('{}')
print(oct(os.stat(os.path.dirname(file)).st_mode & 0o777), file)"""
    work = script(tmp_path, "work", code)
    async with new_app(commands=[work]) as app:
        run = await checked(app, target=Command(work))
        mode, _, file = (run.output or "").strip().partition(" ")
        assert mode == "0o700"
        assert not exists(file)
    assert not exists(os.path.dirname(file))
