"""Reports of outcomes: each is repeated until the server has it or refuses it for good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from wakeful.client.rest import RestClient
from wakeful.client.types import ReportResultShape
from wakeful.errors import InvalidArgument, NotFound, Unavailable, WakefulError
from wakeful.remote.handlers import Result, run_report
from wakeful.remote.reporter import ReconnectBackoff, Report, Reporter
from wakeful.values.json_value import Json


class _Server:
    """Answers one request after another: with an error, or with the codes of single reports."""

    def __init__(self, answers: Sequence[WakefulError | dict[str, str]]) -> None:
        self.answers = list(answers)
        self.requests: list[list[str]] = []
        self.written: list[tuple[str, str]] = []

    async def complete_runs(self, *, runs: Sequence[Report]) -> list[ReportResultShape]:
        self.requests.append([str(report["id"]) for report in runs])
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, WakefulError):
            raise answer
        for report in runs:
            if report["id"] not in answer:
                self.written.append((str(report["id"]), str(report["status"])))
        return [
            ReportResultShape(
                id=str(report["id"]), state=None, code=answer.get(str(report["id"])), message="no"
            )
            for report in runs
        ]


@pytest.mark.parametrize(
    ("answers", "written"),
    [
        ([Unavailable("restarting")], {"a": "succeeded", "b": "succeeded"}),
        ([{"b": Unavailable.code}, {"b": Unavailable.code}], {"a": "succeeded", "b": "succeeded"}),
        ([{"b": NotFound.code}], {"a": "succeeded"}),
        ([{"b": InvalidArgument.code}], {"a": "succeeded", "b": "failed"}),
        ([InvalidArgument("no JSON"), {"a": Unavailable.code}], {"a": "succeeded", "b": "succeeded"}),
    ],
    ids=["no answer", "one not written", "one lost", "one refused", "one not written alone"],
)
async def test_a_report_is_sent_until_it_is_written_or_refused(
    answers: list[WakefulError | dict[str, str]], written: dict[str, str]
):
    server, done = _Server(answers), list[str]()
    runs: Any = server
    reporter = Reporter(
        runs, ReconnectBackoff(0.001, 0.001), lambda error: None, lambda run, attempt: done.append(run)
    )
    for run_id in ("a", "b"):
        reporter.submit({"id": run_id, "attempt": 1, "status": "succeeded"})
    sending = asyncio.create_task(reporter.run())
    async with asyncio.timeout(30):
        await reporter.flush()
    sending.cancel()
    assert sorted(server.written) == sorted(written.items()), "each outcome is written once"
    assert sorted(done) == ["a", "b"]


async def test_a_report_that_is_never_written_holds_up_no_others():
    answers: list[WakefulError | dict[str, str]] = [Unavailable("all of them"), {"a": Unavailable.code}]
    server: Any = _Server(answers * 1_000)
    done = list[str]()
    reporter = Reporter(
        server, ReconnectBackoff(0.001, 0.001), lambda error: None, lambda run, attempt: done.append(run)
    )
    sending = asyncio.create_task(reporter.run())
    async with asyncio.timeout(30):
        for run_id in "abc":
            reporter.submit({"id": run_id, "attempt": 1, "status": "succeeded"})
            while run_id not in ["a", *done]:
                await asyncio.sleep(0.001)
    sending.cancel()
    assert done == ["b", "c"]
    assert len(reporter) == 1, "it is still sent"


async def test_a_report_that_is_nested_too_deeply_holds_up_no_others(monkeypatch: pytest.MonkeyPatch):
    sent: dict[str, str] = {}

    async def request(method: str, path: str, *, body: Any, **_: object) -> tuple[int, Json]:
        sent.update({report["id"]: report["status"] for report in body["runs"]})
        runs: Json = [{"id": each["id"], "state": each["status"], "code": None} for each in body["runs"]]
        return 200, {"runs": runs}

    client = RestClient("http://127.0.0.1:1", "key")
    monkeypatch.setattr(client._connection, "request", request)
    reporter = Reporter(client, ReconnectBackoff(0.001, 0.001), lambda error: None, lambda run, attempt: None)
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    reporter.submit(run_report("a", 1, Result(evidence=deep)))
    reporter.submit(run_report("b", 1, Result("done")))
    sending = asyncio.create_task(reporter.run())
    flushing = asyncio.create_task(reporter.flush())
    async with asyncio.timeout(30):
        await asyncio.wait({sending, flushing}, return_when=asyncio.FIRST_COMPLETED)
    assert not sending.done()
    sending.cancel()
    assert sent == {"a": "failed", "b": "succeeded"}
