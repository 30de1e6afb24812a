"""`wakeful signal`, `wakeful instances`, and signals in `wakeful runs`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import agent_classes
from tests.support.command_line import Machine, serving
from wakeful.cli.commands import instances
from wakeful.client.rest import RestClient
from wakeful.errors import Unavailable

#: A server imports no module of the tests.
PROGRAM = Path(agent_classes.__file__).read_text() + "\napp = with_classes(Wakeful())\n"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Run a server with agent classes."""
    home = tmp_path_factory.mktemp("signals")
    (home / "reports.py").write_text(PROGRAM)
    with serving(home, "--app", "reports:app") as machine:
        yield machine


def test_a_signal_is_sent_and_awaited(machine: Machine):
    done = machine.wakeful("signal", "report", "report.generate", "--instance", "eu", "--wait")
    assert done.code == 0, done
    assert "report.generate to instance eu" in done.out
    assert "report 1" in done.out
    assert "report.ready" in done.out

    sent = machine.wakeful("signal", "report", "report.generate", "-i", "eu")
    assert sent.code == 0
    assert "sent report.generate to report/eu: run " in sent.out

    unhandled = machine.wakeful("signal", "report", "report.unknown", "-i", "eu", "--wait", "--json")
    assert (unhandled.code, unhandled.json["state"]) == (1, "failed")


def test_data_comes_from_an_option_a_file_or_stdin(machine: Machine, tmp_path: Path):
    file = tmp_path / "data.json"
    file.write_text('{"month": 3}')
    for arguments in (
        ("--data", '{"month": 3}'),
        ("-d", f"@{file}"),
        ("--data-file", str(file)),
        ("--data-file", "-"),
        ("--data", "-"),
        ("-",),
    ):
        sent = machine.wakeful(
            "signal", "painter", "paint", *arguments, "--subject", "spring", "--json", stdin='{"month": 3}'
        )
        assert sent.code == 0, sent
        event = sent.json["payload"]
        assert (event["data"], event["subject"], event["source"]) == ({"month": 3}, "spring", "/cli")
    assert "data" not in machine.wakeful("signal", "painter", "paint", "--json").json["payload"]


def test_a_signal_with_the_same_id_is_a_duplicate(machine: Machine):
    options = ("--id", "invoice-17", "--source", "/shop")
    first = machine.wakeful("signal", "painter", "invoice.paid", *options, "--json")
    again = machine.wakeful("signal", "painter", "invoice.paid", *options, "--json")
    assert (again.json["id"], again.json["duplicate"]) == (first.json["id"], True)
    shown = machine.wakeful("signal", "painter", "invoice.paid", *options)
    assert f"painter/default has received this signal before: run {first.json['id']}" in shown.out


def test_instances_are_started_shown_paused_and_stopped(machine: Machine):
    start = machine.wakeful("instances", "start", "report", "us", "--state", '{"count": 4}')
    assert (start.code, start.out.strip()) == (0, "report/us is active")
    paused = machine.wakeful("instances", "pause", "report", "us", "--note", "maintenance")
    assert paused.out.strip() == "report/us is paused"
    waits = machine.wakeful("signal", "report", "report.generate", "-i", "us", "--json").json
    run = machine.wakeful("runs", waits["id"])
    assert "instance us is paused: maintenance" in run.out

    shown = machine.wakeful("instances", "show", "report", "us")
    assert '{"count": 4}' in shown.out
    assert "maintenance" in shown.out
    assert "wakeful runs --agent report --instance us --state pending" in shown.out
    assert "us-daily-" in shown.out
    assert machine.wakeful("instances", "show", "report", "us", "--json").json["waiting"] == 1
    listed = machine.wakeful("instances", "--status", "paused")
    assert ("us" in listed.out, "report" in listed.out) == (True, True)
    only = machine.wakeful("instances", "report", "--status", "paused", "--json").json
    assert [each["id"] for each in only["instances"]] == ["us"]
    machine.wakeful("instances", "start", "painter")
    page = machine.wakeful("instances", "list", "--limit", "1")
    assert "more instances exist" in page.out
    runs = machine.wakeful("runs", "--agent", "report", "--instance", "us", "--state", "pending")
    assert "report.generate → us" in runs.out
    assert "SIGNAL" in runs.out

    assert machine.wakeful("instances", "resume", "report", "us").out.strip() == "report/us is active"
    assert machine.wakeful("instances", "hibernate", "report", "us").out.strip() == "report/us hibernates"
    stopped = machine.wakeful("instances", "stop", "report", "us")
    assert (stopped.code, stopped.out.strip()) == (0, "report/us is stopped")
    assert machine.wakeful("instances", "show", "report", "us", "--json").json["schedules"] == []


