"""The benchmarks run: their floors use statements of the store, and the documentation shows their figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: Each with as little work as it takes.
SMALL = (
    "storm --jobs 100 --rounds 1",
    "register --jobs 500",
    "requests --store postgres --requests 50 --writers 2",
    "queue --jobs 20 --slots 10",
)


@pytest.mark.parametrize("arguments", SMALL)
def test_a_benchmark_prints_its_figures(arguments: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{arguments.split()[0]}", *arguments.split()[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(character.isdigit() for character in done.stdout)
