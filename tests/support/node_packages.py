"""Packages of npm that some tests use: `make test-tools` installs them in `.venv/node`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def node_package(name: str) -> Path:
    """Return the folder `node_modules` that has a package, or skip the test."""
    folder = Path(os.environ.get("WAKEFUL_TEST_NODE_MODULES") or _ROOT / ".venv" / "node" / "node_modules")
    if not (folder / name / "package.json").is_file():
        pytest.skip(f"{name} is not installed; `make test-tools` installs it, if there is npm")
    return folder
