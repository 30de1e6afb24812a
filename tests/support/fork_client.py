"""The process that a test starts instead of a program that the fork server runs.

    python -IS fork_client.py SOCKET wakeful|FILE ARGUMENT…

It passes its streams and signals to the forked program and exits with its exit code. To start fast, it
imports only a few modules of the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def fork_client(place: str, *arguments: str) -> int:
    """Run a program in the fork server and return its exit code. A signal that ends it ends this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until the child's pid is known
    with socket.socket(socket.AF_UNIX) as fork_server:
        fork_server.connect(place)
        wanted = {"directory": os.getcwd(), "environment": dict(os.environ), "arguments": arguments}
        asked = json.dumps(wanted).encode() + b"\n"
        sent = socket.send_fds(fork_server, [asked], [0, 1, 2])
        if sent < len(asked):  # else the request may have arrived completely
            fork_server.sendall(asked[sent:])
        answers = fork_server.makefile("rb")
        child = int(answers.readline())
        for number in _PASSED_ON:
            signal.signal(number, lambda number, _: _pass_on(number, child))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        code = int(answers.readline())
    if code < 0:
        with suppress(OSError):  # some signals cannot be handled
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _pass_on(number: int, child: int) -> None:
    with suppress(ProcessLookupError):  # it may have exited already
        os.kill(child, number)


if __name__ == "__main__":
    sys.exit(fork_client(*sys.argv[1:]))
