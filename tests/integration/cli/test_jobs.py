"""Jobs and runs from the command line: text, JSON and exit codes."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Machine, serving, webhook_receiver
from wakeful.service.jobs.save_warnings import job_waits, jobs_wait


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("cli")) as machine:
        yield machine


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with webhook_receiver() as url:
        yield url


def test_a_job_is_added_shown_toggled_and_deleted(machine: Machine, receiver: str):
    made = machine.wakeful(
        *("add", "digest", "--schedule", "0 9 * * 1-5", "--tz", "Europe/Berlin"),
        *("--url", f"{receiver}/hook", "--payload", '{"to": "me"}', "--label", "team=ops"),
    )
    assert made.code == 0
    assert "At 09:00, Monday through Friday (Europe/Berlin)" in made.out
    assert made.out.count("09:00 Europe/Berlin") == 5
    assert "whsec_" in made.out

    job = machine.wakeful("show", "digest", "--json").json
    assert (job["payload"], job["labels"], job["enabled"]) == ({"to": "me"}, {"team": "ops"}, True)
    assert len(job["nextTicks"]) == 5
    assert "secret" not in job

    assert "\x1b" not in machine.wakeful("list").out  # no colours in a pipe

    assert machine.wakeful("toggle", "digest", "false").code == 0
    assert machine.wakeful("list", "--json").json == {"jobs": [], "cursor": None}
    (paused,) = machine.wakeful("list", "--all", "--json").json["jobs"]
    assert (paused["name"], paused["enabled"], paused["nextAt"]) == ("digest", False, None)
    assert machine.wakeful("toggle", "digest", "true", "--json").json["enabled"] is True

    assert machine.wakeful("delete", "digest", "--json").json == {"deleted": "digest"}
    assert machine.wakeful("show", "digest").code == 3


def test_run_wait_returns_the_outcome_as_exit_code(machine: Machine, receiver: str):
    machine.wakeful("add", "good", "-s", "0 0 29 2 *", "--url", f"{receiver}/hook")
    machine.wakeful("add", "bad", "-s", "0 0 29 2 *", "--url", f"{receiver}/500", "--max-attempts", "1")

    good = machine.cold_process("run", "good", "--wait", "--json")
    assert (good.code, good.json["state"]) == (0, "succeeded")

    bad = machine.process("run", "bad", "--wait")
    assert bad.code == 1
    assert "failed" in bad.out
    assert "HTTP 500" in bad.out

    (failed,) = machine.wakeful("runs", "bad", "--json").json["runs"]
    one = machine.wakeful("runs", failed["id"], "--json").json
    assert [attempt["attempt"] for attempt in one["attempts"]] == [1]
    assert machine.wakeful("runs", "--state", "failed", "--json").json["runs"] == [failed]

    assert [run["id"] for run in machine.wakeful("dead-letters", "--json").json["deadLetters"]] == [
        failed["id"]
    ]
    replayed = machine.wakeful("replay", failed["id"], "--wait", "--json")
    assert (replayed.code, replayed.json["attempt"], replayed.json["replayOf"]) == (1, 2, failed["id"])
    assert machine.wakeful("discard", failed["id"]).code == 5
    for verb in ("discard", "replay"):
        others = machine.wakeful(verb, "--all", "--agent", "other", "--json")
        assert others.code == 3, "there is no such agent, and no other one is meant"
    assert machine.wakeful("discard", "--all", "--json").json == {"discarded": [replayed.json["id"]]}
    assert machine.wakeful("dead-letters", "--json").json["deadLetters"] == []


def test_a_job_of_another_agent_is_addressed_as_agent_slash_name(machine: Machine):
    machine.wakeful("add", "mine", "-s", "@daily", "--agent", "writer")

    assert machine.wakeful("show", "writer/mine", "--json").json["agentId"] == "writer"
    assert machine.wakeful("show", "mine", "--json", WAKEFUL_AGENT="writer").json["agentId"] == "writer"
    assert machine.wakeful("show", "mine").code == 3
    assert [agent["name"] for agent in machine.wakeful("agents", "list", "--json").json["agents"]] == [
        "default",
        "writer",
    ]


def test_a_job_without_a_target_is_saved_with_a_warning(machine: Machine, receiver: str, tmp_path: Path):
    waits = f"warning: {job_waits('idle', 'idler', 3_600_000)}\n"
    here = ("--agent", "idler")
    added = machine.wakeful("add", "idle", "-s", "@daily", *here)
    assert (added.code, added.err) == (0, waits)
    assert "added idle" in added.out
    assert machine.wakeful("add", "idle", "-s", "@daily", *here, "--url", receiver, "--replace").err == ""

    file = tmp_path / "jobs.yaml"
    file.write_text("agent: idler\njobs:\n- {name: idle, schedule: '@hourly', target: null}\n")
    applied = machine.wakeful("apply", str(file))
    assert (applied.code, applied.err) == (0, waits)
    as_json = machine.wakeful("apply", str(file), "--json")
    assert as_json.json["changes"][0]["warnings"] == [waits.strip().removeprefix("warning: ")]
    assert as_json.err == ""

    machine.wakeful("agents", "put", "idler", "--url", receiver)
    removed = machine.wakeful("agents", "put", "idler")
    assert removed.err == f"warning: {jobs_wait(['idle'], 'idler')}\n"


def test_fields_of_an_agent_are_set_and_the_others_stay(machine: Machine):
    machine.wakeful("agents", "put", "clerk", "--tz", "Asia/Tokyo", "--target", '{"kind": "pull"}')
    fields = ("to=42", "channel=ops", "active=false", 'deliver_to=[{"channel": "other"}]')
    done = machine.wakeful("agents", "set", "clerk", *fields, "--unset", "tz", "--json")
    names = ("to", "channel", "active", "deliverTo", "tz", "target")
    assert [done.json[name] for name in names] == [
        "42", "ops", False, [{"channel": "other"}], None, {"kind": "pull"}
    ]  # fmt: skip
    for wrong in ((), ("active=no",), ("active",), ("colour=1",)):
        assert machine.wakeful("agents", "set", "clerk", *wrong).code == 2, wrong
    assert machine.wakeful("agents", "set", "nobody", "tz=UTC").code == 3


def test_every_error_has_its_exit_code_and_one_sentence(machine: Machine):
    machine.wakeful("add", "taken", "-s", "@daily")

    for code, result in (
        (2, machine.wakeful("add", "Not A Slug", "-s", "@daily")),
        (2, machine.wakeful("add", "x", "-s", "61 * * * *")),
        (2, machine.wakeful("add", "x", "-s", "@daily", "--payload", "{no json")),
        (2, machine.wakeful("toggle", "taken", "perhaps")),
        (2, machine.process("nonsense")),
        (3, machine.process("show", "nope")),
        (4, machine.wakeful("list", WAKEFUL_KEY="wk_" + "x" * 43)),
        (5, machine.wakeful("add", "taken", "-s", "@daily")),
        (7, machine.wakeful("list", WAKEFUL_URL="http://127.0.0.1:1")),
    ):
        assert result.code == code, result
        assert result.out == ""
        assert result.err.startswith("wakeful: ")
        assert result.err.count("\n") == 1

    assert "wakeful serve" in result.err


def test_the_cli_reads_the_key_file_of_the_server(machine: Machine):
    assert machine.wakeful("list").code == 0

    without = machine.wakeful("list", WAKEFUL_KEY_FILE="/nowhere")

    assert without.code == 4
    assert "WAKEFUL_KEY" in without.err


def test_a_wrong_key_is_reported_with_its_source_and_what_to_do(machine: Machine, tmp_path: Path):
    wrong = machine.wakeful("list", WAKEFUL_KEY="wk_wrong")
    assert wrong.code == 4
    assert "this key is not complete or not valid" in wrong.err
    assert "it comes from WAKEFUL_KEY: set it to a key of http://127.0.0.1:" in wrong.err
    assert "or unset it to use the key in " in wrong.err
    assert "wk_wrong" not in wrong.err

    unknown = machine.wakeful("list", WAKEFUL_KEY="wk_" + "x" * 43)
    assert "this key is unknown" in unknown.err
    assert "it comes from WAKEFUL_KEY" in unknown.err

    file = tmp_path / "key"
    file.write_text("wk_wrong\n")
    stored = machine.wakeful("list", WAKEFUL_KEY_FILE=str(file))
    assert stored.code == 4
    assert f"it comes from {file}: set WAKEFUL_KEY to a key of " in stored.err
    assert "`wakeful serve --new-key`" in stored.err
    assert "begins with wk_" in machine.wakeful("list", WAKEFUL_KEY="password").err


def test_one_is_singular(machine: Machine):
    machine.wakeful("add", "only", "-s", "@daily", "--agent", "alone")
    refused = machine.wakeful("agents", "delete", "alone")
    assert "agent 'alone' has 1 job: delete it first" in refused.err
    once = machine.wakeful(
        *("backfill", "alone/only", "--from", "2026-01-05T00:00:00Z", "--to", "2026-01-05T23:00:00Z")
    )
    assert once.out == "planned 1 run of only\n"
    assert "deleted 1 job\n" in machine.wakeful("delete", "--agent", "alone", "--yes").out


def test_the_peaks_of_the_week_are_shown(machine: Machine):
    for number in range(3):
        machine.wakeful("add", f"peak-{number}", "--schedule", "0 9 * * *", "--target", '{"kind": "echo"}')
    found = machine.wakeful("peaks", "--json").json
    assert max(peak["starts"] for peak in found["peaks"]) >= 3
    assert len(found["hours"]) == 168
    shown = machine.wakeful("peaks")
    assert shown.code == 0
    assert "in the coming week" in shown.out
    assert "At 09:00, every day (UTC)" in shown.out
    assert "█" in shown.out
    assert machine.wakeful("peaks", "--agent", "defalt").code == 3


def test_a_trigger_url_is_created_shown_replaced_and_deleted(machine: Machine):
    machine.wakeful("add", "hooked", "--schedule", "@yearly", "--target", '{"kind": "echo"}')
    made = machine.wakeful("hook", "hooked")
    assert made.code == 0
    assert "/hooks/hook_" in made.out
    assert "not shown again" in made.out
    again = machine.wakeful("hook", "hooked")
    assert "/hooks/" not in again.out
    assert "hooked has a trigger URL" in again.out
    assert "--rotate" in again.out
    assert "trigger URL" in machine.wakeful("show", "hooked").out
    rotated = machine.wakeful("hook", "hooked", "--rotate", "--json").json
    assert rotated["previousId"] in again.out
    request = urllib.request.Request(rotated["url"], b'{"a": 1}', method="POST")
    with urllib.request.urlopen(request) as response:
        run = json.load(response)["id"]
    assert machine.wakeful("runs", "hooked", "--json").json["runs"][0]["id"] == run
    assert machine.wakeful("hook", "hooked", "--json").json.keys() == rotated.keys() - {"url", "token"}
    assert machine.wakeful("hook", "hooked", "--rotate", "--delete").code == 2
    assert machine.wakeful("hook", "hooked", "--delete").code == 0
    gone = machine.wakeful("hook", "hooked", "--delete")
    assert (gone.code, "has no trigger URL" in gone.err) == (3, True)
    assert machine.wakeful("hook", "hokked").code == 3


def test_the_history_of_a_job_is_shown_and_a_revision_restored(machine: Machine):
    machine.wakeful("add", "report", "-s", "0 7 * * *", "--target", '{"kind": "echo"}')
    machine.wakeful("edit", "report", "--schedule", "0 8 * * *")
    shown = machine.wakeful("history", "report").out
    assert "created" in shown
    assert '"expr": "0 7 * * *"' in shown
    assert "first" in shown
    found = machine.wakeful("history", "report", "--json").json["revisions"]
    assert [each["revision"] for each in found] == [2, 1]
    restored = machine.wakeful("history", "report", "--restore", "1")
    assert (restored.code, restored.out.strip()) == (
        0,
        "report has the fields of revision 1 (revision 3 now)",
    )
    assert machine.wakeful("show", "report", "--json").json["schedule"]["expr"] == "0 7 * * *"
    missing = machine.wakeful("history", "report", "--restore", "9")
    assert missing.code == 3
    assert "has no revision 9" in missing.err
    machine.wakeful("delete", "report")


def test_a_key_is_created_used_and_revoked(machine: Machine):
    key = machine.wakeful("keys", "create", "ci", "--json").json
    assert (key["role"], key["key"][:3]) == ("member", "wk_")

    assert machine.wakeful("list", WAKEFUL_KEY=key["key"]).code == 0
    denied = machine.wakeful("add", "x", "-s", "@daily", WAKEFUL_KEY=key["key"])
    assert denied.code == 4
    assert "admin" in denied.err

    assert machine.wakeful("keys", "revoke", key["id"]).code == 0
    assert machine.wakeful("list", WAKEFUL_KEY=key["key"]).code == 4
    assert key["id"] in [each["id"] for each in machine.wakeful("keys", "list", "--json").json["keys"]]


def test_changes_are_audited_and_the_chain_verifies(machine: Machine):
    machine.wakeful("add", "noted", "-s", "@daily")

    entries = machine.wakeful("audit", "list", "--json").json["entries"]
    assert ("job.create", "default/noted") in [(entry["action"], entry["subject"]) for entry in entries]

    verified = machine.process("audit", "verify", "--json")
    assert verified.code == 0
    assert verified.json["flaw"] is None
    assert verified.json["count"] >= len(entries)


@pytest.mark.parametrize(("group", "listed"), [("keys", "keys"), ("audit", "entries"), ("agents", "agents")])
def test_a_group_without_a_command_lists(machine: Machine, group: str, listed: str):
    assert machine.wakeful(group, "--json").json[listed]
    mistyped = machine.wakeful(group, "lst")
    assert (mistyped.code, "No such command 'lst'" in mistyped.err) == (2, True)


def test_status_shows_the_server(machine: Machine):
    status = machine.wakeful("status", "--json")

    assert status.code == 0
    assert isinstance(status.json, dict)


def test_job_names_are_completed(machine: Machine):
    machine.wakeful("add", "complete-me", "-s", "@daily")

    result = machine.process(
        _WAKEFUL_COMPLETE="complete_bash", COMP_WORDS="wakeful show complete-", COMP_CWORD="2"
    )

    assert "complete-me" in result.out
