"""Jobs and runs from the command line: what it says, in which form, and with which exit code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.command_line import Machine, answering, serving


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("cli")) as machine:
        yield machine


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with answering() as url:
        yield url


def test_a_job_from_its_making_to_its_end(here: Machine, receiver: str):
    made = here.wakeful(
        *("add", "digest", "--schedule", "0 9 * * 1-5", "--tz", "Europe/Berlin"),
        *("--url", f"{receiver}/hook", "--payload", '{"to": "me"}', "--label", "team=ops"),
    )
    assert made.code == 0
    assert "At 09:00, Monday through Friday (Europe/Berlin)" in made.out
    assert made.out.count("09:00 Europe/Berlin") == 5
    assert "whsec_" in made.out

    job = here.wakeful("show", "digest", "--json").json
    assert (job["payload"], job["labels"], job["enabled"]) == ({"to": "me"}, {"team": "ops"}, True)
    assert len(job["nextTicks"]) == 5
    assert "secret" not in job

    assert "\x1b" not in here.wakeful("list").out  # no colours in a pipe

    assert here.wakeful("toggle", "digest", "false").code == 0
    assert here.wakeful("list", "--json").json == {"jobs": [], "cursor": None}
    (paused,) = here.wakeful("list", "--all", "--json").json["jobs"]
    assert (paused["name"], paused["enabled"], paused["nextAt"]) == ("digest", False, None)
    assert here.wakeful("toggle", "digest", "true", "--json").json["enabled"] is True

    assert here.wakeful("delete", "digest", "--json").json == {"deleted": "digest"}
    assert here.wakeful("show", "digest").code == 3


def test_a_run_is_followed_to_its_end_and_its_outcome_is_the_exit_code(here: Machine, receiver: str):
    here.wakeful("add", "good", "-s", "0 0 29 2 *", "--url", f"{receiver}/hook")
    here.wakeful("add", "bad", "-s", "0 0 29 2 *", "--url", f"{receiver}/500", "--max-attempts", "1")

    good = here.process("run", "good", "--wait", "--json")
    assert (good.code, good.json["state"]) == (0, "succeeded")

    bad = here.process("run", "bad", "--wait")
    assert bad.code == 1
    assert "failed" in bad.out
    assert "HTTP 500" in bad.out

    (failed,) = here.wakeful("runs", "bad", "--json").json["runs"]
    one = here.wakeful("runs", failed["id"], "--json").json
    assert [attempt["attempt"] for attempt in one["attempts"]] == [1]
    assert here.wakeful("runs", "--state", "failed", "--json").json["runs"] == [failed]

    assert [run["id"] for run in here.wakeful("dead-letters", "--json").json["deadLetters"]] == [failed["id"]]
    replayed = here.wakeful("replay", failed["id"], "--wait", "--json")
    assert (replayed.code, replayed.json["attempt"], replayed.json["replayOf"]) == (1, 2, failed["id"])
    assert here.wakeful("discard", failed["id"]).code == 5
    assert here.wakeful("discard", "--all", "--json").json == {"discarded": [replayed.json["id"]]}
    assert here.wakeful("dead-letters", "--json").json["deadLetters"] == []


def test_a_job_of_another_agent_is_named_with_it(here: Machine):
    here.wakeful("add", "mine", "-s", "@daily", "--agent", "writer")

    assert here.wakeful("show", "writer/mine", "--json").json["agentId"] == "writer"
    assert here.wakeful("show", "mine", "--json", WAKEFUL_AGENT="writer").json["agentId"] == "writer"
    assert here.wakeful("show", "mine").code == 3
    assert [agent["name"] for agent in here.wakeful("agents", "list", "--json").json["agents"]] == [
        "default",
        "writer",
    ]


def test_every_refusal_has_its_exit_code_and_one_sentence(here: Machine):
    here.wakeful("add", "taken", "-s", "@daily")

    for code, said in (
        (2, here.wakeful("add", "Not A Slug", "-s", "@daily")),
        (2, here.wakeful("add", "x", "-s", "61 * * * *")),
        (2, here.wakeful("add", "x", "-s", "@daily", "--payload", "{no json")),
        (2, here.wakeful("toggle", "taken", "perhaps")),
        (2, here.process("nonsense")),
        (3, here.process("show", "nope")),
        (4, here.wakeful("list", WAKEFUL_KEY="wk_" + "x" * 43)),
        (5, here.wakeful("add", "taken", "-s", "@daily")),
        (7, here.wakeful("list", WAKEFUL_URL="http://127.0.0.1:1")),
    ):
        assert said.code == code, said
        assert said.out == ""
        assert said.err.startswith("wakeful: ")
        assert said.err.count("\n") == 1

    assert "wakeful serve" in said.err


def test_the_key_is_found_where_the_server_left_it_and_nowhere_else(here: Machine):
    assert here.wakeful("list").code == 0

    without = here.wakeful("list", WAKEFUL_KEY_FILE="/nowhere")

    assert without.code == 4
    assert "WAKEFUL_KEY" in without.err


def test_a_key_is_made_used_and_revoked(here: Machine):
    key = here.wakeful("keys", "create", "ci", "--json").json
    assert (key["role"], key["key"][:3]) == ("member", "wk_")

    assert here.wakeful("list", WAKEFUL_KEY=key["key"]).code == 0
    denied = here.wakeful("add", "x", "-s", "@daily", WAKEFUL_KEY=key["key"])
    assert denied.code == 4
    assert "admin" in denied.err

    assert here.wakeful("keys", "revoke", key["id"]).code == 0
    assert here.wakeful("list", WAKEFUL_KEY=key["key"]).code == 4
    assert key["id"] in [each["id"] for each in here.wakeful("keys", "list", "--json").json["keys"]]


def test_what_was_done_is_in_the_audit_and_the_chain_holds(here: Machine):
    here.wakeful("add", "noted", "-s", "@daily")

    entries = here.wakeful("audit", "list", "--json").json["entries"]
    assert ("job.create", "default/noted") in [(entry["action"], entry["subject"]) for entry in entries]

    verified = here.process("audit", "verify", "--json")
    assert verified.code == 0
    assert verified.json["flaw"] is None
    assert verified.json["count"] >= len(entries)


def test_the_status_can_be_seen(here: Machine):
    status = here.wakeful("status", "--json")

    assert status.code == 0
    assert isinstance(status.json, dict)


def test_names_of_jobs_are_completed(here: Machine):
    here.wakeful("add", "complete-me", "-s", "@daily")

    said = here.process(
        _WAKEFUL_COMPLETE="complete_bash", COMP_WORDS="wakeful show complete-", COMP_CWORD="2"
    )

    assert "complete-me" in said.out
