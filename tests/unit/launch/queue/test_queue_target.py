"""Queue targets: their fields, the subjects that jobs may use, messages and credentials."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.launch.broker import Report, read_report
from wakeful.launch.port import Launch
from wakeful.launch.queue.connection import read_credentials
from wakeful.launch.queue.messages import message_subject, read_message, report_body, write_message
from wakeful.launch.queue.target import QueueTarget, choose_stream, create_stream, read_queue
from wakeful.logs.redaction import setting_secrets
from wakeful.service.admin.doctor import check_nats
from wakeful.settings import Settings, read_settings

RUN_ID = "0199c1de-7a4f-7000-8000-000000000001"


def _run(payload: str | None = '{"team":"news"}') -> Launch:
    return Launch(
        RUN_ID, "digest", None, "default", "ada", payload, 1_741_392_000_000, 1_741_392_000_500, 3,
        "schedule", "9f2c", {"kind": "queue"}, 60_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"url": "nats://10.0.0.5"}, "no field 'url'"),
        ({"subject": "orders.new"}, "WAKEFUL_NATS_SUBJECTS"),
        ({"subject": "reports.*"}, "without spaces and wildcards"),
        ({"subject": "reports..daily"}, "without spaces and wildcards"),
        ({"subject": "wakeful.results.default"}, "reserved"),
        ({"subject": "wakeful.work.other"}, "reserved"),
        ({"subject": "$JS.API.STREAM.DELETE.X"}, "reserved"),
        ({"subject": "_INBOX.abc"}, "reserved"),
        ({"stream": "REPORTS"}, "needs a subject"),
        ({"subject": "reports.daily", "stream": "no spaces"}, "stream has"),
        ({"headers": {"Nats-Msg-Id": "1"}}, "cannot set the header"),
        ({"headers": {"x-wakeful-run-id": "1"}}, "cannot set the header"),
        ({"headers": {"x/team": "1"}}, "cannot set the header"),
        ({"headers": {"x-team": "two\nlines"}}, "not one line"),
        ({"function": ""}, "name of a function"),
        ({"function": "digest\r\nx-wakeful-workspace: other"}, "name of a function"),
        ({"function": "digest\ud800"}, "name of a function"),
    ],
)
def test_an_invalid_target_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidArgument, match="target: ") as refused:
        read_queue({"kind": "queue", **fields}, ["reports.>", "wakeful.>", "$JS.>", "_INBOX.>"])  # type: ignore[dict-item]
    assert says in refused.value.message


@pytest.mark.parametrize("name", ["WAKEFUL_WORK", "WAKEFUL_RESULTS"])
async def test_the_streams_of_wakeful_are_not_created_for_other_subjects(name: str) -> None:
    target = read_queue({"kind": "queue", "subject": "reports.daily", "stream": name}, ["reports.>"])
    js: Any = None
    with pytest.raises(FailedPrecondition, match="name another stream"):
        await create_stream(js, *choose_stream(target), replicas=1)


def test_a_message_has_what_a_worker_needs() -> None:
    target = QueueTarget("reports.daily", headers={"x-team": "ops"})
    body, headers = write_message(_run(), target)
    assert body == b'{"job":"digest","payload":{"team":"news"}}'
    assert (headers["Nats-Msg-Id"], headers["x-wakeful-key"], headers["x-team"]) == ("9f2c-3", "9f2c", "ops")
    assert (message_subject(_run(), target), message_subject(_run(), QueueTarget())) == (
        "reports.daily",
        "wakeful.work.default",
    )
    run = read_message(body, headers)
    assert (run.id, run.attempt, run.payload, run.timeout_ms) == (RUN_ID, 3, {"team": "news"}, 60_000)
    assert (run.scheduled_ms, run.agent, run.idempotency_key) == (1_741_392_000_000, "ada", "9f2c")
    assert (run.target, run.traceparent) == (
        {"kind": "function", "name": "digest"},
        headers["traceparent"],
    )
    assert read_message(*write_message(_run(None), QueueTarget(function="other"))).target["name"] == "other"


@pytest.mark.parametrize("missing", ["x-wakeful-run-id", "x-wakeful-attempt", "x-wakeful-key"])
def test_a_message_of_another_program_is_refused(missing: str) -> None:
    body, headers = write_message(_run(), QueueTarget())
    del headers[missing]
    with pytest.raises(InvalidArgument, match=missing):
        read_message(body, headers)
    with pytest.raises(InvalidArgument):
        read_message(b"not JSON", write_message(_run(), QueueTarget())[1])


def test_a_report_is_read_as_it_was_written() -> None:
    failed = Report(
        RUN_ID, 2, "failed", "part", "no disk", '{"tokens":7}', None, None, True, 5_000, "no_disk"
    )  # fmt: skip
    assert read_report(report_body(failed)) == failed
    done = Report(RUN_ID, 1, "succeeded", "sent", evidence='{"external_id":"inv-17"}')
    assert read_report(report_body(done)) == done


def test_what_cannot_be_stored_of_a_report_does_not_lose_the_outcome() -> None:
    report = read_report(
        f'{{"run":"{RUN_ID}","attempt":1,"status":"succeeded","output":{{"loss":NaN}},"usage":7,"evidence":[1]}}'.encode()
    )
    assert (report.status, report.usage, report.evidence) == ("succeeded", None, None)
    assert report.output == '{"loss":NaN}'
    assert report.evidence_error is not None


def test_a_credentials_file_signs_the_challenge(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    raw = b"\x92\xa0" + key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    seed = base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")
    file = tmp_path / "user.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\neyJ0.a.b\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    credentials = read_credentials(str(file))
    assert credentials.jwt == "eyJ0.a.b"
    key.public_key().verify(base64.b64decode(credentials.sign("nonce")), b"nonce")
    damaged = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]
    file.write_text(file.read_text().replace(seed, damaged))
    with pytest.raises(InvalidArgument) as refused:
        read_credentials(str(file))
    assert seed[:10] not in refused.value.message


def test_the_password_of_a_server_is_never_shown() -> None:
    settings = read_settings({"WAKEFUL_NATS_URL": "nats://me:hunter22@a:4222, tls://b"})
    assert settings.nats_url == ("nats://me:hunter22@a:4222", "tls://b")
    assert "hunter22" in setting_secrets(settings)
    assert "hunter22" not in repr(settings)
    with pytest.raises(InvalidArgument) as refused:
        read_settings({"WAKEFUL_NATS_URL": "me:hunter22@a"})
    assert "hunter22" not in refused.value.message
    assert Settings().nats_url == ()


def test_the_doctor_says_why_there_is_no_connection() -> None:
    assert check_nats("127.0.0.1:4222", "").state == "ok"
    check = check_nats("", "connection refused")
    assert (check.state, "connection refused" in check.message) == ("error", True)
