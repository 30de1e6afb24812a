"""The command line and a server for tests.

A process takes a second to start. So `wakeful` calls the entry point in this process, and `process` is for
tests that depend on a separate one. The server always runs in a separate process.
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

_TIMEOUT_S = 120.0
#: The environment without the settings of the machine that runs the tests.
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "XDG_"))
}


def _command(*arguments: str, cold: bool = False) -> list[str]:
    return [sys.executable, "-m", "wakeful", *arguments] if cold else prefork.command("wakeful", *arguments)


@dataclass(frozen=True)
class Completed:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout parsed as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Machine:
    """A machine with its own home directory, and optionally a server."""

    home: Path
    url: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), "TZ": "UTC"}
        return {**_ENVIRONMENT, **own, **({"WAKEFUL_URL": self.url} if self.url else {})}

    def wakeful(self, *arguments: str, stdin: str = "", **environment: str) -> Completed:
        """Run a command in this process."""
        out, err = StringIO(), StringIO()
        with (
            patch.dict(os.environ, {**self.environment, **environment}, clear=True),
            patch.object(sys, "stdin", StringIO(stdin)),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(arguments)
        return Completed(code, out.getvalue(), err.getvalue())

    def process(self, *arguments: str, stdin: str = "", **environment: str) -> Completed:
        """Run a command in a separate process, a preforked one, and wait for its end."""
        return self._complete(_command(*arguments), stdin, environment)

    def cold_process(self, *arguments: str, stdin: str = "", **environment: str) -> Completed:
        """Run a command in a new interpreter and wait for its end."""
        return self._complete(_command(*arguments, cold=True), stdin, environment)

    def _complete(self, command: list[str], stdin: str, environment: dict[str, str]) -> Completed:
        done = subprocess.run(
            command,
            env={**self.environment, **environment},
            cwd=self.home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Completed(done.returncode, done.stdout, done.stderr)

    def on_a_terminal(
        self, *arguments: str, columns: int = 100, typed: str = "", **environment: str
    ) -> Completed:
        """Run a command on a terminal and wait for its end; `out` has all output.

        `typed` is what is typed on the terminal.
        """
        primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            _command(*arguments),
            env={**self.environment, "TERM": "xterm-256color", **environment},
            cwd=self.home,
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
        )
        os.close(secondary)
        os.write(primary, typed.encode())
        output = b""
        with open(primary, "rb", buffering=0) as screen, suppress(OSError):  # OSError: the process has ended
            while chunk := screen.read(65_536):
                output += chunk
        return Completed(process.wait(_TIMEOUT_S), output.decode(), "")

    def start(self, *arguments: str, cold: bool = False, **environment: str) -> subprocess.Popen[str]:
        """Start a command in a separate process: a preforked one, or with `cold` a new interpreter."""
        with (self.home / "log").open("w") as log:
            return subprocess.Popen(
                _command(*arguments, cold=cold),
                env={**self.environment, **environment},
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )


@contextmanager
def serving(home: Path, *options: str) -> Iterator[Machine]:
    """Run a server on SQLite and yield its machine; stop the server at the end."""
    process = Machine(home).start(
        "serve", "--dev", "--port", "0", "--db", str(home / "a.db"), "--json", *options
    )
    try:
        yield Machine(home, first_json(process)["url"])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(_TIMEOUT_S) == 0, (home / "log").read_text()


def first_json(process: subprocess.Popen[str]) -> Any:
    """Return the first JSON object that a process prints."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            return json.loads("".join(lines))
    raise AssertionError(f"the process exited with {process.wait()} after printing {lines}")


@contextmanager
def webhook_receiver() -> Iterator[str]:
    """Run a webhook receiver that responds 500 to `/500`, and 200 to all else."""

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
