"""A preforked program behaves like one started as a new process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
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


def test_a_program_has_its_own_arguments_directory_environment_streams_and_exit_code(tmp_path: Path):
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


def test_a_program_does_not_see_the_state_of_an_earlier_one(tmp_path: Path):
    count = script(
        tmp_path, "import wakeful; wakeful.seen = getattr(wakeful, 'seen', 0) + 1; print(wakeful.seen)"
    )

    said = [subprocess.check_output(prefork.command(count), timeout=60) for _ in range(2)]

    assert said == [b"1\n", b"1\n"]


def test_an_uncaught_exception_is_printed(tmp_path: Path):
    done = subprocess.run(
        prefork.command(script(tmp_path, "raise ValueError('no')")),
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.endswith(b"ValueError: no\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_forwarded_and_ends_client_and_program(number: signal.Signals, tmp_path: Path):
    program, pid = staying(tmp_path)

    program.send_signal(number)
    program.communicate(timeout=PATIENCE)

    assert program.returncode == -number
    assert not alive(pid)


async def test_a_program_does_not_outlive_its_client(tmp_path: Path):
    program, pid = staying(tmp_path)

    program.kill()
    program.communicate(timeout=PATIENCE)

    await eventually(lambda: not alive(pid))


def test_the_client_ends_with_the_signal_that_killed_its_program(tmp_path: Path):
    program, pid = staying(tmp_path)

    os.kill(pid, signal.SIGKILL)
    program.communicate(timeout=PATIENCE)

    assert program.returncode == -signal.SIGKILL


def test_python_on_the_path_preforks_scripts_and_runs_the_rest_normally(tmp_path: Path):
    file = script(tmp_path, "import sys; print('wakeful.cli.main' in sys.modules)")
    environment = {**os.environ, "PATH": f"{prefork.network().programs}{os.pathsep}{os.environ['PATH']}"}

    def said(*words: str) -> str:
        return subprocess.check_output(words, env=environment, text=True, timeout=60)

    assert said("python", file) == "True\n"
    assert said("python", "-c", Path(file).read_text()) == "False\n"
    assert said("wakeful", "--version").startswith("wakeful ")


def test_a_network_is_separate_from_that_of_this_machine(tmp_path: Path):
    network = prefork.network()
    if not network.isolated:
        pytest.skip("`unshare --net` is not permitted")
    connect = "import socket, sys; sys.exit(socket.socket().connect_ex(('127.0.0.1', int(sys.argv[1]))))"
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    )
    serve += "s.accept()"
    with subprocess.Popen(
        [network.programs / "python", script(tmp_path, serve)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        outside = subprocess.run([sys.executable, "-c", connect, port], timeout=PATIENCE, check=False)
        inside = subprocess.run(
            [*network.enter, sys.executable, "-c", connect, port], timeout=PATIENCE, check=False
        )
        assert server.wait(PATIENCE) == 0
    assert outside.returncode == errno.ECONNREFUSED
    assert inside.returncode == 0


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
