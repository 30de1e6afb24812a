"""Programs that need not begin with nothing: processes of their own, forked from one that has imported all.

A `wakeful` spends its first half second on imports, a server three times that, and a page of the
documentation starts dozens. A warm program is the same entry point in a process of its own, with arguments, a
directory, an environment and streams of its own, and with the imports behind it. How a program comes by its
imports is seen where it is started cold: by `Machine.process`, on a terminal, and in the README's examples.

The programs are forked in the nursery (`nursery.py`). In a program's stead the test has a small one, to which
it talks as to any other (`stand_in.py`).
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
    """How to start `wakeful`, or a Python file, warm."""
    return [*_stand_in(), program, *arguments]


@cache
def programs() -> Path:
    """A folder for a PATH, in which `wakeful` and `python FILE` are warm."""
    folder, stand_in = _nursery().parent / "bin", shlex.join(_stand_in())
    folder.mkdir()
    cold = f'case "${{1--}}" in -*) exec {shlex.quote(sys.executable)} "$@";; esac'
    for name, script in (("wakeful", f"exec {stand_in} wakeful"), ("python", f"{cold}\nexec {stand_in}")):
        file = folder / name
        file.write_text(f'#!/bin/sh\n{script} "$@"\n')
        file.chmod(0o755)
    return folder


def _stand_in() -> list[str]:
    return [sys.executable, "-IS", str(_HERE / "stand_in.py"), str(_nursery())]


@cache
def _nursery() -> Path:
    """The socket of this process's nursery, which is opened when it is first asked for."""
    place = Path(tempfile.mkdtemp(prefix="wakeful-warm-")) / "nursery"
    nursery = subprocess.Popen(
        [sys.executable, str(_HERE / "nursery.py"), str(place)],
        env={name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "XDG_"))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    with nursery.stdout as said:
        assert said.readline() == b"open\n", "the nursery did not open"
    atexit.register(nursery.wait)
    atexit.register(nursery.stdin.close)  # which is done first
    return place
