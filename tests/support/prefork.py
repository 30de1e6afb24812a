"""Start test programs as forks of a process that has already imported everything.

The imports of `wakeful` take half a second, those of a server three times that, and one page of the
documentation starts dozens of programs. A forked program has its own arguments, directory, environment and
streams. Tests of the start itself use a new interpreter: those with `cold`, and the README's examples.

`fork_server.py` forks the programs; `fork_client.py` is the small process that the test starts instead.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


def command(program: str, *arguments: str) -> list[str]:
    """Return the command that starts `wakeful`, or a Python file, preforked."""
    return [*_fork_client(_fork_server()), program, *arguments]


def command_with(modules: tuple[str, ...], file: Path, *arguments: str) -> list[str]:
    """Return the command that starts a Python file in a process that has imported these modules."""
    return [*_fork_client(_fork_server(*modules)), str(file), *arguments]


@dataclass(frozen=True)
class Network:
    """A network of its own for programs, if this machine permits it; else this machine's network.

    In its own network, a program can listen on any port and reaches only programs of the same network.
    """

    #: a directory for PATH in which `wakeful` and `python FILE` are preforked, in this network
    programs: Path
    #: the command that starts another command in this network
    enter: tuple[str, ...]

    @property
    def isolated(self) -> bool:
        """Whether it is separate from this machine's network."""
        return bool(self.enter)


@cache
def network() -> Network:
    """Return this process's network; create it on first use."""
    unshare = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    possible = shutil.which("unshare") and shutil.which("nsenter")
    if not possible or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        return Network(_programs(_fork_server()), ())
    place, pid = _start(*unshare, network=True)
    user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
    return Network(_programs(place), ("nsenter", f"--target={pid}", *user, "--net"))


def _programs(place: Path) -> Path:
    folder, fork_client = place.parent / "bin", shlex.join(_fork_client(place))
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


def _fork_client(place: Path) -> list[str]:
    return [sys.executable, "-IS", str(_HERE / "fork_client.py"), str(place)]


@cache
def _fork_server(*modules: str) -> Path:
    """Return the socket of this process's fork server with these modules; start it on first use."""
    return _start(modules=modules)[0]


def _start(*prefix: str, network: bool = False, modules: tuple[str, ...] = ()) -> tuple[Path, int]:
    """Start a fork server; returns its socket and process id."""
    place = Path(tempfile.mkdtemp(prefix="wakeful-warm-")) / "fork_server"
    fork_server = subprocess.Popen(
        [
            *prefix,
            sys.executable,
            str(_HERE / "fork_server.py"),
            str(place),
            *(["--loopback"] if network else []),
            *modules,
        ],
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
    return place, fork_server.pid
