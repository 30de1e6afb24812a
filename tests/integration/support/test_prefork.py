"""A warm program is as good as one that was started: what tests see of it is its own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import prefork
from tests.support.programs import alive
from tests.support.waiting import PATIENCE, eventually

_TELLS = """
import os, sys
print(__name__, sys.argv[1:], os.getcwd(), os.environ["COLOUR"], sys.stdin.read())
print("aside", file=sys.stderr)
sys.exit(3)
"""
_STAYS = """
import os, signal
print(os.getpid(), flush=True)
signal.pause()
"""


def test_it_has_arguments_a_directory_an_environment_streams_and_an_exit_code_of_its_own(tmp_path: Path):
    done = subprocess.run(
        prefork.command(script(tmp_path, _TELLS), "one", "two words"),
        cwd=tmp_path,
        env={"COLOUR": "blue"},
        input="said",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    told = f"__main__ ['one', 'two words'] {tmp_path} blue said\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, told, "aside\n")


def test_it_begins_with_nothing_that_one_before_it_did(tmp_path: Path):
    count = script(
        tmp_path, "import wakeful; wakeful.seen = getattr(wakeful, 'seen', 0) + 1; print(wakeful.seen)"
    )

    said = [subprocess.check_output(prefork.command(count), timeout=60) for _ in range(2)]

    assert said == [b"1\n", b"1\n"]


def test_what_is_not_caught_is_told_as_ever(tmp_path: Path):
    done = subprocess.run(
        prefork.command(script(tmp_path, "raise ValueError('no')")),
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.endswith(b"ValueError: no\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_to_it_and_ends_both(number: signal.Signals, tmp_path: Path):
    program, pid = staying(tmp_path)

    program.send_signal(number)
    program.communicate(timeout=PATIENCE)

    assert program.returncode == -number
    assert not alive(pid)


async def test_it_does_not_outlive_the_one_in_its_stead(tmp_path: Path):
    program, pid = staying(tmp_path)

    program.kill()
    program.communicate(timeout=PATIENCE)

    await eventually(lambda: not alive(pid))


def test_when_it_is_killed_so_is_the_one_in_its_stead(tmp_path: Path):
    program, pid = staying(tmp_path)

    os.kill(pid, signal.SIGKILL)
    program.communicate(timeout=PATIENCE)

    assert program.returncode == -signal.SIGKILL


def test_on_a_path_python_runs_files_warm_and_all_else_as_it_is(tmp_path: Path):
    file = script(tmp_path, "import sys; print('wakeful.cli.main' in sys.modules)")
    environment = {**os.environ, "PATH": f"{prefork.programs()}{os.pathsep}{os.environ['PATH']}"}

    def said(*words: str) -> str:
        return subprocess.check_output(words, env=environment, text=True, timeout=60)

    assert said("python", file) == "True\n"
    assert said("python", "-c", Path(file).read_text()) == "False\n"
    assert said("wakeful", "--version").startswith("wakeful ")


def script(folder: Path, text: str) -> str:
    file = folder / "script.py"
    file.write_text(text)
    return str(file)


def staying(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    program = subprocess.Popen(
        prefork.command(script(folder, _STAYS)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout is not None
    return program, int(program.stdout.readline())
