"""Compile the tests in as many processes as there are cores, if that has not been done.

    python -m scripts.precompile_tests

Each process of a test run collects all tests, and pytest compiles a test when it is first collected. In a
fresh clone all of them would compile the same files at the same time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: So many new files are compiled while they are collected.
_FEW: Final = 100


def main() -> None:
    """Collect the tests without running them, each process a part."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    new = [
        each for each in tests if not any((each.parent / "__pycache__").glob(f"{each.stem}.*-pytest-*.pyc"))
    ]
    if len(new) <= _FEW:
        return
    cores = os.cpu_count() or 1
    commands = [
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *map(str, part)]
        for part in (new[number::cores] for number in range(cores))
        if part
    ]
    running = [subprocess.Popen(each, cwd=ROOT, stdout=subprocess.DEVNULL) for each in commands]
    for process in running:
        process.wait()  # an error is shown again by the test run


if __name__ == "__main__":
    main()
