"""The systemd units in `deploy/`: valid, hardened, and in line with the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deploy_files import unknown_settings
from tests.support.paths import ROOT
from tests.support.tools import run, tool
from wakeful.cli import exit_codes

UNITS = ROOT / "deploy/systemd"
NAMES = ["wakeful.service", "wakeful-worker@.service"]
#: The exposure that `systemd-analyze security` may report, times ten: 1.4 today, of 10.
MOST_EXPOSURE = "20"


def installed(name: str, place: Path) -> str:
    """Write the unit with a program that exists; return its path."""
    file = place / name
    file.write_text((UNITS / name).read_text().replace("/opt/wakeful/bin/wakeful", "/bin/sh"))
    return str(file)


def directives(name: str) -> list[str]:
    lines = (UNITS / name).read_text().splitlines()
    return [line for line in lines if "=" in line and not line.startswith("#")]


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_is_valid_and_hardened(name: str, tmp_path: Path):
    analyze, unit = tool("systemd-analyze"), installed(name, tmp_path)
    assert run(analyze, "verify", "--man=no", unit) == ""
    run(analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", "--no-pager", unit)


def test_the_worker_differs_from_the_server_only_in_what_it_runs():
    server, worker = (directives(name) for name in NAMES)
    keys = {line.partition("=")[0] for line in set(server) ^ set(worker)}
    assert keys == {"Description", "After", "ExecStart"}


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_waits_for_ready_and_allows_a_graceful_stop(name: str):
    unit = dict(line.split("=", 1) for line in directives(name))
    assert unit["Type"] == "notify"
    assert unit["KillMode"] == "mixed"
    assert int(unit["TimeoutStopSec"]) >= 45
    assert unit["RestartPreventExitStatus"] == str(exit_codes.USAGE)


def test_the_units_name_settings_that_exist():
    assert unknown_settings("".join(file.read_text() for file in UNITS.iterdir())) == set()
