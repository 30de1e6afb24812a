"""`wakeful import` against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.command_line import Completed, Machine, serving
from wakeful.client.rest import RestClient
from wakeful.client.types import JobShape
from wakeful.errors import Unavailable


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("import")) as machine:
        yield machine


def names(machine: Machine, agent: str) -> list[str]:
    return [job["name"] for job in machine.wakeful("list", "--all", "--agent", agent, "--json").json["jobs"]]


def imported(result: Completed, code: int = 0) -> list[str]:
    assert result.code == code, result
    return [job["name"] for job in result.json["jobs"]]


def test_a_crontab_is_imported_and_refused_lines_are_listed(machine: Machine):
    crontab = (
        "SHELL=/bin/bash\nMAILTO=me\nCRON_TZ=America/New_York\n"
        "*/5 * * * * /usr/local/bin/backup.sh --full\n"
        "0 9 * * mon-fri cd /srv && python3 manage.py clearsessions\n"
        "@daily mail me%Hello\n"
        "@reboot start\n"
    )
    machine.wakeful("add", "mail-me", "-s", "@daily", "--agent", "ops")

    tried = machine.process("import", "crontab", "-", "--agent", "ops", "--dry-run", stdin=crontab)
    assert tried.code == 1
    assert "line 7, refused: Wakeful does not know" in tried.out
    assert names(machine, "ops") == ["mail-me"]

    for _ in range(2):  # the second time converges
        result = machine.wakeful("import", "crontab", "--agent", "ops", "--json", stdin=crontab)
        assert result.code == 1
        assert [job["name"] for job in result.json["jobs"]] == ["backup", "manage-clearsessions", "mail-me-2"]
        assert [remark["line"] for remark in result.json["refused"]] == [7]
        assert names(machine, "ops") == ["backup", "mail-me", "mail-me-2", "manage-clearsessions"]

    job = machine.wakeful("show", "ops/mail-me-2", "--json").json
    assert job["payload"] == {"command": "mail me", "stdin": "Hello\n", "env": {"SHELL": "/bin/bash"}}
    assert (job["tz"], job["target"]) == ("America/New_York", {"kind": "pull"})


def test_a_crontab_can_be_imported_paused_with_a_webhook(machine: Machine, tmp_path: Path):
    file = tmp_path / "crontab"
    file.write_text("0 9 * * * root sync\n")

    result = machine.wakeful(
        *("import", "crontab", str(file), "--user-field", "--paused", "--tz", "Asia/Tokyo"),
        *("--url", "https://example.com/hook", "--agent", "far", "--json"),
    )

    assert result.code == 0
    job = machine.wakeful("show", "far/sync", "--json").json
    assert (job["enabled"], job["tz"], job["payload"]) == (
        False,
        "Asia/Tokyo",
        {"command": "sync", "user": "root"},
    )
    assert job["target"]["url"] == "https://example.com/hook"


def test_an_import_keeps_what_people_did_to_its_jobs(machine: Machine, tmp_path: Path):
    crontab, store = tmp_path / "crontab", tmp_path / "jobs.json"
    crontab.write_text("0 9 * * * sync\n")
    claw = {
        "name": "brief",
        "enabled": True,
        "schedule": {"kind": "cron", "expr": "0 7 * * *"},
        "payload": {"kind": "agentTurn", "message": "go"},
    }
    store.write_text(json.dumps({"jobs": [claw]}))
    again = [
        ("import", "crontab", str(crontab), "--paused", "--agent", "kept", "--json"),
        ("import", "openclaw", str(store), "--paused", "--agent", "kept", "--json"),
    ]
    for command in again:
        machine.wakeful(*command)
    assert machine.wakeful("resume", "kept/sync", "kept/brief").code == 0
    for name in ("kept/sync", "kept/brief"):
        assert machine.wakeful("edit", name, "--label", "team=ops").code == 0
    labels = machine.wakeful("show", "kept/sync", "--json").json["labels"]
    copied = [option for name, value in labels.items() for option in ("--label", f"{name}={value}")]
    assert machine.wakeful("add", "sync-copy", "-s", "0 3 * * *", "--agent", "kept", *copied).code == 0

    crontab.write_text("0 10 * * * sync\n@daily new\n")
    store.write_text(json.dumps({"jobs": [{**claw, "enabled": False}]}))  # as the switch-over asks for
    for command in again:
        assert machine.wakeful(*command).code == 0

    jobs = machine.wakeful("list", "--all", "--agent", "kept", "--json").json["jobs"]
    assert {job["name"]: (job["enabled"], job["labels"].get("team")) for job in jobs} == {
        "brief": (True, "ops"),
        "new": (False, None),
        "sync": (True, "ops"),
        "sync-copy": (True, "ops"),
    }
    assert [job["schedule"]["expr"] for job in jobs[2:]] == ["0 10 * * *", "0 3 * * *"]


def test_two_crontabs_do_not_overwrite_each_other(machine: Machine, tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("0 9 * * * backup /a\n")
    second.write_text("0 10 * * * backup /a\n")

    def load(file: Path, *options: str) -> list[str]:
        return imported(machine.wakeful("import", "crontab", str(file), "--agent", "two", "--json", *options))

    assert (load(first), load(second), load(second), load(first)) == (
        ["backup-a"],
        ["backup-a-2"],
        ["backup-a-2"],
        ["backup-a"],
    )
    first.write_text("0 11 * * * backup /a\n@daily new\n")
    assert load(first) == ["backup-a", "new"]
    jobs = machine.wakeful("list", "--agent", "two", "--json").json["jobs"]
    assert {job["name"]: job["schedule"].get("expr") for job in jobs} == {
        "backup-a": "0 11 * * *",
        "backup-a-2": "0 10 * * *",
        "new": "0 0 * * *",
    }
    assert jobs[0]["labels"]["import-source"].endswith(f":{first.resolve()}")
    assert load(second, "--source", "web2") == ["backup-a-3"]


def test_lines_on_stdin_identify_themselves(machine: Machine):
    def load(text: str) -> list[str]:
        return imported(machine.wakeful("import", "crontab", "--agent", "piped", "--json", stdin=text))

    assert load("0 9 * * * backup\n@daily tidy\n") == ["backup", "tidy"]
    assert load("0 10 * * * backup\n@daily tidy\n") == ["backup-2", "tidy"]


def test_lines_under_a_refused_zone_are_not_imported(machine: Machine):
    crontab = "@daily a\nCRON_TZ=Mars/Base\n@daily b\nCRON_TZ=Asia/Tokyo\n@daily c\n"

    result = machine.wakeful("import", "crontab", "--agent", "zones", "--json", stdin=crontab)

    assert imported(result, 1) == ["a", "c"]
    assert [remark["line"] for remark in result.json["refused"]] == [2, 3]
    assert names(machine, "zones") == ["a", "c"]


def test_a_directory_is_read_as_cron_reads_it(machine: Machine, tmp_path: Path):
    directory = tmp_path / "cron.d"
    directory.mkdir()
    (directory / "php").write_text("09 * * * * root /usr/lib/php/sessionclean\n")
    (directory / "sysstat").write_text("5-55/10 * * * * root debian-sa1 1 1\n@reboot root start\n")
    (directory / "php.dpkg-old").write_text("@daily root old\n")
    (directory / ".placeholder").write_text("")

    result = machine.wakeful("import", "crontab", str(directory), "--agent", "etc")
    assert result.code == 1
    assert f"{directory}/php:1" in result.out
    assert f"{directory}/sysstat:2, refused" in result.out
    assert f"{directory}/php.dpkg-old, the whole file, note: ignored" in result.out
    assert ".placeholder" not in result.out
    assert "2 jobs imported, 1 refused" in result.out

    assert names(machine, "etc") == ["debian-sa1-1", "sessionclean"]
    job = machine.wakeful("show", "etc/sessionclean", "--json").json
    assert job["payload"] == {"command": "/usr/lib/php/sessionclean", "user": "root"}


def test_the_server_judges_a_dry_run(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "wakeful.toml").write_text('commands = ["/bin/sh"]\ntz_allowlist = ["Europe/Berlin", "UTC"]\n')
    crontab = "@daily a\nCRON_TZ=Asia/Tokyo\n@daily b\nCRON_TZ=UTC\nSHELL=/bin/bash\n@daily c\n"
    with serving(home) as machine:
        options = ("import", "crontab", "--as-commands", "--json")
        tried = machine.wakeful(*options, "--dry-run", stdin=crontab)
        assert machine.wakeful("list", "--all", "--json").json["jobs"] == []
        done = machine.wakeful(*options, stdin=crontab)

    assert imported(tried, 1) == imported(done, 1) == ["a"]
    assert tried.json["refused"] == done.json["refused"]
    assert [remark["line"] for remark in tried.json["refused"]] == [3, 6]
    assert "Asia/Tokyo" in tried.json["refused"][0]["why"]
    assert "/bin/bash" in tried.json["refused"][1]["why"]


def test_an_import_shows_the_secrets_of_new_webhooks(machine: Machine):
    result = machine.wakeful(
        *("import", "crontab", "--url", "https://example.com/x", "--agent", "hooks"), stdin="@daily a\n"
    )

    assert result.code == 0
    assert "secret of a, not shown again: whsec_" in result.out


def test_an_import_that_loses_the_server_shows_what_it_saved(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    save = RestClient.save_job

    async def save_job(self: RestClient, agent: str, fields: Mapping[str, object]) -> tuple[JobShape, bool]:
        if fields["name"] == "b":
            raise Unavailable("the server does not respond")
        return await save(self, agent, fields)

    command = ("import", "crontab", "--url", "https://example.com/x", "--agent", "lost", "--source", "x")
    assert machine.wakeful(*command, stdin="@daily b\n").code == 0
    monkeypatch.setattr(RestClient, "save_job", save_job)
    result = machine.wakeful(*command, stdin="@daily a\n@daily b\n@daily c\n")

    assert result.code not in (0, 1)
    assert "the server does not respond" in result.err
    assert "secret of a, not shown again: whsec_" in result.out
    assert "2 jobs imported" in result.out
    assert names(machine, "lost") == ["a", "b", "c"]


def test_characters_that_the_terminal_cannot_encode_are_replaced(machine: Machine, tmp_path: Path):
    file = tmp_path / "crontab"
    file.write_text("0 9 * * * grüße\n", encoding="utf-8")

    result = machine.cold_process("import", "crontab", str(file), "--dry-run", PYTHONIOENCODING="ascii")

    assert result.code == 0
    assert "gr??e" in result.out


def test_timers_are_imported_with_their_services_and_drop_ins(machine: Machine, tmp_path: Path):
    units = tmp_path / "units"
    (units / "report.timer.d").mkdir(parents=True)
    (units / "report.timer").write_text("[Timer]\nOnCalendar=daily\nPersistent=yes\n")
    (units / "report.timer.d" / "time.conf").write_text("[Timer]\nOnCalendar=\nOnCalendar=Mon..Fri 06:30\n")
    (units / "report.service").write_text("[Service]\nUser=ops\nExecStart=/bin/report --all\n")
    (units / "boot.timer").write_text("[Timer]\nOnBootSec=5min\n")

    result = machine.wakeful("import", "systemd", str(units), "--agent", "units", "--tz", "Asia/Tokyo")
    assert result.code == 1
    assert "OnBootSec: Wakeful does not know when the machine boots" in result.out
    assert "1 job imported, 1 refused" in result.out

    job = machine.wakeful("show", "units/report", "--json").json
    assert (job["schedule"]["expr"], job["tz"]) == ("30 6 * * MON-FRI", "Asia/Tokyo")
    assert (job["payload"], job["catchupPolicy"]) == (
        {"command": "/bin/report --all", "user": "ops"},
        "latest",
    )

    alone = ("import", "systemd", str(units / "report.timer"), "--agent", "units", "--json")
    again = machine.wakeful(*alone, "--tz", "Asia/Tokyo")
    assert imported(again) == ["report"]
    assert names(machine, "units") == ["report"]


def test_a_timer_runs_as_a_command_where_the_server_allows_it(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "wakeful.toml").write_text('commands = ["/bin/echo"]\n')
    (home / "hello.timer").write_text("[Timer]\nOnCalendar=yearly\n")
    (home / "hello.service").write_text("[Service]\nExecStart=/bin/echo 'two  words'\n")
    (home / "other.timer").write_text("[Timer]\nOnCalendar=yearly\n")
    (home / "other.service").write_text("[Service]\nExecStart=/bin/false\n")
    with serving(home) as machine:
        result = machine.wakeful("import", "systemd", str(home), "--as-commands", "--json")
        run = machine.wakeful("run", "hello", "--wait", "--json").json

    assert imported(result, 1) == ["hello"]
    assert "/bin/false" in result.json["refused"][0]["why"]
    assert run["output"] == "two  words\n"


def test_an_import_without_a_timer_is_an_error(machine: Machine, tmp_path: Path):
    result = machine.wakeful("import", "systemd", str(tmp_path))

    assert result.code == 2
    assert f"no .timer file in {tmp_path}" in result.err


def test_the_jobs_of_openclaw_and_hermes_are_imported(machine: Machine, tmp_path: Path):
    claw, hermes = tmp_path / "claw.json", tmp_path / "hermes.json"
    turn = {"kind": "agentTurn", "message": "Summarize.", "model": "opus"}
    daily = {"kind": "cron", "expr": "0 7 * * *", "tz": "Asia/Tokyo"}
    none = {"mode": "none"}
    jobs = [
        {"id": "1", "name": "Brief", "schedule": daily, "payload": turn, "delivery": none, "enabled": False},
        {"id": "2", "name": "Brief", "schedule": daily, "payload": turn, "delivery": none, "agentId": "claw"},
        {"id": "3", "name": "Late", "schedule": {"kind": "at", "at": "2020-01-01"}, "payload": turn},
    ]
    claw.write_text(json.dumps({"version": 1, "jobs": jobs}))
    feeds = {"id": "a", "name": "Brief", "prompt": "Read.", "schedule": {"kind": "interval", "minutes": 30}}
    hermes.write_text(json.dumps({"jobs": [feeds]}))

    tried = machine.wakeful("import", "openclaw", str(claw), "--dry-run", "--json")
    done = machine.wakeful("import", "openclaw", str(claw), "--json")
    assert imported(tried, 1) == imported(done, 1) == ["brief", "brief"]
    assert tried.json["refused"] == done.json["refused"]
    assert [(each["item"], each["field"]) for each in done.json["notes"]][:1] == [("Brief", "payload.model")]
    assert imported(machine.wakeful("import", "hermes", str(hermes), "--json")) == ["brief-2"]

    first = machine.wakeful("show", "default/brief", "--json").json
    assert (first["enabled"], first["tz"], first["message"]) == (False, "Asia/Tokyo", "Summarize.")
    assert first["payload"] == {"message": "Summarize.", "model": "opus"}
    assert machine.wakeful("show", "claw/brief", "--json").json["enabled"] is True
    second = machine.wakeful("show", "default/brief-2", "--json").json
    assert second["schedule"]["everyMs"] == 1_800_000
    assert machine.wakeful("import", "openclaw", str(claw), "--json").json["absent"] == []
