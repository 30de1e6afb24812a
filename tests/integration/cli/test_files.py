"""Files of jobs from the command line: `apply`, and `import crontab`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Machine, Said, serving


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("cli")) as machine:
        yield machine


def kinds(said: Said) -> dict[str, str]:
    assert said.code == 0, said
    return {change["name"]: change["change"] for change in said.json["changes"]}


def names(here: Machine, agent: str) -> list[str]:
    return [job["name"] for job in here.wakeful("list", "--all", "--agent", agent, "--json").json["jobs"]]


def test_a_file_is_applied_changed_and_pruned(here: Machine, tmp_path: Path):
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "name: reports\nagent: writer\njobs:\n"
        "- {name: daily, schedule: 0 9 * * 1-5, tz: Europe/Berlin}\n"
        "- {name: hook, schedule: every 15m, webhookUrl: 'http://127.0.0.1:9/x'}\n"
        "- {name: after, after: {job: daily, on: failed}}\n"
    )

    assert set(kinds(here.wakeful("apply", str(file), "--dry-run", "--json")).values()) == {"created"}
    assert here.wakeful("list", "--json").json["jobs"] == []

    applied = here.process("apply", str(file), "--json")
    assert set(kinds(applied).values()) == {"created"}
    assert [change["name"] for change in applied.json["changes"] if "secret" in change] == ["hook"]
    here.wakeful("add", "by-hand", "-s", "@daily", "--agent", "writer")
    assert set(kinds(here.wakeful("apply", str(file), "--json")).values()) == {"unchanged"}

    file.write_text(
        "name: reports\nagent: writer\njobs:\n- {name: daily, schedule: 0 10 * * 1-5, tz: Europe/Berlin}\n"
    )
    shown = here.wakeful("apply", str(file), "--dry-run", "--prune")
    assert "~ writer/daily" in shown.out
    assert "0 9 * * 1-5" in shown.out
    assert "- writer/hook" in shown.out
    assert names(here, "writer") == ["after", "by-hand", "daily", "hook"]

    done = kinds(here.wakeful("apply", str(file), "--prune", "--json"))
    assert done == {"daily": "changed", "hook": "removed", "after": "removed"}
    assert names(here, "writer") == ["by-hand", "daily"]


def test_nothing_is_changed_if_anything_in_a_file_is_wrong(here: Machine):
    text = '[{"name": "fine", "schedule": "@daily"}, {"name": "wrong", "schedule": "nope", "foo": 1}]'

    said = here.process("apply", "-", "--agent", "careful", stdin=text)

    assert said.code == 2
    assert "job 'wrong': schedule" in said.err
    assert "job 'wrong': foo" in said.err
    assert here.wakeful("show", "careful/fine").code == 3


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_nothing_is_changed_if_the_server_would_refuse_anything_of_a_file(
    here: Machine, options: tuple[str, ...]
):
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/x"}
    jobs = [{"name": f"job-{n}", "schedule": "@daily", "target": hook} for n in range(10)]
    jobs += [{**jobs[0], "name": name, "lane": lane} for name, lane in (("a", "east"), ("b", "west"))]

    said = here.wakeful("apply", "-", "--agent", "watched", *options, stdin=json.dumps(jobs))

    assert (said.code, said.out) == (2, "")
    assert "job 'a': lane: there is no lane 'east'" in said.err
    assert "job 'b': lane: there is no lane 'west'" in said.err
    assert here.wakeful("list", "--agent", "watched").code == 3


def test_what_stops_on_the_way_says_what_was_done_and_what_was_not(tmp_path: Path):
    (tmp_path / "wakeful.toml").write_text("quota_jobs_per_agent = 10\n")
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/x"}
    jobs = [{"name": f"job-{n:02}", "schedule": "@daily", "target": hook} for n in range(20)]
    with serving(tmp_path) as here:
        said = here.wakeful("apply", "-", "--json", stdin=json.dumps(jobs))
        done = [change["name"] for change in said.json["changes"]]
        refused = [each["name"] for each in said.json["refused"]]
        left = [each["name"] for each in said.json["notTried"]]
        assert said.code == 6
        assert (len(done), len(refused), left) == (10, 6, ["job-16", "job-17", "job-18", "job-19"])
        assert sorted(done + refused + left) == [job["name"] for job in jobs]
        assert {each["code"] for each in said.json["refused"]} == {"resource-exhausted"}
        assert all(change["secret"].startswith("whsec_") for change in said.json["changes"])
        assert names(here, "default") == sorted(done)
        assert f"job '{refused[0]}' was not applied: " in said.err
        assert "not tried: job-16, job-17, job-18, job-19" in said.err
        assert "10 were applied; apply the same file again" in said.err


def test_a_crontab_becomes_jobs_and_says_what_does_not(here: Machine):
    crontab = (
        "SHELL=/bin/bash\nMAILTO=me\nCRON_TZ=America/New_York\n"
        "*/5 * * * * /usr/local/bin/backup.sh --full\n"
        "0 9 * * mon-fri cd /srv && python3 manage.py clearsessions\n"
        "@daily mail me%Hello\n"
        "@reboot start\n"
    )
    here.wakeful("add", "mail-me", "-s", "@daily", "--agent", "ops")

    tried = here.process("import", "crontab", "-", "--agent", "ops", "--dry-run", stdin=crontab)
    assert tried.code == 1
    assert "line 7, not taken" in tried.out
    assert names(here, "ops") == ["mail-me"]

    for _ in range(2):  # the second time converges
        said = here.wakeful("import", "crontab", "--agent", "ops", "--json", stdin=crontab)
        assert said.code == 1
        assert [job["name"] for job in said.json["jobs"]] == ["backup", "manage-clearsessions", "mail-me-2"]
        assert [remark["line"] for remark in said.json["refused"]] == [7]
        assert names(here, "ops") == ["backup", "mail-me", "mail-me-2", "manage-clearsessions"]

    job = here.wakeful("show", "ops/mail-me-2", "--json").json
    assert job["payload"] == {"command": "mail me", "stdin": "Hello\n", "env": {"SHELL": "/bin/bash"}}
    assert (job["tz"], job["target"]) == ("America/New_York", {"kind": "pull"})


def test_a_crontab_can_go_to_a_webhook_and_wait(here: Machine, tmp_path: Path):
    file = tmp_path / "crontab"
    file.write_text("0 9 * * * root sync\n")

    said = here.wakeful(
        *("import", "crontab", str(file), "--user-field", "--paused", "--tz", "Asia/Tokyo"),
        *("--url", "https://example.com/hook", "--agent", "far", "--json"),
    )

    assert said.code == 0
    job = here.wakeful("show", "far/sync", "--json").json
    assert (job["enabled"], job["tz"], job["payload"]) == (
        False,
        "Asia/Tokyo",
        {"command": "sync", "user": "root"},
    )
    assert job["target"]["url"] == "https://example.com/hook"


def test_on_a_terminal_there_are_colours_and_a_bar_for_many(here: Machine, tmp_path: Path):
    file = tmp_path / "many.json"
    file.write_text(json.dumps([{"name": f"job-{n}", "schedule": "@daily"} for n in range(40)]))

    said = here.on_a_terminal("apply", str(file), "--agent", "many")

    assert said.code == 0
    assert "applying" in said.out
    assert "\x1b[32m+ many/job-39" in said.out
    assert len(names(here, "many")) == 40
