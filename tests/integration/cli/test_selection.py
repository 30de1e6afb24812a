"""Several jobs at once, filters with a confirmation, and ids in place of names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.command_line import Machine, serving, webhook_receiver
from wakeful.cli import selection
from wakeful.cli.commands import job_state
from wakeful.client.rest import RestClient
from wakeful.errors import Unavailable


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("selection")) as machine:
        yield machine


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with webhook_receiver() as url:
        yield url


@pytest.fixture
def jobs(machine: Machine, receiver: str) -> Iterator[dict[str, str]]:
    """Create default/a, ops/a and ops/b with a label, and ops/c without; return their ids."""
    ids = {}
    for agent, name, label in (
        ("default", "a", True),
        ("ops", "a", True),
        ("ops", "b", True),
        ("ops", "c", False),
    ):
        made = machine.wakeful(
            *("add", name, "-s", "0 0 29 2 *", "--agent", agent, "--url", f"{receiver}/hook", "--json"),
            *(("--label", "team=ops") if label else ()),
        )
        assert made.code == 0, made
        ids[f"{agent}/{name}"] = made.json["id"]
    yield ids
    assert machine.wakeful("delete", "--all", "--yes").code == 0
    assert machine.wakeful("list", "--all", "--json").json["jobs"] == []


def enabled(machine: Machine) -> list[str]:
    return [f"{job['agentId']}/{job['name']}" for job in machine.wakeful("list", "--json").json["jobs"]]


def test_jobs_are_searched_filtered_and_ordered(machine: Machine, jobs: dict[str, str]):
    def listed(*options: str) -> list[str]:
        found = machine.wakeful("list", *options, "--json").json["jobs"]
        return [f"{job['agentId']}/{job['name']}" for job in found]

    machine.wakeful("pause", "ops/b")
    assert listed("--search", "ops/") == ["ops/a", "ops/c"]
    assert listed("--state", "paused") == ["ops/b"]
    assert listed("--creator", "agent") == []
    assert sorted(listed("--next")) == ["default/a", "ops/a", "ops/c"]
    refused = machine.wakeful("list", "--state", "asleep")
    assert (refused.code, "is not one of active" in refused.err) == (2, True)


def test_several_named_jobs_need_no_confirmation(machine: Machine, jobs: dict[str, str]):
    paused = machine.wakeful("pause", "ops/b", jobs["ops/c"], "--note", "x", "--until", "in 2h", "--json")
    assert (paused.code, paused.json["count"], paused.json["errors"]) == (0, 2, [])
    assert enabled(machine) == ["default/a", "ops/a"]

    resumed = machine.wakeful("resume", "b", "c", "--agent", "ops")
    assert resumed.code == 0
    assert resumed.out.splitlines()[-1] == "resumed 2 jobs"

    ran = machine.wakeful("run", "ops/a", "ops/b", "--wait", "--json")
    assert ran.code == 0
    assert [run["state"] for run in ran.json["runs"]] == ["succeeded", "succeeded"]

    deleted = machine.wakeful("delete", "ops/b", "ops/c", "--json")
    assert deleted.json == {"deleted": ["ops/b", "ops/c"], "errors": []}
    assert enabled(machine) == ["default/a", "ops/a"]


def test_one_unknown_name_changes_nothing_and_all_are_listed(machine: Machine, jobs: dict[str, str]):
    before = machine.wakeful("runs", "--json").json["runs"]
    for verb in ("pause", "resume", "delete", "run"):
        refused = machine.wakeful(verb, "ops/a", "ops/nope", "elsewhere/a")
        assert refused.code == 3, refused
        assert "'nope'" in refused.err
        assert "'elsewhere'" in refused.err
        assert refused.out == ""
    assert len(enabled(machine)) == 4
    assert machine.wakeful("runs", "--json").json["runs"] == before


def test_a_filter_is_refused_without_a_terminal_and_says_how_many(machine: Machine, jobs: dict[str, str]):
    for verb in ("pause", "delete", "run"):
        refused = machine.wakeful(verb, "--agent", "ops", "--label", "team=ops")
        assert refused.code == 2
        assert refused.err == (
            f"wakeful: {verb}s 2 jobs of agent ops (label team=ops): ops/a, ops/b; "
            "there is no terminal to confirm it: add --yes\n"
        )
    assert len(enabled(machine)) == 4
    one = machine.wakeful("pause", "--agent", "ops", "--label", "team=ops", "--label", "x")
    assert (one.code, one.out) == (0, "no job to pause of agent ops (label team=ops, x)\n")


def test_a_filter_with_yes_pauses_resumes_runs_and_deletes(machine: Machine, jobs: dict[str, str]):
    paused = machine.wakeful("pause", "--agent", "ops", "--label", "team=ops", "--yes")
    assert paused.code == 0
    assert paused.out.splitlines()[0] == "pauses 2 jobs of agent ops (label team=ops): ops/a, ops/b"
    assert paused.out.splitlines()[-1] == "paused 2 jobs"
    assert enabled(machine) == ["default/a", "ops/c"]

    again = machine.wakeful("pause", "--all", "--yes", "--json").json
    assert (again["count"], again["unchanged"]) == (2, 2)
    resumed = machine.wakeful("resume", "--agent", "ops", "--yes", "--json")
    assert (resumed.code, resumed.json["count"]) == (0, 3)

    ran = machine.wakeful("run", "--all", "--yes", "--json").json["runs"]
    assert sorted(run["job"] for run in ran) == ["a", "b", "c"], "default/a is paused"

    deleted = machine.wakeful("delete", "--label", "team=ops", "-y", "--json").json["deleted"]
    assert deleted == ["a", "ops/a", "ops/b"]
    assert enabled(machine) == ["ops/c"]


def test_only_the_jobs_that_were_confirmed_are_changed(
    machine: Machine, jobs: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    def confirm(*_: object, **__: object) -> bool:
        assert machine.process("add", "late", "-s", "@daily", "--label", "team=ops").code == 0
        return True

    monkeypatch.setattr(job_state, "confirm", confirm)
    done = machine.wakeful("pause", "--label", "team=ops", "--json")
    assert (done.code, {job["name"] for job in done.json["jobs"]}) == (0, {"a", "b"})
    assert "default/late" in enabled(machine)


@pytest.mark.parametrize(
    ("verb", "module", "done_in"),
    [("pause", job_state, "jobs"), ("delete", selection, "deleted"), ("run", selection, "runs")],
)
def test_a_job_that_is_deleted_before_the_answer_stops_no_others(
    machine: Machine, jobs: dict[str, str], monkeypatch: pytest.MonkeyPatch, verb: str, module: ModuleType,
    done_in: str,
):  # fmt: skip
    def confirm(*_: object, **__: object) -> bool:
        assert machine.process("delete", "ops/a").code == 0
        return True

    monkeypatch.setattr(module, "confirm", confirm)
    done = machine.wakeful(verb, "--agent", "ops", "--label", "team=ops", "--json")
    assert (done.code, len(done.json[done_in])) == (0, 1), done


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 1), ("n", 1, 4), ("", 1, 4)])
def test_a_terminal_asks_before_a_filter(
    machine: Machine, jobs: dict[str, str], answer: str, code: int, left: int
):
    done = machine.on_a_terminal("pause", "--label", "team=ops", typed=f"{answer}\n")
    assert done.code == code
    assert "continue? [y/N]" in done.out
    assert "pauses 3 jobs of all agents (label team=ops): a, ops/a, ops/b" in " ".join(done.out.split())
    assert len(enabled(machine)) == left


def test_an_empty_option_is_not_one_that_is_left_out(machine: Machine, jobs: dict[str, str]):
    for command in (
        ("delete", "--all", "--yes"), ("pause", "--all", "--yes"), ("run", "--all", "--yes"),
        ("discard", "--all"), ("replay", "--all"), ("list",),
    ):  # fmt: skip
        for option in ("--agent", "--server"):
            refused = machine.wakeful(*command, option, "")
            assert (refused.code, refused.out) == (2, "")
            assert f"{option}: it is empty" in refused.err
    assert sorted(enabled(machine)) == sorted(jobs)
    assert machine.wakeful("list", WAKEFUL_AGENT="").code == 0
    for words in (
        ("keys", "create", "bot", "--agent", ""), ("agents", "put", "ops", "--url", ""),
        ("sessions", "", "main", "--delete"), ("migrate", "--db", ""),
        ("executor", "kubernetes", "--template", "x", "--namespace", ""),
    ):  # fmt: skip
        refused = machine.wakeful(*words)
        assert (refused.code, "it is empty" in refused.err) == (2, True), refused
    two = machine.wakeful("agents", "put", "ops", "--url", "http://127.0.0.1:9/", "--target", "{}")
    assert (two.code, "2 targets" in two.err) == (2, True)


def test_an_agent_from_the_environment_alone_is_no_filter(machine: Machine, jobs: dict[str, str]):
    refused = machine.wakeful("delete", "--yes", WAKEFUL_AGENT="ops")
    assert refused.code == 2
    assert "--all" in refused.err
    assert machine.wakeful("delete", "--yes").code == 2
    assert machine.wakeful("delete", "a", "--all", "--yes").code == 2
    assert len(enabled(machine)) == 4
    assert machine.wakeful("delete", "--all", "--yes", "--json", WAKEFUL_AGENT="ops").json["deleted"] == [
        "ops/a",
        "ops/b",
        "ops/c",
    ]


def test_a_job_that_cannot_be_resumed_is_reported_and_the_others_are(machine: Machine, jobs: dict[str, str]):
    machine.wakeful("pause", "--all", "--yes")
    assert machine.wakeful("agents", "put", "ops", "--inactive").code == 0

    done = machine.wakeful("resume", "default/a", "ops/a")

    assert done.code == 5
    assert "resumed 1 job" in done.out
    assert "job 'ops/a' was not resumed: the agent 'ops' is not active" in done.err
    machine.wakeful("agents", "put", "ops", "--active")


@pytest.mark.parametrize(("command", "field"), [("run", "runs"), ("delete", "deleted"), ("pause", "jobs")])
def test_what_was_done_before_a_request_failed_is_shown(
    machine: Machine, jobs: dict[str, str], monkeypatch: pytest.MonkeyPatch, command: str, field: str
):
    several: Callable[..., Awaitable[object]] = getattr(RestClient, f"{command}_jobs")
    sent: list[object] = []

    async def cut(self: RestClient, select: Mapping[str, object]) -> object:
        if "jobs" in select:
            sent.append(select)
        if len(sent) > 2:
            raise Unavailable("no response")
        return await several(self, select)

    monkeypatch.setattr(selection, "_PART", 1)
    monkeypatch.setattr(RestClient, f"{command}_jobs", cut)
    done = machine.wakeful(command, "--agent", "ops", "--yes", "--json")
    assert (done.code, len(done.json[field])) == (7, 2)
    assert "the other jobs may not have been" in done.err


def test_every_command_takes_an_id_of_any_agent(machine: Machine, jobs: dict[str, str]):
    job_id = jobs["ops/b"]
    for arguments in (
        ("show", job_id),
        ("pause", job_id),
        ("resume", job_id),
        ("toggle", job_id, "true"),
        ("skip-next", job_id),
        ("rotate-secret", job_id),
        ("run", job_id, "--wait"),
        ("preview", job_id),
        ("backfill", job_id, "--from", "2026-01-01T00:00", "--to", "2026-01-02T00:00"),
        ("runs", job_id),
        ("show", f"ops/{job_id}"),
        ("show", job_id, "--agent", "ops"),
    ):
        done = machine.wakeful(*arguments, "--json")
        assert done.code == 0, (arguments, done)
    run_ids = [run["id"] for run in machine.wakeful("runs", job_id, "--json").json["runs"]]
    assert len(run_ids) == 2
    assert machine.wakeful("delete", job_id).code == 0
    kept = machine.wakeful("runs", job_id, "--json").json["runs"]
    assert [run["id"] for run in kept] == run_ids, "the runs of a deleted job are found by its id"
    assert machine.wakeful("runs", "00000000-0000-7000-8000-000000000000").code == 3
    machine.wakeful("add", "b", "-s", "@daily", "--agent", "ops")


def test_a_name_of_several_agents_needs_the_agent(machine: Machine, jobs: dict[str, str]):
    several = machine.wakeful("pause", "a")
    assert several.code == 5
    assert "several agents have a job 'a': default/a, ops/a; name the agent" in several.err
    assert machine.wakeful("show", "a", "--agent", "default").code == 0
    assert machine.wakeful("show", "default/a").code == 0
    assert machine.wakeful("show", "c").code == 3


def test_an_agents_key_needs_no_agent_option(machine: Machine, jobs: dict[str, str]):
    key = machine.wakeful("keys", "create", "bot", "--agent", "ops", "--json").json["key"]
    shown = machine.wakeful("show", "c", "--json", WAKEFUL_KEY=key)
    assert (shown.code, shown.json["agentId"]) == (0, "ops")
    assert machine.wakeful("show", "a", "--json", WAKEFUL_KEY=key).json["agentId"] == "ops"


def test_the_key_of_an_admin_is_not_limited_to_an_agent(machine: Machine, jobs: dict[str, str]):
    refused = machine.wakeful("keys", "create", "boss", "--role", "admin", "--agent", "ops")
    assert refused.code == 2
    assert "a key of the role admin is not bound to an agent" in refused.err
    made = machine.wakeful("keys", "create", "boss", "--role", "admin", "--json", WAKEFUL_AGENT="ops")
    assert (made.code, made.json["agent"]) == (0, None), "the agent of the environment asks for nothing"


def test_a_filter_finds_jobs_with_the_label_system_but_no_internal_jobs(machine: Machine):
    for name in ("agents", "put", "watched", "--target", '{"kind": "echo"}', "--heartbeat", "true"), (
        "add", "tidy", "-s", "@daily", "--message", "tidy up", "--label", "system=yes", "--agent", "watched",
    ):  # fmt: skip
        assert machine.wakeful(*name).code == 0
    listed = machine.wakeful("list", "--agent", "watched", "--all", "--json").json
    assert {job["name"] for job in listed["jobs"]} == {"tidy", "heartbeat"}
    deleted = machine.wakeful("delete", "--agent", "watched", "--yes", "--json")
    assert (deleted.code, deleted.json["deleted"]) == (0, ["watched/tidy"])
    assert machine.wakeful("agents", "delete", "watched").code == 0


def test_an_executor_claims_runs_of_the_named_agents_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("kubernetes_asyncio")
    from wakeful.cli.commands import executor

    job = tmp_path / "job.yaml"
    job.write_text("{kind: Job, spec: {template: {spec: {containers: [{name: work, image: busybox}]}}}}")
    claimed: list[tuple[str, ...]] = []

    async def execute(client: object, options: executor.ExecutorOptions, started: object) -> None:
        claimed.append(options.agents)

    monkeypatch.setattr(executor, "execute_on_kubernetes", execute)
    monkeypatch.setattr("wakeful.cli.serve_options.keep_log", lambda settings: None)

    def run(*options: str, **environment: str) -> int:
        command = ("executor", "kubernetes", "--template", str(job), *options)
        return Machine(tmp_path).wakeful(*command, **environment).code

    assert run() == run("--agent", "ops") == run("--agents", "ops,web") == run(WAKEFUL_AGENT="ops") == 0
    assert run("--agents", "web", WAKEFUL_AGENT="ops") == 0
    assert claimed == [(), ("ops",), ("ops", "web"), ("ops",), ("web",)]
    for empty in ("", " , "):  # of a variable that is not set
        assert run("--agents", empty) == run("--lanes", empty) == 2
    assert run("--agents", "web", "--agent", "ops") == 2
