"""Protect the credentials of a server process from other processes of the same user.

Commands run as the server's user, so the kernel lets them read `/proc/<pid>/environ` and the memory of the
server. `protect_process` prevents both:

- Settings are removed from the environment of the process. `os.environ` does not change the block that the
  kernel shows as `/proc/<pid>/environ`, so the bytes of each variable are overwritten there too (Linux).
- The process is made non-dumpable (Linux): other processes of the user can no longer read its memory, attach
  a debugger or a profiler to it, or make it dump core. Programs that it starts are not affected.

Root (`CAP_SYS_PTRACE`) can still read memory: no process can hide from root.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wakeful.logs import get_logger
from wakeful.settings import PREFIX, SECRET_VARIABLES

#: Clients in this process read these after the start: they stay in `os.environ`.
_KEPT: Final = frozenset(
    PREFIX + name
    for name in ("URL", "KEY", "KEY_FILE", "WORKSPACE", "AGENT", "CLIENT_CERT", "CLIENT_KEY", "CA_BUNDLE")
)
_PR_SET_DUMPABLE: Final = 4

log = get_logger("wakeful.process")


def protect_process() -> dict[str, str]:
    """Remove settings from the environment and make the process non-dumpable. Read the settings first.

    Returns the variables that were removed.
    """
    names = [name for name in os.environ if name.startswith(PREFIX) or name in SECRET_VARIABLES]
    values = {name: os.environ.pop(name) for name in names}
    if sys.platform == "linux":
        # In this order: a non-dumpable process of an ordinary user cannot open its own environ file.
        _overwrite_initial_environment(names)
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            log.warning("process.dumpable", error=os.strerror(ctypes.get_errno()))
    os.environ.update({name: values[name] for name in names if name in _KEPT | SECRET_VARIABLES})
    return values


@contextmanager
def restored_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that `protect_process` removed, for code that reads them inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _overwrite_initial_environment(names: list[str]) -> None:
    """Write zeros over these variables in the block that the kernel shows as `/proc/self/environ`.

    They must be unset already: libc's own list of variables points into this block.
    """
    prefixes = tuple(os.fsencode(name) + b"=" for name in names)
    try:
        # Fields 50 and 51 of proc(5); the text after the name of the program starts with field 3.
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])
        block = Path("/proc/self/environ").read_bytes()
    except (OSError, ValueError, IndexError) as error:
        log.warning("process.environment_kept", error=str(error))
        return
    if not block or end - start != len(block) or ctypes.string_at(start, len(block)) != block:
        log.warning("process.environment_kept", error="no environment at the address in /proc/self/stat")
        return
    for entry in block.split(b"\0"):
        if entry.startswith(prefixes):
            ctypes.memset(start, 0, len(entry))
        start += len(entry) + 1
