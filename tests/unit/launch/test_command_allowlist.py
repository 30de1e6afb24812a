"""Which programs may be run: what the operator names, by no other way to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakeful import InvalidArgument
from wakeful.launch.command_rules import CommandAllowlist, CommandNotFound
from wakeful.launch.port import NotAllowed


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A directory of programs that are allowed by `jobs/*`, beside one that is not."""
    directory = tmp_path / "jobs"
    (directory / "deeper").mkdir(parents=True)
    for program in (directory / "report", directory / "deeper" / "report", tmp_path / "shell"):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return directory


def refused(allowed: CommandAllowlist, name: str) -> str:
    with pytest.raises(NotAllowed) as error:
        allowed.check(name)
    with pytest.raises(NotAllowed):
        allowed.find(name)
    return error.value.message


def test_the_error_names_the_setting_if_nothing_is_allowed():
    said = refused(CommandAllowlist([]), "/bin/true")
    assert said == "no commands are allowed; the operator allows commands by WAKEFUL_COMMANDS"


def test_a_path_allows_itself_and_no_other_way_to_it():
    allowed = CommandAllowlist(["/usr/bin/env"])
    assert allowed.find("/usr/bin/env") == "/usr/bin/env"
    for other in ("env", "/usr/bin/../bin/env", "/usr/bin//env", "/usr/bin/env2", "/bin/env", "usr/bin/env"):
        refused(allowed, other)


def test_a_name_allows_the_program_on_the_path_by_that_name_alone(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{jobs.parent}/nothing{os.pathsep}{jobs}")
    allowed = CommandAllowlist(["report"])
    assert allowed.find("report") == f"{jobs}/report"
    refused(allowed, f"{jobs}/report")
    refused(allowed, "shell")


def test_an_allowed_name_that_is_not_on_the_path_is_not_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    allowed = CommandAllowlist(["report"])
    allowed.check("report")  # another replica may have it, or this one tomorrow
    with pytest.raises(CommandNotFound, match="no program 'report' on the PATH"):
        allowed.find("report")


def test_a_relative_path_is_always_refused():
    for name in ("bin/report", "./report", "../report", "jobs/../report"):
        assert "neither an absolute path nor a name" in refused(CommandAllowlist(["*"]), name)


def test_a_single_star_allows_everything():
    allowed = CommandAllowlist(["*"])
    assert allowed.find("/bin/sh") == "/bin/sh"
    assert allowed.find("sh").endswith("/sh")


def test_a_pattern_allows_what_is_in_its_directory(jobs: Path):
    allowed = CommandAllowlist([f"{jobs}/*"])
    assert allowed.find(f"{jobs}/report") == f"{jobs}/report"
    allowed.check(f"{jobs}/not-there-yet")
    for other in (f"{jobs}/deeper/report", f"{jobs}", f"{jobs}-2/report", "report"):
        refused(allowed, other)


def test_dots_do_not_lead_out_of_a_pattern(jobs: Path):
    allowed = CommandAllowlist([f"{jobs}/*"])
    refused(allowed, f"{jobs}/../shell")
    refused(allowed, f"{jobs}/deeper/../../shell")
    refused(allowed, f"{jobs}/deeper/../deeper/report")


def test_links_do_not_lead_out_of_a_pattern(jobs: Path):
    (jobs / "out").symlink_to(jobs.parent / "shell")
    (jobs / "out-by-dots").symlink_to("../shell")
    (jobs / "twice").symlink_to("out")
    (jobs / "elsewhere").symlink_to(jobs.parent)
    allowed = CommandAllowlist([f"{jobs}/*"])
    for name in ("out", "out-by-dots", "twice", "elsewhere/shell"):
        refused(allowed, f"{jobs}/{name}")


def test_a_link_within_a_pattern_is_the_program_that_it_leads_to(jobs: Path):
    (jobs / "report-today").symlink_to("report")
    assert CommandAllowlist([f"{jobs}/*"]).find(f"{jobs}/report-today") == f"{jobs}/report"
    refused(CommandAllowlist([f"{jobs}/report-*"]), f"{jobs}/report-today")


def test_a_directory_that_is_a_link_itself_is_the_one_it_leads_to(jobs: Path):
    (jobs.parent / "current").symlink_to(jobs)
    allowed = CommandAllowlist([f"{jobs.parent}/current/*"])
    assert allowed.find(f"{jobs.parent}/current/report") == f"{jobs}/report"
    refused(allowed, f"{jobs.parent}/shell")


def test_a_star_matches_a_part_of_a_name(jobs: Path):
    allowed = CommandAllowlist([f"{jobs}/re*t", f"{jobs}/[a-z]?"])
    allowed.check(f"{jobs}/report")
    allowed.check(f"{jobs}/[a-z]?")
    for other in ("reports", "my-report", "ab", "x?"):
        refused(allowed, f"{jobs}/{other}")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("bin/report", "write an absolute path"),
        ("./report", "write an absolute path"),
        ("~/report", "write an absolute path"),
        ("rs*", "write an absolute path"),
        ("..", "write an absolute path"),
        ("/opt/jobs/", "it is a directory; write /opt/jobs/*"),
        ("/", "it is a directory"),
        ("/opt/*/report", "only in the last part"),
        ("/opt/**", "only in the last part"),
        ("/opt/../bin/*", "without //, . and .."),
        ("/opt//report", "without //, . and .."),
        ("//opt/report", "without //, . and .."),
        ("/usr/bin/rsync -a", "write the program without arguments"),
        ("/usr/bin/a\x00b", "write the program without arguments"),
    ],
)
def test_an_invalid_entry_stops_the_start(entry: str, why: str):
    with pytest.raises(InvalidArgument, match=r"^WAKEFUL_COMMANDS: ") as error:
        CommandAllowlist(["rsync", entry])
    assert why in error.value.message
