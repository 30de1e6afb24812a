"""`wakeful help`, `version`, `completion`, words of other command lines, and addresses that are none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import Machine
from wakeful.cli.commands import _HINTS
from wakeful.cli.commands.index import COMMANDS
from wakeful.cli.exit_codes import USAGE
from wakeful.values.package import VERSION


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine without a server."""
    return Machine(tmp_path)


def test_help_shows_what_the_option_shows(machine: Machine):
    for words in ((), ("add",), ("keys", "create")):
        assert machine.wakeful("help", *words).out == machine.wakeful(*words, "--help").out
    assert machine.wakeful("help", "nonsense").code == USAGE


def test_version_is_that_of_the_option(machine: Machine):
    assert machine.wakeful("version").out.startswith(machine.wakeful("--version").out.strip())
    assert machine.wakeful("version", "--json").json["version"] == VERSION


@pytest.mark.parametrize("word", _HINTS)
def test_a_word_of_another_command_line_names_the_command_to_use(machine: Machine, word: str):
    known = {each.name for each in COMMANDS}
    assert word not in known
    done = machine.wakeful(word, "digest", "--force")
    assert done.code == USAGE
    named = {piece.split()[1] for piece in done.err.split("`") if piece.startswith("wakeful ")}
    assert named
    assert named <= known


def test_the_completion_of_a_named_shell_completes_commands(machine: Machine):
    script = machine.wakeful("completion", "bash").out
    assert machine.wakeful("completion", "bash", "--json").json == {"shell": "bash", "script": script.strip()}
    program = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    asked = f"{script}\nCOMP_WORDS=(wakeful dead-l) COMP_CWORD=1 COMPREPLY=()\n_wakeful_completion wakeful\n"
    done = subprocess.run(
        ["bash", "-eu", "-c", f'{asked}echo "${{COMPREPLY[@]}}"'],
        env={**machine.environment, "PATH": program},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["dead-letters"]


def test_completion_is_installed_for_the_named_shell_and_not_the_running_one(machine: Machine):
    done = machine.process("completion", "fish", "--install", "--json", SHELL="/bin/bash")
    written = Path(json.loads(done.out)["file"])
    assert machine.home in written.parents
    assert "--command wakeful" in written.read_text()
    assert machine.wakeful("completion", "tcsh").code == USAGE


@pytest.mark.parametrize(
    "url",
    [
        *("foo", "127.0.0.1:9253", "http://", "http://:9253", "http://[::1", "http://a b:1"),
        *("ftp://127.0.0.1", "ws://127.0.0.1:9253", "unix:///run/wakeful"),
        *("http://127.0.0.1:port", "http://127.0.0.1:0", "http://127.0.0.1:99999", "http://127.0.0.1?x=1"),
    ],
)
def test_a_text_that_is_no_address_is_a_wrong_argument(machine: Machine, url: str):
    for done in (machine.wakeful("list", WAKEFUL_URL=url), machine.wakeful("list", "--server", url)):
        assert (done.code, done.out) == (USAGE, "")
        assert f"'{url}' is not the address of a server" in done.err


def test_an_address_where_nothing_listens_is_unavailable(machine: Machine):
    for url in ("http://127.0.0.1:1", " http://127.0.0.1:1/ ", "http://127.0.0.1:1/base"):
        assert machine.wakeful("list", WAKEFUL_URL=url).code == 7


def test_output_that_cannot_be_written_is_an_error_in_one_sentence_and_a_closed_one_is_none() -> None:
    command = [sys.executable, "-m", "wakeful", "version"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    sentence = "wakeful: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, sentence)
    for stream in ("", "2"):
        closed = ["sh", "-c", f'"$@" {stream}>&-', "sh", *command]
        done = subprocess.run(closed, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_stdin_is_empty() -> None:
    command = [sys.executable, "-m", "wakeful", "import", "crontab", "-", "--server", "http://127.0.0.1:1"]
    closed = ["sh", "-c", '"$@" <&-', "sh", *command]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (7, 1), done.stderr
