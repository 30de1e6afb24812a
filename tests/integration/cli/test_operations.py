"""Workers, channels, settings, tests of targets and groups of dead letters from the command line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.command_line import Machine, serving, webhook_receiver
from wakeful.client.rest import RestClient
from wakeful.model import Page

#: A schedule that does not fire during a test.
SELDOM = ("-s", "0 0 29 2 *")


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with webhook_receiver() as url:
        yield url


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, receiver: str) -> Iterator[Machine]:
    home = tmp_path_factory.mktemp("operations")
    address = receiver.removeprefix("http://")
    (home / "wakeful.toml").write_text(
        f'channel_ops = "json://{address}/hook"\nchannel_broken = "json://{address}/500"\n'
        f'channel_person = "json://{address}/{{to}}"\n'
    )
    with serving(home) as machine:
        yield machine


def test_workers_are_shown(machine: Machine):
    (worker,) = machine.wakeful("workers", "--json").json["workers"]
    assert (worker["alive"], worker["thisProcess"]) == (True, True)
    shown = machine.wakeful("workers").out
    assert worker["name"] in shown
    assert "alive" in shown


def test_channels_are_listed_and_tested(machine: Machine):
    listed = machine.wakeful("channels", "--json").json
    assert [each["name"] for each in listed["channels"]] == ["broken", "ops", "person"]
    assert machine.wakeful("channels", "list").out.count("json") == 3

    sent = machine.wakeful("channels", "test", "ops")
    assert (sent.code, "the service accepted the message" in sent.out) == (0, True)
    assert (
        machine.wakeful("channels", "test", "person", "--to", "ada", "--json").json["outcome"] == "accepted"
    )
    refused = machine.wakeful("channels", "test", "broken")
    assert refused.code == 1
    assert "the message was not sent: the service responded with HTTP 500" in refused.out
    assert machine.wakeful("channels", "test", "person").code == 2  # the recipient is missing
    assert machine.wakeful("channels", "test", "unknown").code == 3


def test_settings_are_shown_with_their_source(machine: Machine):
    every = machine.wakeful("settings", "--json").json["settings"]
    changed = machine.wakeful("settings", "--changed", "--json").json["settings"]
    assert 0 < len(changed) < len(every)
    assert {each["source"] for each in changed} <= {"environment", "file", "option"}
    shown = machine.wakeful("settings", "RETENTION").out
    assert "WAKEFUL_RETENTION" in shown
    assert "WAKEFUL_DB" not in shown
    assert "no such settings" in machine.wakeful("settings", "nothing-like-this").out


def test_a_target_is_tested_of_a_job_of_options_and_of_a_file(
    machine: Machine, receiver: str, tmp_path: Path
):
    machine.wakeful("add", "hook", *SELDOM, "--url", f"{receiver}/hook", "--payload", '{"a": 1}')
    done = machine.wakeful("test-target", "hook")
    assert done.code == 0, done
    for part in (f"POST {receiver}/hook", "webhook-signature", "x-wakeful-trigger", '{"a":1}', "HTTP 200"):
        assert part in done.out.replace(": ", ":"), part
    assert "whsec_" not in done.out  # signed with the secret of the job
    assert machine.wakeful("runs", "hook", "--json").json["runs"] == []

    changed = machine.wakeful("test-target", "hook", "--payload", '{"b": 2}', "--json").json
    assert json.loads(changed["request"]["body"])["payload"] == {"b": 2}
    machine.wakeful("add", "text", *SELDOM, "--url", f"{receiver}/hook", "-m", "hello")
    changed = machine.wakeful("test-target", "text", "--payload", '{"b": 2}', "--json").json
    assert json.loads(changed["request"]["body"])["payload"] == {"b": 2}
    changed = machine.wakeful("test-target", "hook", "--message", "hello", "--json").json
    assert json.loads(changed["request"]["body"])["payload"] == {"message": "hello"}
    failed = machine.wakeful("test-target", "--url", f"{receiver}/500", "-m", "hello", "--timeout", "5s")
    assert failed.code == 1
    assert "HTTP 500" in failed.out
    assert "whsec_" in failed.out

    file = tmp_path / "jobs.yaml"
    file.write_text(
        f"- {{name: new, schedule: '@daily', webhookUrl: '{receiver}/new'}}\n"
        f"- {{name: hook, schedule: '@daily', timeoutMs: 9000, webhookUrl: '{receiver}/changed'}}\n"
    )
    new = machine.wakeful("test-target", "new", "--file", str(file), "--json").json
    assert (new["request"]["url"], "secret" in new) == (f"{receiver}/new", True)
    known = machine.wakeful("test-target", "hook", "--file", str(file), "--timeout", "5s", "--json").json
    assert (known["request"]["url"], "secret" in known) == (f"{receiver}/changed", False)

    for arguments, code, said in (
        ((), 2, "give a job, or a target"),
        (("--file", str(file)), 2, "it has 2 jobs; name one"),
        (("other", "--file", str(file)), 2, "it has 0 jobs with the name other"),
        (("other",), 3, "other"),
    ):
        refused = machine.wakeful("test-target", *arguments)
        assert (refused.code, said in refused.err) == (code, True), (arguments, refused)


def test_dead_letters_are_grouped_and_filtered(machine: Machine, receiver: str):
    options = (*SELDOM, "--max-attempts", "1", "--agent", "grouped")
    machine.wakeful("add", "bad", *options, "--url", f"{receiver}/500")
    assert "no dead letters" in machine.wakeful("dead-letters", "--groups", "--agent", "grouped").out
    machine.wakeful("add", "worse", *options, "--url", "http://127.0.0.1:9/")
    for job in ("bad", "bad", "worse"):
        machine.wakeful("run", f"grouped/{job}", "--wait")

    found = machine.wakeful("dead-letters", "--groups", "--agent", "grouped", "--json").json
    assert {(each["job"], each["count"]) for each in found["groups"]} == {("bad", 2), ("worse", 1)}
    shown = machine.wakeful("dead-letters", "--groups", "--job", "bad").out
    assert "http 500" in shown
    assert "grouped/worse" not in shown
    of_cause = machine.wakeful("dead-letters", "--cause", "http 500", "--job", "bad", "--json").json
    assert [run["job"] for run in of_cause["deadLetters"]] == ["bad", "bad"]
    assert machine.wakeful("dead-letters", "--groups", "--cause", "x").code == 2
    dead = [run["id"] for run in of_cause["deadLetters"]]
    for verb in ("discard", "replay"):
        some = machine.wakeful(verb, *dead, "01980000-0000-7000-8000-000000000000", "--json")
        assert (some.code, len(some.json[f"{verb}ed"])) == (1, 2 if verb == "discard" else 0)
        assert "01980000-0000-7000-8000-000000000000" in some.err


@pytest.mark.parametrize("verb", ["discard", "replay"])
def test_a_terminal_asks_before_all_dead_letters_are_settled(machine: Machine, receiver: str, verb: str):
    options = (*SELDOM, "--max-attempts", "1", "--agent", f"all-{verb}")
    for job in ("bad", "bad", "worse"):
        machine.wakeful("add", job, *options, "--url", f"{receiver}/500")
        machine.wakeful("run", f"all-{verb}/{job}", "--wait")

    def left() -> int:
        found = machine.wakeful("dead-letters", "--agent", f"all-{verb}", "--json").json
        return len(found["deadLetters"])

    for answer in ("n", ""):
        asked = machine.on_a_terminal(verb, "--all", "--agent", f"all-{verb}", typed=f"{answer}\n")
        said = " ".join(asked.out.split())
        question = f"{verb}s 3 dead letters of agent all-{verb}: all-{verb}/bad (2), all-{verb}/worse (1)"
        assert f"{question}; continue? [y/N]" in said
        assert (asked.code, left()) == (1, 3)

    machine.wakeful("pause", "--agent", f"all-{verb}", "--yes")
    done = machine.on_a_terminal(verb, "--all", "--agent", f"all-{verb}", typed="y\n")
    assert (done.code, f"3 {verb}" in done.out) == (0, True)


def test_all_dead_letters_are_settled_without_a_question_in_a_pipe_and_with_yes(
    machine: Machine, receiver: str
):
    options = (*SELDOM, "--max-attempts", "1", "--agent", "unasked")
    machine.wakeful("add", "bad", *options, "--url", f"{receiver}/500")
    for settle in (machine.process, machine.on_a_terminal):
        machine.wakeful("run", "unasked/bad", "--wait")
        yes = ["--yes"] if settle == machine.on_a_terminal else []
        done = settle("discard", "--all", "--agent", "unasked", *yes)
        assert (done.code, "1 discarded" in done.out, "continue?" in done.out) == (0, True, False)


def test_errors_in_a_table_are_whole_in_a_pipe_and_cut_on_a_terminal(machine: Machine):
    name = "a-host-whose-name-is-so-long-that-the-error-has-more-characters-than-a-column.invalid"
    machine.wakeful(
        "add", "lost", *SELDOM, "--max-attempts", "1", "--agent", "long", "--url", f"http://{name}/"
    )
    machine.wakeful("run", "long/lost", "--wait")
    assert name in machine.process("dead-letters", "--agent", "long").out
    shown = machine.on_a_terminal("dead-letters", "--agent", "long", columns=300).out
    assert name not in shown
    assert "…" in shown


def test_a_running_server_is_backed_up(machine: Machine, tmp_path: Path):
    machine.wakeful("add", "kept", *SELDOM, "--url", "https://example.com/hook")
    source, copy = machine.home / "a.db", tmp_path / "copy.db"
    done = machine.wakeful("backup", str(copy), "--db", str(source), "--json")
    assert done.code == 0
    assert done.json["bytes"] == copy.stat().st_size
    assert Path(done.json["keyFile"]).read_bytes() == Path(f"{source}.key").read_bytes()
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT count(*) FROM jobs WHERE name = 'kept'").fetchone() == (1,)

    again = machine.wakeful("backup", str(copy), WAKEFUL_DB=f"sqlite:///{source}")
    assert (again.code, "replaces no file" in again.err) == (5, True)
    other = machine.on_a_terminal("backup", str(tmp_path / "b.db"), "--db", str(source)).out
    assert "b.db.key decrypts the webhook secrets" in " ".join(other.split())


def test_matches_behind_empty_pages_are_listed(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    """The server looks at 2,000 dead letters, and 20,000 entries, for a page."""

    def empty_first(method: Callable[..., Awaitable[Page[object]]]) -> Callable[..., object]:
        async def fetch(self: object, *, cursor: str | None = None, **given: object) -> Page[object]:
            return Page([], "second") if cursor is None else await method(self, **given)

        return fetch

    options = (*SELDOM, "--max-attempts", "1", "--agent", "behind", "--url", "http://127.0.0.1:9/")
    machine.wakeful("add", "bad", *options)
    machine.wakeful("run", "behind/bad", "--wait")
    for method in ("list_dead_letters", "list_audit"):
        monkeypatch.setattr(RestClient, method, empty_first(getattr(RestClient, method)))
    found = machine.wakeful("dead-letters", "--agent", "behind", "--job", "bad", "--json").json
    assert [run["job"] for run in found["deadLetters"]] == ["bad"]
    listed = machine.wakeful("audit", "list", "--subject", "behind/bad", "--action", "job.create", "--json")
    assert [entry["subject"] for entry in listed.json["entries"]] == ["behind/bad"]


def test_the_reason_of_a_failed_run_is_shown_in_words(machine: Machine, receiver: str):
    for name, url, words in (
        ("status", f"{receiver}/500", "the target answered with status 500"),
        ("closed", "http://127.0.0.1:9/", "the target could not be reached"),
    ):
        machine.wakeful("add", name, *SELDOM, "--url", url, "--max-attempts", "1", "--agent", "reasons")
        run = machine.wakeful("run", f"reasons/{name}", "--wait", "--json").json
        assert run["state"] == "failed"
        assert words in machine.wakeful("runs", run["id"]).out
