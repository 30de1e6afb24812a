"""The process that a test starts instead of a program that the fork server runs.

    python -IS fork_client.py SOCKET wakeful|FILE ARGUMENT…

It passes its streams and signals to the forked program and exits with its exit code. It imports only modules
that are part of the interpreter: `socket`, `signal`, `json` and `contextlib` take longer than the rest.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import os
import sys

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STREAMS = b"".join(stream.to_bytes(4, sys.byteorder) for stream in range(3))


def fork_client(place: str, *arguments: str) -> int:
    """Run a program in the fork server and return its exit code. A signal that ends it ends this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until the child's pid is known
    fork_server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fork_server.connect(place)
    wanted = {"directory": os.getcwd(), "environment": dict(os.environ), "arguments": [*arguments]}
    asked = ascii(wanted).encode() + b"\n"
    sent = fork_server.sendmsg([asked], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _STREAMS)])
    if sent < len(asked):  # else the request may have arrived completely
        fork_server.sendall(asked[sent:])
    child = _receive(fork_server)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: _pass_on(number, child))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    code = _receive(fork_server)
    if code < 0:
        try:  # noqa: SIM105
            signal.signal(-code, signal.SIG_DFL)
        except OSError:  # some signals cannot be handled
            pass
        os.kill(os.getpid(), -code)
    return code


def _receive(fork_server: socket.socket) -> int:
    """Return the next number, which ends with its line."""
    line = b""
    while not line.endswith(b"\n"):
        byte = fork_server.recv(1)
        if not byte:
            raise EOFError("the fork server has ended")
        line += byte
    return int(line)


def _pass_on(number: int, child: int) -> None:
    try:  # noqa: SIM105
        os.kill(child, number)
    except ProcessLookupError:  # it may have exited already
        pass


if __name__ == "__main__":
    os._exit(fork_client(*sys.argv[1:]))
