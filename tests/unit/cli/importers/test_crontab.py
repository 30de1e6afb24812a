"""Reading crontabs by cron's rules, and the jobs made from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wakeful.cli.importers.crontab import is_read_by_cron, read_crontab
from wakeful.cli.importers.entries import ImportedCommand, ImportEntry, ReadResult, Remark, command_name
from wakeful.cli.importers.planner import Choices, ExistingJob, PlannedJob, absent_jobs, plan
from wakeful.values.json_value import Json

NOW = 1_800_000_000_000


def planned_jobs(
    reading: ReadResult,
    *,
    target: Json = None,
    tz: str = "UTC",
    source: str = "host:/etc/crontab",
    existing: tuple[ExistingJob, ...] = (),
) -> tuple[list[PlannedJob], list[Remark]]:
    choices = Choices(kind="crontab", tz=tz, target=target)
    return plan(reading, choices, source=lambda entry: source, existing=existing, now_ms=NOW)


def command_of(entry: ImportEntry) -> ImportedCommand:
    assert entry.command is not None
    return entry.command


def only_entry(text: str, *, user_field: bool = False):
    result = read_crontab(text, user_field=user_field)
    assert result.refused == ()
    (entry,) = result.entries
    return entry


def refusal(text: str, *, user_field: bool = False) -> str:
    result = read_crontab(text, user_field=user_field)
    assert result.entries == ()
    (remark,) = result.refused
    return remark.why


def test_a_line_is_five_fields_and_the_rest_is_the_command():
    entry = only_entry("  */5\t9-17 * jan,feb  MON-FRI\t/bin/report --to  'a b' # no comment\n")

    assert entry.schedule == "*/5 9-17 * jan,feb MON-FRI"
    assert command_of(entry).line == "/bin/report --to  'a b' # no comment"


def test_comments_and_empty_lines_are_ignored():
    assert read_crontab("\n   # 0 9 * * * not this\n\t\n#\n").entries == ()


@pytest.mark.parametrize(
    "macro", ["@daily", "@Hourly", "@midnight", "@yearly", "@annually", "@weekly", "@monthly"]
)
def test_macros_are_accepted(macro: str):
    assert only_entry(f"{macro} do it").schedule == macro.lower()


def test_reboot_is_refused():
    assert "machine boots" in refusal("@reboot /usr/bin/start")


def test_an_unknown_macro_is_refused_by_name():
    assert "'@fortnightly'" in refusal("@fortnightly do it")


def test_text_after_a_percent_sign_is_stdin():
    entry = only_entry(r"0 9 * * * mail -s 100\% me%Hello,%100\% done")

    assert command_of(entry).line == "mail -s 100% me"
    assert command_of(entry).stdin == "Hello,\n100% done\n"


def test_a_command_without_a_percent_sign_has_no_stdin():
    assert command_of(only_entry("0 9 * * * date")).stdin is None


def test_an_assignment_applies_to_the_lines_after_it():
    result = read_crontab(
        "@daily one\nPATH = /bin:/usr/bin\nNAME='two words'\n@daily two\nNAME=\n@daily three"
    )

    assert [dict(command_of(entry).env) for entry in result.entries] == [
        {},
        {"PATH": "/bin:/usr/bin", "NAME": "two words"},
        {"PATH": "/bin:/usr/bin", "NAME": ""},
    ]


def test_an_assignment_inside_a_command_is_part_of_the_command():
    assert command_of(only_entry("0 9 * * * FOO=bar run")).line == "FOO=bar run"


def test_cron_tz_sets_the_zone_of_the_lines_after_it():
    result = read_crontab("@daily a\nCRON_TZ=Asia/Tokyo\n@daily b\nCRON_TZ=\n@daily c")

    assert [entry.tz for entry in result.entries] == [None, "Asia/Tokyo", None]


def test_the_lines_under_an_unknown_zone_are_refused():
    result = read_crontab(
        "CRON_TZ=Asia/Tokyo\n@daily a\nCRON_TZ=Mars/Base\n@daily b\n@daily c\nCRON_TZ=\n@daily d"
    )

    assert [(entry.text, entry.tz) for entry in result.entries] == [
        ("@daily a", "Asia/Tokyo"),
        ("@daily d", None),
    ]
    assert [remark.place.line for remark in result.refused] == [3, 4, 5]
    assert "Mars/Base" in result.refused[0].why
    assert all("CRON_TZ in line 3" in remark.why for remark in result.refused[1:])


def test_tz_is_passed_to_the_command_and_does_not_set_the_zone():
    result = read_crontab("TZ=Asia/Tokyo\n@daily b")

    assert result.entries[0].tz is None
    assert command_of(result.entries[0]).env == {"TZ": "Asia/Tokyo"}
    assert "CRON_TZ" in result.notes[0].why


def test_mailto_is_noted_and_not_part_of_the_environment():
    result = read_crontab("MAILTO=me@example.com\n@daily b")

    assert command_of(result.entries[0]).env == {}
    assert "no mail" in result.notes[0].why


def test_an_empty_mailto_is_not_noted():
    assert read_crontab('MAILTO=""\n@daily b').notes == ()


def test_there_are_no_continuation_lines():
    result = read_crontab("0 5 * * 1 tar -c /home \\\n   and /etc too\n")

    assert command_of(result.entries[0]).line.endswith("\\")
    assert "no continuation lines" in result.notes[0].why
    assert "the previous line ends with" in result.refused[0].why


def test_a_system_crontab_has_a_user_before_the_command():
    entry = only_entry("17 * * * *\troot  cd / && run-parts /etc/cron.hourly", user_field=True)

    assert (command_of(entry).user, command_of(entry).line) == ("root", "cd / && run-parts /etc/cron.hourly")


def test_a_tab_separates_the_user_from_the_command():
    entry = only_entry("@daily\troot\trun-parts /etc/cron.daily", user_field=True)

    assert (command_of(entry).user, command_of(entry).line) == ("root", "run-parts /etc/cron.daily")


def test_a_line_without_a_command_is_refused():
    assert "five fields and a command" in refusal("0 9 * * *")
    assert "user before the command" in refusal("0 9 * * * root", user_field=True)


def test_a_line_that_looks_like_a_system_crontab_is_noted():
    result = read_crontab("17 * * * * root run-parts /etc/cron.hourly")

    assert "--user-field" in result.notes[0].why


def test_a_leading_hyphen_is_ignored():
    assert only_entry("-*/10 * * * * poll").schedule == "*/10 * * * *"


def test_a_random_time_is_refused():
    assert "jitter" in refusal("0~59 3 * * * backup")


def test_a_byte_order_mark_and_crlf_are_ignored():
    assert command_of(only_entry("\ufeff0 9 * * * date\r\n")).line == "date"


# --- documents -------------------------------------------------------------------------------------


def test_the_payload_has_command_stdin_user_and_environment():
    crontab = read_crontab("SHELL=/bin/bash\n0 9 * * * ops mail me%Hi", user_field=True)

    ((planned,), refused) = planned_jobs(crontab, target={"kind": "pull"}, tz="Europe/Berlin")

    assert refused == []
    assert planned.document["payload"] == {
        "command": "mail me",
        "stdin": "Hi\n",
        "user": "ops",
        "env": {"SHELL": "/bin/bash"},
    }
    assert planned.document["tz"] == "Europe/Berlin"
    assert planned.explain == "At 09:00, every day (Europe/Berlin)"


def test_an_invalid_expression_is_refused_with_its_line():
    crontab = read_crontab("61 * * * * a\n0 0 31 2 * b\n0 9 * * * c\n@reboot d")

    planned, refused = planned_jobs(crontab)

    assert [each.name for each in planned] == ["c"]
    assert sorted(remark.place.line or 0 for remark in refused) == [1, 2, 4]
    assert any("minute" in remark.why for remark in refused)


def test_lines_with_the_same_command_get_different_names():
    crontab = read_crontab("0 9 * * * sync\n0 21 * * * sync\n@daily sync")

    planned, _ = planned_jobs(crontab, existing=(ExistingJob("default", "sync-2", "", ""),))

    assert [each.name for each in planned] == ["sync", "sync-3", "sync-4"]


def existing(planned: list[PlannedJob]) -> tuple[ExistingJob, ...]:
    return tuple(ExistingJob(each.agent, each.name, "crontab", each.source) for each in planned)


def test_the_same_file_converges_and_another_file_gets_other_names():
    first, _ = planned_jobs(read_crontab("0 9 * * * sync\n0 21 * * * sync"), source="host:/a")
    there = existing(first)

    again, _ = planned_jobs(
        read_crontab("0 9 * * * sync\n0 22 * * * sync\n@daily sync"), source="host:/a", existing=there
    )
    other, _ = planned_jobs(read_crontab("0 9 * * * sync"), source="host:/b", existing=there)

    assert [each.name for each in again] == ["sync", "sync-2", "sync-3"]
    assert [each.name for each in other] == ["sync-3"]


def test_a_job_keeps_its_number_when_the_first_name_becomes_free():
    own = (ExistingJob("default", "sync-2", "crontab", "host:/b"),)

    ((job,), _) = planned_jobs(read_crontab("0 9 * * * sync"), source="host:/b", existing=own)

    assert job.name == "sync-2"


def test_a_job_that_was_renamed_is_found_by_its_work():
    text = "0 9 * * * sync\n0 21 * * * sync\n@daily tidy"
    first, _ = planned_jobs(read_crontab(text))
    renamed = tuple(
        ExistingJob(each.agent, f"my-{each.name}", "crontab", each.source, _entry_label(each))
        for each in first
    )

    again, _ = planned_jobs(read_crontab(text.replace("21", "22")), existing=renamed)
    changed, _ = planned_jobs(read_crontab("0 9 * * * sync --all\n@daily tidy"), existing=renamed)
    other, _ = planned_jobs(read_crontab(text), source="host:/b", existing=renamed)

    assert [each.name for each in again] == ["my-sync", "my-sync-2", "my-tidy"]
    assert absent_jobs(again, renamed, "crontab") == []
    assert [each.name for each in changed] == ["sync", "my-tidy"]
    assert [each.name for each in other] == ["sync", "sync-2", "tidy"]


def _entry_label(planned: PlannedJob) -> str:
    labels = planned.document["labels"]
    assert isinstance(labels, dict)
    return str(labels["import-entry"])


def test_a_new_line_does_not_take_the_job_of_another_line():
    first, _ = planned_jobs(read_crontab("0 9 * * * /a/sync\n0 9 * * * /b/sync"))
    there = tuple(
        ExistingJob(each.agent, each.name, "crontab", each.source, _entry_label(each)) for each in first
    )
    again, _ = planned_jobs(
        read_crontab("0 8 * * * /c/sync\n0 9 * * * /b/sync\n0 9 * * * /a/sync"), existing=there
    )

    assert [each.name for each in again] == ["sync-3", "sync-2", "sync"]


def test_a_copy_of_a_job_stays_as_it_is():
    first, _ = planned_jobs(read_crontab("0 9 * * * /a/sync"))
    (made,) = (
        ExistingJob(each.agent, each.name, "crontab", each.source, _entry_label(each)) for each in first
    )
    there = (made, replace(made, name="sync-2"), replace(made, name="sync-copy"))

    again, _ = planned_jobs(read_crontab("0 8 * * * /a/sync\n0 9 * * * /b/sync"), existing=there)

    assert [each.name for each in again] == ["sync", "sync-3"]
    assert absent_jobs(again, there, "crontab") == []


def test_jobs_that_are_no_longer_in_their_file_are_named():
    first, _ = planned_jobs(read_crontab("@daily a\n@daily b"))
    second, _ = planned_jobs(read_crontab("@daily a"), existing=existing(first))

    assert absent_jobs(second, existing(first), "crontab") == [("default", "b")]
    assert absent_jobs(second, existing(first), "systemd") == []


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("php", True),
        ("e2scrub_all", True),
        ("a-1", True),
        ("php.dpkg-dist", False),
        ("php~", False),
        (".x", False),
    ],
)
def test_cron_ignores_backups_and_package_files(name: str, read: bool):
    assert is_read_by_cron(name) is read


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --full >/dev/null 2>&1", "backup"),
        ("cd /srv/app && ./run.py", "run"),
        ("php /srv/app/artisan schedule:run >> /dev/null 2>&1", "artisan-schedule-run"),
        ("/usr/bin/python3 -m reports.daily --to me", "reports-daily-me"),
        (
            "test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )",
            "run-parts-cron-daily",
        ),
        ("FOO=1 nice -n 10 /opt/sync", "sync"),
        ("flock -n /tmp/x.lock /opt/poll.sh", "poll"),
        ("timeout 30s curl -fsS https://example.com/ping?x=1", "curl"),
        ("[ -d /x ]", "x"),
        ("!!!", "job"),
        ("a" * 90, "a" * 64),
        ("send 'unbalanced", "send"),
    ],
)
def test_a_name_comes_from_the_program_and_its_first_argument(command: str, name: str):
    assert command_name(command) == name


def test_a_long_name_is_cut_before_its_number():
    crontab = read_crontab(f"@daily {'a' * 90}\n@weekly {'a' * 90}")

    planned, _ = planned_jobs(crontab)
    again, _ = planned_jobs(crontab, existing=existing(planned))

    assert [each.name for each in planned] == ["a" * 64, "a" * 62 + "-2"]
    assert [each.name for each in again] == [each.name for each in planned]


def test_without_a_target_the_job_runs_the_line():
    crontab = read_crontab("SHELL=/bin/bash\nPATH=/usr/bin\n@daily a | b\nSHELL=\n@daily c # d%it's%me")

    planned, _ = planned_jobs(crontab)

    first, second = (each.document for each in planned)
    assert first["target"] == {
        "kind": "command",
        "argv": ["/bin/bash", "-c", "export PATH=/usr/bin\na | b"],
    }
    assert second["target"] == {
        "kind": "command",
        "argv": ["/bin/sh", "-c", "export PATH=/usr/bin\nprintf %s 'it'\"'\"'s\nme\n' | { c # d\n}"],
    }
    assert (first["payload"], second["payload"]) == (None, None)
    assert first["timeoutMs"] == 86_400_000, "cron does not end a command"
