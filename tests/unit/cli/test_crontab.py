"""Reading crontabs by cron's rules, and the jobs made from them."""

from __future__ import annotations

import pytest

from wakeful.cli.crontab import plan, read_crontab
from wakeful.cli.crontab.naming import name_of

NOW = 1_800_000_000_000


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
    assert entry.command == "/bin/report --to  'a b' # no comment"


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

    assert entry.command == "mail -s 100% me"
    assert entry.stdin == "Hello,\n100% done\n"


def test_a_command_without_a_percent_sign_has_no_stdin():
    assert only_entry("0 9 * * * date").stdin is None


def test_an_assignment_applies_to_the_lines_after_it():
    result = read_crontab(
        "@daily one\nPATH = /bin:/usr/bin\nNAME='two words'\n@daily two\nNAME=\n@daily three"
    )

    assert [dict(entry.env) for entry in result.entries] == [
        {},
        {"PATH": "/bin:/usr/bin", "NAME": "two words"},
        {"PATH": "/bin:/usr/bin", "NAME": ""},
    ]


def test_an_assignment_inside_a_command_is_part_of_the_command():
    assert only_entry("0 9 * * * FOO=bar run").command == "FOO=bar run"


def test_cron_tz_sets_the_zone_of_the_lines_after_it():
    result = read_crontab("@daily a\nCRON_TZ=Asia/Tokyo\n@daily b\nCRON_TZ=\n@daily c")

    assert [entry.tz for entry in result.entries] == [None, "Asia/Tokyo", None]


def test_an_unknown_zone_is_refused_and_the_previous_one_stays():
    result = read_crontab("CRON_TZ=Asia/Tokyo\nCRON_TZ=Mars/Base\n@daily b")

    assert result.entries[0].tz == "Asia/Tokyo"
    assert "Mars/Base" in result.refused[0].why


def test_tz_is_passed_to_the_command_and_does_not_set_the_zone():
    result = read_crontab("TZ=Asia/Tokyo\n@daily b")

    assert result.entries[0].tz is None
    assert result.entries[0].env == {"TZ": "Asia/Tokyo"}
    assert "CRON_TZ" in result.notes[0].why


def test_mailto_is_noted_and_not_part_of_the_environment():
    result = read_crontab("MAILTO=me@example.com\n@daily b")

    assert result.entries[0].env == {}
    assert "no mail" in result.notes[0].why


def test_an_empty_mailto_is_not_noted():
    assert read_crontab('MAILTO=""\n@daily b').notes == ()


def test_there_are_no_continuation_lines():
    result = read_crontab("0 5 * * 1 tar -c /home \\\n   and /etc too\n")

    assert result.entries[0].command.endswith("\\")
    assert "no continuation lines" in result.notes[0].why
    assert "the previous line ends with" in result.refused[0].why


def test_a_system_crontab_has_a_user_before_the_command():
    entry = only_entry("17 * * * *\troot  cd / && run-parts /etc/cron.hourly", user_field=True)

    assert (entry.user, entry.command) == ("root", "cd / && run-parts /etc/cron.hourly")


def test_a_tab_separates_the_user_from_the_command():
    entry = only_entry("@daily\troot\trun-parts /etc/cron.daily", user_field=True)

    assert (entry.user, entry.command) == ("root", "run-parts /etc/cron.daily")


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
    assert only_entry("\ufeff0 9 * * * date\r\n").command == "date"


# --- documents -------------------------------------------------------------------------------------


def test_the_payload_has_command_stdin_user_and_environment():
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


def test_an_invalid_expression_is_refused_with_its_line():
    crontab = read_crontab("61 * * * * a\n0 0 31 2 * b\n0 9 * * * c\n@reboot d")

    planned, refused = plan(crontab, target=None, tz="UTC", now_ms=NOW)

    assert [each.name for each in planned] == ["c"]
    assert [remark.line for remark in refused] == [1, 2, 4]
    assert "minute" in refused[0].why


def test_lines_with_the_same_command_get_different_names():
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
def test_a_name_comes_from_the_program_and_its_first_argument(command: str, name: str):
    assert name_of(command) == name


def test_a_long_name_is_cut_before_its_number():
    assert name_of("a" * 90, {"a" * 64}) == "a" * 62 + "-2"


def test_without_a_target_the_job_runs_the_line():
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
