"""Reading timers and services of systemd."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime

import pytest

from tests.support.tools import tool
from wakeful.cli.importers.entries import ImportEntry, ReadResult
from wakeful.cli.importers.systemd_calendar import CalendarSchedule, read_calendar, read_span
from wakeful.cli.importers.systemd_timers import read_timers
from wakeful.cli.importers.systemd_units import UnitFile, split_words
from wakeful.cron import Cron
from wakeful.errors import InvalidArgument

SERVICE = "[Service]\nType=oneshot\nExecStart=/usr/local/bin/backup --all\n"
CALENDARS = {
    "minutely": "* * * * *",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "weekly": "0 0 * * MON",
    "monthly": "0 0 1 * *",
    "quarterly": "0 0 1 */3 *",
    "semiannually": "0 0 1 */6 *",
    "yearly": "0 0 1 1 *",
    "Mon..Fri 09:00": "0 9 * * MON-FRI",
    "Mon-Fri 8:00": "0 8 * * MON-FRI",
    "Sat,Sun *-*-* 12:00:00": "0 12 * * SAT,SUN",
    "Monday": "0 0 * * MON",
    "12:05": "5 12 * * *",
    "08:05:40": "40 5 8 * * *",
    "*:0/15": "*/15 * * * *",
    "*:5/20:10": "10 5-45/20 * * * *",
    "*:*:0/30": "*/30 * * * * *",
    "03:00/10": "*/10 3 * * *",
    "8..18:30": "30 8-18 * * *",
    "*-*-* 0/6:30:00": "30 */6 * * *",
    "*-1/3-1": "0 0 1 */3 *",
    "*-*-1..7 10:00": "0 10 1-7 * *",
    "*-*-10/5": "0 0 10-30/5 * *",
    "*-2-29": "0 0 29 2 *",
    "*-*~01": "0 0 L * *",
    "*-02~03": "0 0 L-2 2 *",
    "*-*~1..3": "0 0 L,L-1,L-2 * *",
    "*-*~5/2": "0 0 L,L-2,L-4 * *",
    "Mon *-05~07/1": "0 0 L,L-1,L-2,L-3,L-4,L-5,L-6 5 *",
    "Fri *-*-13 00:00": "0 0 13 * *",
    "Mon *-*-1..7": "0 0 1-7 * *",
    "2027..2028-06-01 00:00": "0 0 1 6 *",
    "Thu,Fri 2027-*-1,5 11:12:13": "13 12 11 1,5 * *",
    "27-3-1 10:00": "0 10 1 3 *",
    "*-*-* 4:00 Europe/Berlin": "0 4 * * *",
    "daily UTC": "0 0 * * *",
}


@pytest.mark.parametrize(("text", "expression"), CALENDARS.items())
def test_a_calendar_expression_becomes_a_cron_expression(text: str, expression: str):
    assert read_calendar(text).schedule == expression


@pytest.mark.parametrize("text", CALENDARS)
def test_the_ticks_are_those_of_systemd(text: str):
    said = subprocess.run(
        [tool("systemd-analyze"), "calendar", text, "--iterations=8", "--base-time=2027-01-01 00:00:00 UTC"],
        env={"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    theirs = re.findall(r"(?:Next elapse|Iter\. #\d+): \w+ ([\d-]+ [\d:]+) UTC", said)

    assert theirs
    assert ticks(read_calendar(text), 8) == theirs


def ticks(calendar: CalendarSchedule, count: int) -> list[str]:
    """Return the first ticks after New Year 2027 in UTC, by the rules of the job fields."""
    assert isinstance(calendar.schedule, str)
    cron, at = Cron(calendar.schedule, tz=calendar.tz or "UTC"), datetime(2027, 1, 1, tzinfo=UTC)
    excluded = calendar.fields.get("exclude", [])
    assert isinstance(excluded, list)
    first, last = calendar.fields.get("startAt", ""), calendar.fields.get("endAt", "9")
    found: list[str] = []
    while len(found) < count and (tick := cron.next(at)) is not None:
        at, wall = tick, f"{tick:%Y-%m-%dT%H:%M:%S}"
        if wall > str(last):
            break
        if f"{tick:%a}".lower() not in excluded and wall >= str(first):
            found.append(f"{tick.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
    return found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("Sun..Mon 10:00", "begins on Monday"),
        ("*/2:00", "hour: '*/2'"),
        ("25:00", "hour: '25'"),
        ("*-*-~01", "not a date"),
        ("*-*-* 10:00:00.5", "fraction"),
        ("2027,2029-01-01", "consecutive years"),
        ("daily Mars/Base", "Mars/Base"),
        ("10:00 11:00", "left over"),
        ("sometimes", "'sometimes'"),
        (f"*:{'9' * 5_000}", "minute: '9"),
    ],
)
def test_an_expression_that_cannot_be_converted_is_refused(text: str, reason: str):
    with pytest.raises(InvalidArgument, match=re.escape(reason)):
        read_calendar(text)


def test_the_zone_and_the_year_become_fields():
    calendar = read_calendar("2027-*-1 08:00 Europe/Berlin")

    assert calendar.tz == "Europe/Berlin"
    assert calendar.fields == {"startAt": "2027-01-01T00:00:00", "endAt": "2027-12-31T23:59:59"}
    assert read_calendar("@1800000000").schedule == {"kind": "at", "atMs": 1_800_000_000_000}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90", 90_000),
        ("1h 30min", 5_400_000),
        ("2hours", 7_200_000),
        ("55s500ms", 55_500),
        ("1w", 604_800_000),
    ],
)
def test_a_time_span_is_read_as_by_systemd(text: str, milliseconds: int):
    assert read_span(text) == milliseconds


def test_words_are_split_as_by_systemd():
    assert split_words(r"""/bin/a "two words" 'it''s' b\x20c d\ e "f\"g" """) == [
        "/bin/a",
        "two words",
        "its",
        "b c",
        "d e",
        'f"g',
    ]


# --- timers ----------------------------------------------------------------------------------------


def read(
    timer: str, service: str | None = SERVICE, name: str = "backup.timer", drop_ins: tuple[str, ...] = ()
):
    file = UnitFile(name, f"/etc/systemd/system/{name}", timer, drop_ins)

    def find(wanted: str) -> UnitFile | None:
        return None if service is None else UnitFile(wanted, f"/etc/systemd/system/{wanted}", service)

    return read_timers([file], find)


def only(reading: ReadResult) -> ImportEntry:
    assert reading.refused == ()
    (entry,) = reading.entries
    return entry


def notes(reading: ReadResult) -> dict[str | None, str]:
    return {note.field: note.why for note in reading.notes}


def test_a_timer_and_its_service_become_a_job():
    reading = read(
        "[Unit]\nDescription=Nightly backup\n[Timer]\nOnCalendar=*-*-* 02:30:00 Europe/Berlin\n"
        "Persistent=true\nRandomizedDelaySec=30min\n[Install]\nWantedBy=timers.target\n",
        "[Service]\nType=oneshot\nExecStart=/usr/local/bin/backup --to '/srv/my data'\nUser=backup\n"
        'WorkingDirectory=/srv\nEnvironment=LEVEL=9 "NAME=two words"\nTimeoutStartSec=1h\n',
    )

    entry = only(reading)
    assert (entry.name, entry.schedule, entry.tz) == ("backup", "30 2 * * *", "Europe/Berlin")
    assert entry.fields == {
        "description": "Nightly backup",
        "catchupPolicy": "latest",
        "jitterMs": 900_000,
        "timeoutMs": 3_600_000,
    }
    assert entry.command is not None
    assert entry.command.argv == ("/usr/local/bin/backup", "--to", "/srv/my data")
    assert entry.command.line == "/usr/local/bin/backup --to '/srv/my data'"
    assert (entry.command.user, entry.command.cwd) == ("backup", "/srv")
    assert entry.command.env == {"LEVEL": "9", "NAME": "two words"}
    assert "jitter of 15 minutes" in notes(reading)["RandomizedDelaySec"]


def test_several_schedules_become_several_jobs():
    reading = read(
        "[Timer]\nOnCalendar=Sat 10:00\nOnCalendar=Sun 11:00\nOnUnitActiveSec=2h\nOnBootSec=5min\n"
    )

    assert [entry.schedule for entry in reading.entries] == [
        "0 10 * * SAT",
        "0 11 * * SUN",
        {"kind": "every", "everyMs": 7_200_000},
    ]
    assert "machine boots" in notes(reading)["OnBootSec"]


def test_one_schedule_that_cannot_be_converted_does_not_stop_the_others():
    reading = read("[Timer]\nOnCalendar=daily\nOnCalendar=2027,2029-01-01\n")

    assert [entry.schedule for entry in reading.entries] == ["0 0 * * *"]
    assert [(remark.field, remark.text) for remark in reading.refused] == [
        ("OnCalendar", "OnCalendar=2027,2029-01-01")
    ]


@pytest.mark.parametrize(
    ("timer", "reason"),
    [
        ("[Timer]\nOnBootSec=5min\n", "machine boots"),
        ("[Timer]\n", "no OnCalendar"),
        ("", "masked"),
        ("[Timer]\nOnCalendar=daily\nUnit=rescue.target\n", "not a service"),
    ],
)
def test_a_timer_without_a_usable_schedule_or_service_is_refused(timer: str, reason: str):
    reading = read(timer)

    assert reading.entries == ()
    assert reason in reading.refused[0].why


def test_a_missing_service_is_refused():
    reading = read("[Timer]\nOnCalendar=daily\nUnit=other.service\n", None)

    assert "other.service is not found" in reading.refused[0].why


def test_drop_ins_reset_and_add_values():
    reading = read(
        "[Timer]\nOnCalendar=daily\nAccuracySec=1us\n",
        drop_ins=("[Timer]\nOnCalendar=\nOnCalendar=hourly\n", "[Timer]\n# a comment\nWakeSystem=true\n"),
    )

    assert only(reading).schedule == "0 * * * *"
    assert set(notes(reading)) == {"AccuracySec", "WakeSystem"}

    other = read(
        "[Timer]\nOnBootSec=15min\nOnUnitActiveSec=1d\n",
        drop_ins=("[Timer]\nOnCalendar=\nOnCalendar=daily\n",),
    )
    assert only(other).schedule == "0 0 * * *"
    assert notes(other) == {}


def test_an_instance_uses_the_specifiers_of_its_name_and_a_template_is_refused():
    service = "[Service]\nExecStart=/bin/backup %i --unit %n --percent 5%%\n"
    reading = read("[Timer]\nOnCalendar=daily\n", service, "backup@home.timer")

    entry = only(reading)
    assert entry.name == "backup-home"
    assert entry.command is not None
    assert entry.command.line == "/bin/backup home --unit backup@home.service --percent 5%"
    assert "template" in read("[Timer]\nOnCalendar=daily\n", service, "backup@.timer").refused[0].why


def test_an_escaped_name_is_unescaped_where_systemd_does():
    service = "[Service]\nExecStart=/bin/backup %i /%I %P\n"
    command = only(read("[Timer]\nOnCalendar=daily\n", service, r"my-backup@srv-caf\xc3\xa9.timer")).command
    assert command is not None
    assert command.argv == ("/bin/backup", r"srv-caf\xc3\xa9", "/srv/café", "my/backup")
    assert only(read("[Timer]\nOnCalendar=daily\n", service, "a@\udcff.timer")).command is not None


def test_conditions_that_are_lost_are_named():
    reading = read(
        "[Unit]\nConditionACPower=true\n[Timer]\nOnCalendar=daily\n",
        f"[Unit]\nConditionPathExists=/mnt\nOnFailure=mail@%n.service\nAfter=x.mount\n{SERVICE}",
    )
    assert only(reading).name == "backup"
    assert set(notes(reading)) == {"ConditionACPower", "ConditionPathExists", "OnFailure"}


def test_specifiers_of_the_machine_are_refused():
    reading = read("[Timer]\nOnCalendar=daily\n", "[Service]\nExecStart=/bin/backup %h\n")

    assert "%h" in reading.refused[0].why


def test_prefixes_variables_and_several_commands():
    reading = read(
        "[Timer]\nOnCalendar=daily\n",
        "[Service]\nEnvironment=OPTIONS='-a -b' DIR=/srv\nExecStart=-/bin/one $OPTIONS ${DIR}/x $HOME\n"
        "ExecStart=/bin/two \\\n  --more\n",
    )

    command = only(reading).command
    assert command is not None
    assert command.argv is None
    assert command.line == "/bin/one -a -b /srv/x '$HOME' && /bin/two --more"
    whys = [note.why for note in reading.notes]
    assert any("prefix -" in why for why in whys)
    assert any("$HOME" in why for why in whys)


def test_settings_of_the_service_that_are_lost_are_named():
    reading = read(
        "[Timer]\nOnCalendar=daily\n",
        f"{SERVICE}EnvironmentFile=/etc/default/backup\nNice=10\nProtectSystem=strict\nExecStartPre=/bin/mount\n",
    )

    assert only(reading).name == "backup"
    assert set(notes(reading)) == {"EnvironmentFile", "ExecStartPre", "Nice, ProtectSystem"}
