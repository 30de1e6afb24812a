"""A crontab is read as cron reads it, and every line that cannot be taken is named."""

from __future__ import annotations

import pytest

from wakeful.cli.crontab import plan, read_crontab
from wakeful.cli.crontab.naming import name_of

NOW = 1_800_000_000_000


def the_entry(text: str, *, user_field: bool = False):
    found = read_crontab(text, user_field=user_field)
    assert found.refused == ()
    (entry,) = found.entries
    return entry


def why_not(text: str, *, user_field: bool = False) -> str:
    found = read_crontab(text, user_field=user_field)
    assert found.entries == ()
    (remark,) = found.refused
    return remark.why


def test_a_line_is_five_fields_and_the_rest_is_the_command():
    entry = the_entry("  */5\t9-17 * jan,feb  MON-FRI\t/bin/report --to  'a b' # no comment\n")

    assert entry.schedule == "*/5 9-17 * jan,feb MON-FRI"
    assert entry.command == "/bin/report --to  'a b' # no comment"


def test_comments_and_empty_lines_are_passed_over():
    assert read_crontab("\n   # 0 9 * * * not this\n\t\n#\n").entries == ()


@pytest.mark.parametrize(
    "macro", ["@daily", "@Hourly", "@midnight", "@yearly", "@annually", "@weekly", "@monthly"]
)
def test_a_macro_stands_for_five_fields(macro: str):
    assert the_entry(f"{macro} do it").schedule == macro.lower()


def test_a_reboot_is_not_to_be_had():
    assert "machine" in why_not("@reboot /usr/bin/start")


def test_an_unknown_macro_is_named():
    assert "'@fortnightly'" in why_not("@fortnightly do it")


def test_a_percent_sign_is_a_newline_and_what_follows_is_read_by_the_command():
    entry = the_entry(r"0 9 * * * mail -s 100\% me%Hello,%100\% done")

    assert entry.command == "mail -s 100% me"
    assert entry.stdin == "Hello,\n100% done\n"


def test_a_command_without_a_percent_sign_reads_nothing():
    assert the_entry("0 9 * * * date").stdin is None


def test_an_assignment_holds_for_the_lines_after_it():
    found = read_crontab(
        "@daily one\nPATH = /bin:/usr/bin\nNAME='two words'\n@daily two\nNAME=\n@daily three"
    )

    assert [dict(entry.env) for entry in found.entries] == [
        {},
        {"PATH": "/bin:/usr/bin", "NAME": "two words"},
        {"PATH": "/bin:/usr/bin", "NAME": ""},
    ]


def test_an_assignment_in_a_command_is_no_assignment():
    assert the_entry("0 9 * * * FOO=bar run").command == "FOO=bar run"


def test_cron_tz_is_the_zone_of_the_lines_after_it():
    found = read_crontab("@daily a\nCRON_TZ=Asia/Tokyo\n@daily b\nCRON_TZ=\n@daily c")

    assert [entry.tz for entry in found.entries] == [None, "Asia/Tokyo", None]


def test_a_zone_that_nobody_knows_is_refused_and_changes_nothing():
    found = read_crontab("CRON_TZ=Asia/Tokyo\nCRON_TZ=Mars/Base\n@daily b")

    assert found.entries[0].tz == "Asia/Tokyo"
    assert "Mars/Base" in found.refused[0].why


def test_tz_is_for_the_command_and_cron_does_not_keep_time_by_it():
    found = read_crontab("TZ=Asia/Tokyo\n@daily b")

    assert found.entries[0].tz is None
    assert found.entries[0].env == {"TZ": "Asia/Tokyo"}
    assert "CRON_TZ" in found.notes[0].why


def test_mail_is_noted_and_not_carried_along():
    found = read_crontab("MAILTO=me@example.com\n@daily b")

    assert found.entries[0].env == {}
    assert "mailed" in found.notes[0].why


def test_mail_to_nobody_is_not_worth_a_word():
    assert read_crontab('MAILTO=""\n@daily b').notes == ()


def test_no_line_is_continued():
    found = read_crontab("0 5 * * 1 tar -c /home \\\n   and /etc too\n")

    assert found.entries[0].command.endswith("\\")
    assert "continues no line" in found.notes[0].why
    assert "the line before ends with" in found.refused[0].why


def test_a_system_crontab_has_a_user_before_the_command():
    entry = the_entry("17 * * * *\troot  cd / && run-parts /etc/cron.hourly", user_field=True)

    assert (entry.user, entry.command) == ("root", "cd / && run-parts /etc/cron.hourly")


def test_a_tab_may_stand_between_the_user_and_the_command():
    entry = the_entry("@daily\troot\trun-parts /etc/cron.daily", user_field=True)

    assert (entry.user, entry.command) == ("root", "run-parts /etc/cron.daily")


def test_a_line_without_a_command_is_refused():
    assert "five fields and a command" in why_not("0 9 * * *")
    assert "user before the command" in why_not("0 9 * * * root", user_field=True)


def test_what_looks_like_a_system_crontab_is_noted():
    found = read_crontab("17 * * * * root run-parts /etc/cron.hourly")

    assert "--user-field" in found.notes[0].why


def test_a_leading_hyphen_only_keeps_it_out_of_the_log():
    assert the_entry("-*/10 * * * * poll").schedule == "*/10 * * * *"


def test_a_random_time_is_refused():
    assert "jitter" in why_not("0~59 3 * * * backup")


def test_the_ends_of_lines_of_another_system_do_no_harm():
    assert the_entry("\ufeff0 9 * * * date\r\n").command == "date"


# --- documents -------------------------------------------------------------------------------------


def test_a_job_carries_the_command_and_all_that_belongs_to_it():
    crontab = read_crontab("SHELL=/bin/bash\n0 9 * * * ops mail me%Hi", user_field=True)

    ((planned,), refused) = plan(crontab, target={"kind": "pull"}, tz="Europe/Berlin", now_ms=NOW)

    assert refused == []
    assert planned.document["payload"] == {
        "command": "mail me",
        "stdin": "Hi\n",
        "user": "ops",
        "env": {"SHELL": "/bin/bash"},
    }
    assert planned.document["tz"] == "Europe/Berlin"
    assert planned.explain == "At 09:00, every day (Europe/Berlin)"


def test_what_the_expression_cannot_be_is_said_with_its_line():
    crontab = read_crontab("61 * * * * a\n0 0 31 2 * b\n0 9 * * * c\n@reboot d")

    planned, refused = plan(crontab, target=None, tz="UTC", now_ms=NOW)

    assert [each.name for each in planned] == ["c"]
    assert [remark.line for remark in refused] == [1, 2, 4]
    assert "minute" in refused[0].why


def test_two_lines_with_the_same_command_have_two_names():
    crontab = read_crontab("0 9 * * * sync\n0 21 * * * sync\n@daily sync")

    planned, _ = plan(crontab, target=None, tz="UTC", now_ms=NOW, taken={"sync-2"})

    assert [each.name for each in planned] == ["sync", "sync-3", "sync-4"]


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
def test_a_name_is_what_a_person_would_call_it(command: str, name: str):
    assert name_of(command) == name


def test_a_long_name_keeps_its_number():
    assert name_of("a" * 90, {"a" * 64}) == "a" * 62 + "-2"


def test_without_a_target_the_line_itself_is_what_is_run():
    crontab = read_crontab("SHELL=/bin/bash\nPATH=/usr/bin\n@daily a | b\nSHELL=\n@daily c # d%it's%me")

    planned, _ = plan(crontab, target=None, tz="UTC", now_ms=NOW)

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
