"""The command line and its server, each in a process of its own, as people have them.

A process takes a second to begin, so that only what depends on being one is asked of one (`process`); the
rest calls the same entry point here (`wakeful`). The server is always a process of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support import prefork
from wakeful.cli import main

_LONG = 120.0
#: Whatever is set where the tests run is none of their business.
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "XDG_"))
}


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it said to a machine: JSON, and nothing else."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Machine:
    """A machine with a home of its own, and perhaps a server."""

    home: Path
    url: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        here = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), "TZ": "UTC"}
        return {**_ENVIRONMENT, **here, **({"WAKEFUL_URL": self.url} if self.url else {})}

    def wakeful(self, *arguments: str, stdin: str = "", **environment: str) -> Said:
        """Call a command, without a process of its own."""
        out, err = StringIO(), StringIO()
        with (
            patch.dict(os.environ, {**self.environment, **environment}, clear=True),
            patch.object(sys, "stdin", StringIO(stdin)),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(arguments)
        return Said(code, out.getvalue(), err.getvalue())

    def process(self, *arguments: str, stdin: str = "", **environment: str) -> Said:
        """Run a command to its end, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "wakeful", *arguments],
            env={**self.environment, **environment},
            cwd=self.home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_LONG,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def on_a_terminal(self, *arguments: str) -> Said:
        """Run a command to its end on a terminal of 100 columns; all that it says is in `out`."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "wakeful", *arguments],
            env={**self.environment, "TERM": "xterm-256color"},
            cwd=self.home,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        said = b""
        with open(ours, "rb", buffering=0) as screen, suppress(OSError):  # which is how its end is told
            while chunk := screen.read(65_536):
                said += chunk
        return Said(process.wait(_LONG), said.decode(), "")

    def start(self, *arguments: str, cold: bool = False) -> subprocess.Popen[str]:
        """Run a command that stays, in a process of its own; a warm one, unless it is to be cold."""
        python = [sys.executable, "-m", "wakeful", *arguments]
        with (self.home / "log").open("w") as log:
            return subprocess.Popen(
                python if cold else prefork.command("wakeful", *arguments),
                env=self.environment,
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )


@contextmanager
def serving(home: Path, *options: str) -> Iterator[Machine]:
    """A machine with a server on SQLite; at the end it is asked to stop, and has."""
    process = Machine(home).start(
        "serve", "--dev", "--port", "0", "--db", str(home / "a.db"), "--json", *options
    )
    try:
        yield Machine(home, first_json(process)["url"])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(_LONG) == 0, (home / "log").read_text()


def first_json(process: subprocess.Popen[str]) -> Any:
    """The first JSON that a process says."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            return json.loads("".join(lines))
    raise AssertionError(f"it ended with {process.wait()} and said only {lines}")


@contextmanager
def answering() -> Iterator[str]:
    """A receiver of webhooks: `/500` is answered 500, and all else 200."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(500 if self.path == "/500" else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
