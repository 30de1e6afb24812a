"""Source trees of other versions of Wakeful, for tests of upgrades."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from wakeful.store.migrations import load

_MIGRATIONS = "src/wakeful/store/migrations"


def previous_version(folder: Path) -> Path:
    """Return the source of the last commit before the newest migration; skip the test without its history."""
    newest = load("postgres")[-1]
    file = f"{_MIGRATIONS}/postgres/{newest.number:04}_{newest.name}.sql"
    try:
        top = _git("rev-parse", "--show-toplevel").decode().strip()
        added = _git("log", "--diff-filter=A", "--format=%H", "-1", "--", file).decode().strip()
        archive = _git("archive", f"{added}^" if added else "HEAD", "src/wakeful")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the history of the repository is not available")
    if Path(top).resolve() != ROOT.resolve():
        pytest.skip("this directory is not a repository")
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def next_version(folder: Path, sql: str) -> Path:
    """Return a copy of this version with one more migration."""
    shutil.copytree(ROOT / "src", folder / "src")
    number = load("postgres")[-1].number + 1
    for database in ("postgres", "sqlite"):
        (folder / _MIGRATIONS / database / f"{number:04}_next.sql").write_text(sql)
    return folder / "src"


def _git(*arguments: str) -> bytes:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
