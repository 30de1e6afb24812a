"""Start test programs as forks of a process that has already imported everything.

The imports of `wakeful` take half a second, those of a server three times that, and one page of the
documentation starts dozens of programs. A forked program has its own arguments, directory, environment and
streams. Tests of the import itself start the program directly: `Machine.process`, on a terminal, and in the
README's examples.

`fork_server.py` forks the programs; `fork_client.py` is the small process that the test starts instead.
"""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


def command(program: str, *arguments: str) -> list[str]:
    """Return the command that starts `wakeful`, or a Python file, preforked."""
    return [*_fork_client(), program, *arguments]


@cache
def programs() -> Path:
    """Return a directory for PATH in which `wakeful` and `python FILE` are preforked."""
    folder, fork_client = _fork_server().parent / "bin", shlex.join(_fork_client())
    folder.mkdir()
    cold = f'case "${{1--}}" in -*) exec {shlex.quote(sys.executable)} "$@";; esac'
    for name, script in (
        ("wakeful", f"exec {fork_client} wakeful"),
        ("python", f"{cold}\nexec {fork_client}"),
    ):
        file = folder / name
        file.write_text(f'#!/bin/sh\n{script} "$@"\n')
        file.chmod(0o755)
    return folder


def _fork_client() -> list[str]:
    return [sys.executable, "-IS", str(_HERE / "fork_client.py"), str(_fork_server())]


@cache
def _fork_server() -> Path:
    """Return the socket of this process's fork server; start it on first use."""
    place = Path(tempfile.mkdtemp(prefix="wakeful-warm-")) / "fork_server"
    fork_server = subprocess.Popen(
        [sys.executable, str(_HERE / "fork_server.py"), str(place)],
        env={name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "XDG_"))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert fork_server.stdin is not None
    assert fork_server.stdout is not None
    with fork_server.stdout as said:
        assert said.readline() == b"open\n", "the fork_server did not open"
    atexit.register(fork_server.wait)
    atexit.register(fork_server.stdin.close)  # runs first
    return place
