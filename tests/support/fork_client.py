"""A small program in the stead of a warm one: it lends its streams, passes signals on, and ends as that does.

    python -IS fork_client.py SOCKET wakeful|FILE ARGUMENT…

It is as quick as Python can be: it imports little, and nothing that is not Python's own.
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
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until it is known whom they are for
    with socket.socket(socket.AF_UNIX) as fork_server:
        fork_server.connect(place)
        wanted = {"directory": os.getcwd(), "environment": dict(os.environ), "arguments": arguments}
        asked = json.dumps(wanted).encode() + b"\n"
        sent = socket.send_fds(fork_server, [asked], [0, 1, 2])
        if sent < len(asked):  # else it may be over by now
            fork_server.sendall(asked[sent:])
        answers = fork_server.makefile("rb")
        child = int(answers.readline())
        for number in _PASSED_ON:
            signal.signal(number, lambda number, _: _pass_on(number, child))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        code = int(answers.readline())
    if code < 0:
        with suppress(OSError):  # some cannot be handled anyway
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _pass_on(number: int, child: int) -> None:
    with suppress(ProcessLookupError):  # it may just have ended by itself
        os.kill(child, number)


if __name__ == "__main__":
    sys.exit(fork_client(*sys.argv[1:]))