def test_instances_that_were_started_before_a_request_failed_are_shown(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    start, sent = RestClient.start_instances, list[object]()

    async def cut(self: RestClient, name: str, *, instances: Any, **options: Any) -> object:
        sent.append(instances)
        if len(sent) > 1:
            raise Unavailable("no response")
        return await start(self, name, instances=instances, **options)

    monkeypatch.setattr(RestClient, "start_instances", cut)
    monkeypatch.setattr(instances, "_AT_ONCE", 2)
    done = machine.wakeful("instances", "start", "painter", "--from", "-", "--json", stdin="1\n2\n3\n")
    assert (done.code, [each["id"] for each in done.json["instances"]]) == (7, ["1", "2"])
    assert "those from '3' on may not have been started: no response" in done.err


def test_instances_with_a_large_state_are_started_in_several_requests(machine: Machine):
    ids = "\n".join(f"large-{number}" for number in range(300))
    state = json.dumps({"text": "x" * 1_000})

    done = machine.wakeful(
        *("instances", "start", "painter", "--from", "-", "--state", state, "--json"), stdin=ids
    )

    assert (done.code, len(done.json["instances"])) == (0, 300), done.err


def test_instances_of_a_file_are_started_and_deleted(machine: Machine, tmp_path: Path):
    file = tmp_path / "ids.txt"
    file.write_text("customer 7\n\na/b\r\n..\n")
    done = machine.wakeful("instances", "start", "painter", "--from", str(file), "--json")
    assert [each["id"] for each in done.json["instances"]] == ["customer 7", "a/b", ".."]
    piped = machine.wakeful("instances", "start", "painter", "--from", "-", stdin="a/b\nbad\x07id\n")
    assert piped.code == 1
    assert "1 instance of painter started" in piped.out
    assert "control character U+0007" in piped.out
    assert machine.wakeful("signal", "painter", "paint", "-i", "a/b", "--wait").code == 0

    unasked = machine.wakeful("instances", "delete", "painter", "a/b")
    assert unasked.code != 0
    assert "there is no terminal to confirm it: add --yes" in unasked.err
    for name in ("a/b", "customer 7", ".."):
        gone = machine.wakeful("instances", "delete", "painter", name, "--erase", "--yes")
        assert (gone.code, f"painter/{name} is deleted, and its history is erased" in gone.out) == (0, True)
    assert machine.wakeful("instances", "delete", "painter", "a/b", "--yes").code != 0
    assert machine.wakeful("runs", "--agent", "painter", "--instance", "a/b", "--json").json["runs"] == []


def test_what_is_wrong_is_refused_in_one_sentence(machine: Machine):
    for arguments, code, said in (
        (("signal", "report", "report.*"), 2, "wakeful: type: 'report.*' is a pattern"),
        (("signal", "report", "x", "--data", "{"), 2, "--data: it is not JSON"),
        (("signal", "report", "x", "--data", "1", "--data-file", "f"), 2, "give the data once"),
        (("signal", "report", "x", "--data-file", "/no/file"), 2, "it cannot be read"),
        (("signal", "report", "x", "y"), 2, "only - is an argument"),
        (("signal", "report", "x", "--id", ""), 2, "id: it is empty"),
        (("signal", "reprot", "x"), 3, "did you mean 'report'?"),
        (("signal", "default", "x"), 5, "has no class"),
        (("instances", "show", "report", "nobody"), 3, "no instance 'nobody'"),
        (("instances", "start", "report", "a\nb"), 2, "control character U+000A"),
        (("instances", "start", "report", "--state", "[]"), 2, "--state: give an object"),
        (("instances", "--status", "asleep"), 2, "status"),
        (("instances", "strat", "report"), 2, "No such command 'strat'"),
        (("instances", "stop", "report"), 3, "no instance 'default'"),
    ):
        refused = machine.wakeful(*arguments)
        assert (refused.code, said in refused.err) == (code, True), (arguments, refused)
    no_list = machine.wakeful("instances", "report", "--json")
    assert json.loads(no_list.out)["cursor"] is None
