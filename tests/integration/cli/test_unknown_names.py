"""Unknown agents and jobs on the command line: "did you mean", and --create-agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Machine, serving


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("names")) as machine:
        for agent, job in (("writer", "digest"), ("worker-1", "sweep"), ("default", "daily-report")):
            assert machine.wakeful("add", job, "-s", "@daily", "--agent", agent, "--json").code == 0
        yield machine


def agents(machine: Machine) -> list[str]:
    return [agent["name"] for agent in machine.wakeful("agents", "list", "--json").json["agents"]]


def test_add_refuses_an_unknown_agent_that_resembles_another(machine: Machine):
    refused = machine.wakeful("add", "x", "-s", "@daily", "--agent", "wirter")
    assert refused.code == 3
    assert refused.err.strip() == (
        "wakeful: no agent 'wirter'; did you mean 'writer'? To create the agent 'wirter', add --create-agent"
    )
    assert "wirter" not in agents(machine)
    assert machine.wakeful("keys", "create", "bot", "--agent", "wirter").err == refused.err
    assert machine.wakeful("agents", "put", "wirter", "--tz", "UTC").err == refused.err
    assert machine.wakeful("agents", "put", "writer", "--tz", "UTC").code == 0

    assert machine.wakeful("add", "x", "-s", "@daily", "--agent", "wirter", "--create-agent").code == 0
    assert "wirter" in agents(machine)
    assert machine.wakeful("add", "y", "-s", "@daily", "--agent", "wirter").code == 0  # it exists now
    for job in ("x", "y"):
        machine.wakeful("delete", f"wirter/{job}")
    assert machine.wakeful("agents", "delete", "wirter").code == 0


@pytest.mark.parametrize("agent", ["worker-2", "worker-10", "accountant"])
def test_add_creates_an_agent_that_resembles_no_other(machine: Machine, agent: str):
    assert machine.wakeful("add", "x", "-s", "@daily", "--agent", agent).code == 0
    assert agent in agents(machine)


def test_apply_refuses_a_file_with_an_agent_that_resembles_another(machine: Machine, tmp_path: Path):
    file = tmp_path / "jobs.yaml"
    file.write_text("agent: writre\njobs:\n- {name: news, schedule: '@daily'}\n")

    refused = machine.wakeful("apply", str(file))
    assert (refused.code, "did you mean 'writer'?" in refused.err) == (3, True)
    assert "writre" not in agents(machine)
    assert machine.wakeful("apply", str(file), "--create-agent").code == 0
    assert "writre" in agents(machine)
    machine.wakeful("delete", "writre/news")
    machine.wakeful("agents", "delete", "writre")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "dialy-report"),
        ("run", "dialy-report"),
        ("pause", "dialy-report"),
        ("resume", "dialy-report"),
        ("skip-next", "dialy-report"),
        ("delete", "dialy-report"),
        ("runs", "dialy-report"),
        ("toggle", "dialy-report", "true"),
    ],
)
def test_an_unknown_job_is_reported_with_similar_names(machine: Machine, arguments: tuple[str, ...]):
    done = machine.wakeful(*arguments)
    assert done.code == 3
    assert done.err.strip() == (
        "wakeful: no job 'dialy-report' of the agent 'default'; did you mean 'daily-report'?"
    )


def test_a_job_of_another_agent_is_suggested_with_its_agent(machine: Machine):
    assert "did you mean 'writer/digest'?" in machine.wakeful("show", "digest").err
    assert "did you mean 'writer/digest'?" in machine.wakeful("show", "digset").err
    assert "did you mean" not in machine.wakeful("show", "sweep", "--agent", "worker-3").err


@pytest.mark.parametrize(
    "arguments",
    [
        ("agents", "show", "wrter"),
        ("agents", "rotate-secret", "wrter"),
        ("say", "wrter", "hello"),
        ("sessions", "wrter"),
        ("list", "--agent", "wrter"),
        ("subscriptions", "list", "--agent", "wrter"),
        ("show", "wrter/digest"),
        ("run", "digest", "--agent", "wrter"),
    ],
)
def test_an_unknown_agent_is_reported_with_similar_names(machine: Machine, arguments: tuple[str, ...]):
    done = machine.wakeful(*arguments)
    assert done.code == 3
    assert done.err.strip() == "wakeful: no agent 'wrter'; did you mean 'writer'?"


@pytest.mark.parametrize(
    "arguments",
    [
        ("dead-letters", "--job", "digset"),
        ("dead-letters", "--groups", "--job", "digset"),
        ("incidents", "--job", "digset"),
        ("suggestions", "--job", "digset"),
    ],
)
def test_a_list_of_an_unknown_job_is_not_empty_but_an_error(machine: Machine, arguments: tuple[str, ...]):
    done = machine.wakeful(*arguments)
    assert (done.code, done.out) == (3, "")
    assert "digest" in done.err
    for name in ("digest", "writer/digest"):
        found = machine.wakeful(*(each.replace("digset", name) for each in arguments))
        assert found.code == 0, found


@pytest.mark.parametrize("name", ["", "/", "writer/", "/digest"])
def test_a_name_without_a_job_is_refused(machine: Machine, name: str):
    done = machine.wakeful("show", name)
    assert (done.code, "names no job" in done.err) == (2, True)


def test_an_agents_key_learns_no_names_of_other_agents(machine: Machine):
    key = machine.wakeful("keys", "create", "bot", "--agent", "worker-1", "--json").json["key"]
    for arguments in (
        ("show", "digest", "--agent", "worker-1"),
        ("show", "writer/digest"),
        ("show", "wrter/digest"),
        ("agents", "show", "wrter"),
        ("add", "x", "-s", "@daily", "--agent", "wrter"),
    ):
        done = machine.wakeful(*arguments, WAKEFUL_KEY=key)
        assert done.code == 3
        assert "writer" not in done.err.replace("'writer'; `", "").replace("no agent 'writer'", "")
        assert "did you mean" not in done.err


def test_a_name_that_resembles_no_other_gets_the_error_of_the_server(machine: Machine):
    assert machine.wakeful("show", "accounting").err == (
        "wakeful: no job 'accounting'; list the jobs to see their names\n"
    )
