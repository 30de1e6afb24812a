"""Run the examples of a page as a user does: in one shell, with programs in other terminals.

The shell has a new home directory, a directory with the repository's `examples`, `deploy` and `.venv`, and no
variables of Wakeful. The page itself defines what it uses. Until a block of the page starts a server, the
plain server `wakeful serve --dev` runs in another terminal.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from tests.support import prefork
from tests.support.doc_pages import POSTGRES_PORT, RECEIVER_PORT, SERVER_PORT, Block
from tests.support.paths import ROOT
from tests.support.postgres_cluster import Cluster
from tests.support.tools import tool

_TIMEOUT_S = 120.0
_SERVER = "wakeful serve --dev"
#: What a page can use from the repository, besides what it makes itself.
_SHARED = ("examples", "deploy")
_DOCTEST = """
import doctest, sys
options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
sys.exit(doctest.testfile({file!r}, module_relative=False, optionflags=options)[0])
"""


class PageShell:
    """The shell and the other terminals of one page. Use it as a context manager."""

    def __init__(self, folder: Path, *, cold: bool = False, postgres: bool = False) -> None:
        """With `cold`, the programs are the installed ones, without preforking.

        With `postgres`, a PostgreSQL server listens on its usual port, and `psql` is on the PATH.
        """
        self._network = prefork.network()
        self.directory, self._scripts, home = folder / "page", folder / "scripts", folder / "home"
        for each in (self.directory, self._scripts, home):
            each.mkdir()
        for name in _SHARED:
            if (ROOT / name).exists():
                shutil.copytree(ROOT / name, self.directory / name)
        (self.directory / ".venv").symlink_to(sys.prefix)
        self._postgres = Cluster() if postgres else None
        path: list[object] = [] if cold else [self._network.programs]
        path += [
            Path(sys.executable).parent,
            os.environ["PATH"],
            *([self._postgres.bin] if self._postgres else []),
        ]
        self._environment = {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join(map(str, path)),
            "TMPDIR": tempfile.gettempdir(),
            "TZ": "UTC",
            "USER": "me",
        }
        self._count = 0
        self._terminals: list[Terminal] = []
        self._listening: dict[int, Terminal] = {}
        self._shell = self._open("bash", "--norc", "-eu", "-o", "pipefail", stdin=subprocess.PIPE)
        if self._postgres is not None:
            self._forward(POSTGRES_PORT, self._postgres)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        failed = [each for each in self._terminals if each.failed]
        for terminal in (Terminal(self._shell), *reversed(self._terminals)):
            terminal.kill()
        if self._postgres is not None:
            self._postgres.remove()
        if kind is None:
            assert not failed, "\n".join(
                f"{each.name} ended with an error:\n{each.output}" for each in failed
            )

    def run(self, block: Block) -> tuple[bool, str]:
        """Run a block in the shell; returns whether it succeeded, and its output."""
        self._start_server_once()
        script, output = self._script(block), self._scripts / f"{self._count}.out"
        streams = f"</dev/null >'{output}' 2>&1"
        line = f"source '{script}' {streams}; echo 0\n"
        if block.mark == "fails":
            line = f"set +e; (set -e; source '{script}') {streams}; echo $?; set -e\n"
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(line)
        self._shell.stdin.flush()
        ready, _, _ = select.select([self._shell.stdout], [], [], _TIMEOUT_S)
        assert ready, f"{block.place} does not end:\n{output.read_text()}"
        code = self._shell.stdout.readline()  # empty: the block has ended the shell
        return code == "0\n", output.read_text() if output.exists() else ""

    def start(self, block: Block) -> Terminal:
        """Run a block in another terminal, and wait until it listens. It replaces one on the same port."""
        if block.port != SERVER_PORT:
            self._start_server_once()
        return self._start(block.place, self._script(block), block.port)

    def _start_server_once(self) -> None:
        """Start the plain server, unless the page has started one."""
        if SERVER_PORT not in self._listening:
            script = self._scripts / "server.bash"
            script.write_text(_SERVER)
            self._start(_SERVER, script, SERVER_PORT)

    def _start(self, name: str, script: Path, port: int | None) -> Terminal:
        if port in self._listening:
            self._listening[port].interrupt()
        # On a terminal, Python prints each line at once.
        terminal = Terminal(self._open("bash", "--norc", "-eu", str(script), PYTHONUNBUFFERED="1"), name)
        self._terminals.append(terminal)
        if port is not None:
            self._listening[port] = terminal
            self._wait_for(port, terminal)
        return terminal

    def _forward(self, port: int, cluster: Cluster) -> None:
        """Make a server outside of this network reachable on a port."""
        script = self._scripts / "postgres.bash"
        program = Path(__file__).with_name("forward_port.py")
        script.write_text(f"exec python '{program}' {port} '{cluster.folder}/.s.PGSQL.{cluster.port}'\n")
        self._start("PostgreSQL", script, port)

    def _wait_for(self, port: int, terminal: Terminal) -> None:
        """Wait until a program in this network listens on the port."""
        connect = f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.05; done"
        waiting = self._open("bash", "--norc", "-c", connect)
        until = time.monotonic() + _TIMEOUT_S
        try:
            while waiting.poll() is None:
                assert not terminal.ended, f"{terminal.name} has ended:\n{terminal.output}"
                assert time.monotonic() < until, f"{terminal.name} does not listen:\n{terminal.output}"
                with suppress(subprocess.TimeoutExpired):
                    waiting.wait(0.1)
        finally:
            Terminal(waiting).kill()

    def _script(self, block: Block) -> Path:
        """Write the block to a file; returns the script that runs it."""
        self._count += 1
        script = self._scripts / f"{self._count}.bash"
        if block.language == "bash":
            script.write_text(block.text)
        elif block.language == "javascript":
            tool("node")
            (self.directory / f"example_{self._count}.mjs").write_text(block.text)
            script.write_text(f"node example_{self._count}.mjs\n")
        else:
            program = self.directory / f"example_{self._count}.py"
            script.write_text(f"python {program.name}\n")
            if ">>>" in block.text:
                session = program.with_suffix(".txt")
                session.write_text(block.text)
                program.write_text(_DOCTEST.format(file=str(session)))
            else:
                program.write_text(block.text)
        return script

    def _open(
        self, *command: str, stdin: int = subprocess.DEVNULL, **environment: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._network.enter, *command],
            cwd=self.directory,
            env={**self._environment, **environment},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


class Terminal:
    """A program in another terminal. Its output is read until all its processes have ended."""

    def __init__(self, process: subprocess.Popen[str], name: str = "") -> None:
        self.name, self._process, self._lines = name, process, list[str]()
        self._changed, self._closed = threading.Condition(), False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """What the program has printed so far."""
        return "".join(self._lines)

    @property
    def ended(self) -> bool:
        """Whether the program has ended."""
        return self._process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error, except by a signal of this class."""
        if self._closed:  # it is about to end
            self._process.wait(_TIMEOUT_S)
        return self._process.poll() not in (None, 0) and self.name != ""

    def wait_for_output(self, pattern: re.Pattern[str]) -> bool:
        """Wait until the output matches; False if it does not in time, or the program has ended before."""

        def matches() -> bool:
            return pattern.search(" ".join(self.output.split())) is not None

        with self._changed:
            self._changed.wait_for(lambda: self._closed or matches(), _TIMEOUT_S)
            return matches()

    def interrupt(self) -> None:
        """Stop the program as Ctrl-C does, and wait until all its processes have ended."""
        self.name = ""
        self._signal(signal.SIGINT)
        self._reader.join(_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill all processes of the program."""
        self._signal(signal.SIGKILL)
        self._process.wait(_TIMEOUT_S)
        self._reader.join(_TIMEOUT_S)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()


@contextmanager
def exclusive_ports() -> Iterator[None]:
    """Reserve the ports of the documentation, if programs use this machine's network."""
    if prefork.network().isolated:
        yield
        return
    with open(Path(tempfile.gettempdir()) / "wakeful-documentation.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if taken := _taken_ports((SERVER_PORT, RECEIVER_PORT, POSTGRES_PORT)):
            pytest.skip(f"another program listens on port {taken[0]}, and `unshare --net` is not permitted")
        yield


def _taken_ports(ports: Sequence[int]) -> list[int]:
    taken = []
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(port)
    return taken
