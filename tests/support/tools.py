"""Optional programs that some tests use. `scripts/ci-tools` installs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def tool(name: str) -> str:
    """Return the path of a program, or skip the test if it is not installed."""
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    found = beside or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; scripts/ci-tools installs it")
    return found


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """Run a program that must succeed; return its output."""
    done = subprocess.run(
        command, cwd=cwd, env=environment or None, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
