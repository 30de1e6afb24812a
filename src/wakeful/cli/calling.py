"""How `wakeful` is called here, for commands that are printed to be copied."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def how_to_call() -> str:
    """What to type for `wakeful` here: the command if a shell finds it, else the one beside this Python."""
    if shutil.which("wakeful"):
        return "wakeful"
    beside = Path(sys.executable).with_name("wakeful")
    if beside.exists():
        return shlex.quote(os.path.relpath(beside) if _near(beside) else str(beside))
    return f"{shlex.quote(sys.executable)} -m wakeful"


def _near(path: Path) -> bool:
    return path.is_relative_to(Path.cwd())
