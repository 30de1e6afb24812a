"""Web servers of other projects as processes, and requests to them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.support.waiting import PATIENCE

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """A running program, whose output is in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        return self.process.wait(PATIENCE)

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self.log.read_text()

    def children(self) -> list[int]:
        """Return the ids of its child processes."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in listed.split()]


def free_port() -> int:
    """Return a port that no program uses."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def environment(folder: Path, **given: str) -> dict[str, str]:
    """Return the variables of a program whose home is the folder, without settings of this machine."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "DJANGO_"))
    }
    return {**plain, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), **given}


@contextmanager
def program(folder: Path, *arguments: str, port: int, **variables: str) -> Iterator[Program]:
    """Start `python ARGUMENTS` in a folder, and wait until it accepts connections."""
    log = folder / f"{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment(folder, **variables),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    found = Program(process, log)
    try:
        wait_until(lambda: process.poll() is not None or accepts(port))
        assert process.poll() is None, found.output
        yield found
    finally:
        if process.poll() is None:
            found.stop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has left behind, if a test fails


def run_program(folder: Path, *arguments: str, **variables: str) -> str:
    """Run `python ARGUMENTS` in a folder, and return its output; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accepts(port: int) -> bool:
    """Return whether a program accepts connections at a port."""
    with socket.socket() as made:
        return made.connect_ex(("127.0.0.1", port)) == 0


def request(url: str, form: str | None = None) -> Any:
    """Return the JSON of a response; `form` is the body of a POST."""
    asked = urllib.request.Request(url, None if form is None else form.encode())
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return error.code


def wait_until(check: Callable[[], T]) -> T:
    """Call `check` until it returns a true value, and return that."""
    until = time.monotonic() + PATIENCE
    while not (found := check()):
        assert time.monotonic() < until, f"no result after {PATIENCE:g} s; the last value: {found!r}"
        time.sleep(0.05)
    return found
