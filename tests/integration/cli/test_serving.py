"""The server from the command line, and what needs none."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from tests.support.command_line import Machine, first_json, serving
from tests.support.waiting import PATIENCE


def test_the_first_start_leaves_a_key_and_the_next_one_finds_it(tmp_path: Path):
    with serving(tmp_path) as machine:
        (key,) = (tmp_path / "config/wakeful/keys").iterdir()
        assert key.stat().st_mode & 0o777 == 0o600
        port = str(machine.url).rpartition(":")[2]

    process = Machine(tmp_path).start("serve", "--port", port, "--db", str(tmp_path / "a.db"), cold=True)
    assert process.stdout is not None
    try:
        greeting = "".join(process.stdout.readline() for _ in range(7))
        assert f"{key} (the CLI finds it)" in greeting
        assert Machine(tmp_path, machine.url).wakeful("list").code == 0
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.stdout.close()
        assert process.wait(PATIENCE) == 0


def test_a_worker_keeps_time_without_http(tmp_path: Path):
    process = Machine(tmp_path).start("worker", "--db", str(tmp_path / "a.db"), "--json", cold=True)
    assert first_json(process)["db"].endswith("a.db")
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(PATIENCE) == 0


def test_a_port_that_is_taken_is_said_and_nothing_starts(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        said = Machine(tmp_path).wakeful("serve", "--port", port, "--db", str(tmp_path / "b.db"))

    assert said.code == 7
    assert port in said.err
    assert list(tmp_path.glob("b.db*")) == []


def test_the_demo_wakes_an_agent_that_verifies_what_it_is_told(tmp_path: Path):
    said = Machine(tmp_path).process("demo", "--port", "0", "--runs", "2", "--json")

    assert said.code == 0, said
    assert said.json["verified"] == said.json["woken"] > 0
    assert said.json["refused"] == 0
    assert "succeeded" in {run["state"] for run in said.json["runs"]}
    assert list(tmp_path.glob("**/*.db")) == []


def test_the_demo_is_a_table_that_lives_on_a_terminal(tmp_path: Path):
    said = Machine(tmp_path).on_a_terminal("demo", "--port", "0", "--runs", "1")

    assert said.code == 0
    assert "export WAKEFUL_URL=http://127.0.0.1:" in said.out
    assert "Ctrl-C ends it" in said.out
    assert "hello" in said.out
    assert "\x1b[32msucceeded" in said.out


def test_a_preview_needs_no_server_and_marks_where_the_clocks_change(tmp_path: Path):
    said = Machine(tmp_path).wakeful(
        *("preview", "0 2 * * *", "--tz", "Europe/Berlin", "-n", "3", "--after", "2027-03-26T12:00Z")
    )

    assert said.code == 0
    assert said.out.splitlines()[:4] == [
        "At 02:00, every day (Europe/Berlin)",
        *(line for line in said.out.splitlines()[1:2] if line.startswith("Sat 2027-03-27 02:00:00+01:00")),
        "-- clocks go forward 1 h in Europe/Berlin --",
        *(line for line in said.out.splitlines()[3:4] if line.startswith("Sun 2027-03-28 03:00:00+02:00")),
    ]


def test_a_preview_says_the_same_to_a_machine(tmp_path: Path):
    said = Machine(tmp_path).wakeful("preview", "every 15m", "-n", "2", "--json")

    first, second = said.json["nextTicks"]
    assert second["atMs"] - first["atMs"] == 15 * 60_000
    assert said.json["explain"] == "Every 15 minutes"


def test_the_help_tells_what_an_exit_code_means(tmp_path: Path):
    said = Machine(tmp_path).wakeful("--help")

    assert said.code == 0
    assert "Exit codes" in said.out
    assert "7  no server" in said.out


def test_colours_are_for_terminals_and_not_for_those_who_want_none(tmp_path: Path):
    assert "\x1b" not in Machine(tmp_path).wakeful("preview", "@daily").out
    coloured = Machine(tmp_path).wakeful("preview", "@daily", FORCE_COLOR="1", TERM="xterm").out
    assert "\x1b[1m" in coloured
    plain = Machine(tmp_path).wakeful("preview", "@daily", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").out
    assert "\x1b[3" not in plain
    assert os.linesep in plain


def test_a_screen_that_knows_few_signs_is_no_reason_to_fail(tmp_path: Path):
    file = tmp_path / "crontab"
    file.write_text("0 9 * * * grüße\n", encoding="utf-8")

    said = Machine(tmp_path, "http://127.0.0.1:1").process(
        "import", "crontab", str(file), "--dry-run", PYTHONIOENCODING="ascii"
    )

    assert said.code == 0
    assert "gr??e" in said.out


def test_a_crontab_can_be_looked_at_without_a_server(tmp_path: Path):
    said = Machine(tmp_path, "http://127.0.0.1:1").wakeful(
        "import", "crontab", "--dry-run", "--json", stdin="0 9 * * * backup\n"
    )

    assert said.code == 0
    assert [job["name"] for job in said.json["jobs"]] == ["backup"]
    assert "without a server" in said.err
