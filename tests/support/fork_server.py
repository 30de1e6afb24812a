"""A process that has imported everything, and is forked for each test program.

    python fork_server.py SOCKET [--loopback] [MODULE…]

It prints `open` when it accepts requests, and exits when its standard input closes. With `--loopback` it
enables the loopback interface of a new network namespace. It imports the given modules, or else all of
`wakeful`.
"""

from __future__ import annotations

import ast
import atexit
import fcntl
import gc
import importlib
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

#: The modules to import before the first fork.
_WARM = (
    *("wakeful.cli.main", "wakeful.app.assembly", "wakeful.client", "wakeful.server.serve"),
    *(
        "wakeful.server.http_app",
        "wakeful.api.mcp.http",
        "wakeful.api.mcp.stdio",
        "wakeful.cli.serving",
        "wakeful.cli.manifest",
    ),
    *("wakeful.store.sqlite", "aiohttp", "aiohttp.web", "uvicorn.protocols.http.httptools_impl"),
)
_MUCH = 1 << 20


def serve(place: Path, modules: Sequence[str]) -> None:
    """Fork a program for each request, and report its exit code."""
    for name in modules or _WARM:
        importlib.import_module(name)
    if not modules:
        for command in importlib.import_module("wakeful.cli.commands").MODULES:
            importlib.import_module(f"wakeful.cli.commands.{command}")
    sys.path.remove(str(Path(__file__).parent))
    assert threading.active_count() == 1, "a process that is forked has one thread"
    gc.collect()
    gc.freeze()

    ended, telling = os.pipe()
    os.set_blocking(telling, False)
    signal.set_wakeup_fd(telling)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, socket.socket] = {}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen(64)
    os.write(1, b"open\n")
    while True:
        fork_clients = {asking.fileno(): child for child, asking in children.items()}
        ready, _, _ = select.select([listener.fileno(), ended, 0, *fork_clients], [], [])
        for gone in fork_clients.keys() & ready:
            os.kill(fork_clients[gone], signal.SIGKILL)  # the client was killed too
        if ended in ready:
            os.read(ended, 512)
        _report_exits(children)
        if listener.fileno() in ready:
            asking, _ = listener.accept()
            asked, streams = _receive(asking)
            child = os.fork() if asked else None
            if child == 0:
                os.close(ended)
                os.close(telling)
                for other in (listener, asking, *children.values()):
                    other.close()
                _become(ast.literal_eval(asked.decode()), streams)
            for stream in streams:
                os.close(stream)
            if child is None:
                asking.close()
            else:
                children[child] = asking
                _send(asking, child)
        if 0 in ready:
            shutil.rmtree(place.parent, ignore_errors=True)
            os.killpg(0, signal.SIGKILL)  # with the processes that tests left behind


def _receive(asking: socket.socket) -> tuple[bytes, list[int]]:
    """Return the request and its streams; empty if the client is gone."""
    asked, streams, _, _ = socket.recv_fds(asking, _MUCH, 3)
    while not asked.endswith(b"\n"):
        more = asking.recv(_MUCH)
        if not more:
            return b"", streams
        asked += more
    return asked, streams


def _send(asking: socket.socket, number: int) -> None:
    with suppress(OSError):  # the client may be gone
        asking.sendall(b"%d\n" % number)


def _report_exits(children: dict[int, socket.socket]) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with children.pop(child) as asking:
            _send(asking, os.waitstatus_to_exitcode(status))


def _become(wanted: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run the requested program as if it had just been started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    buffering = 1 if wanted["environment"].get("PYTHONUNBUFFERED") else -1
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", buffering, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    time.tzset()

    try:
        _run(wanted["arguments"])
    except SystemExit as end:
        if isinstance(end.code, int | None):
            _end(end.code or 0)
        raise
    _end(0)


def _run(arguments: list[str]) -> None:
    program, *_ = sys.argv = arguments
    if program == "wakeful":
        from wakeful.cli import main

        sys.exit(main())
    sys.path.insert(0, str(Path(program).absolute().parent))
    runpy.run_path(program, run_name="__main__")


def _end(code: int) -> NoReturn:
    """End the process as the interpreter does, but do not free the modules: that takes too long."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # the interpreter reports it
    os._exit(code)


def _enable_loopback() -> None:
    """Set the flag IFF_UP of the interface `lo`: it is off in a new network namespace."""
    siocsifflags, iff_up = 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, siocsifflags, struct.pack("16sh14x", b"lo", iff_up))


if __name__ == "__main__":
    if "--loopback" in sys.argv:
        _enable_loopback()
    serve(Path(sys.argv[1]), [each for each in sys.argv[2:] if not each.startswith("--")])
