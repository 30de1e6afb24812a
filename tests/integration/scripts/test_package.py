"""The sdist and the wheel have all files. `make package` installs the wheel and tries it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

#: Tracked files that are for the repository only.
_REPOSITORY = {".editorconfig", ".gitignore"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both into a directory."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder


def test_the_wheel_has_every_file_of_the_package(dist: Path):
    (file,) = dist.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(file).namelist() if name.startswith("wakeful/")}

    source = ROOT / "src"
    present = {str(path.relative_to(source)) for path in (source / "wakeful").rglob("*") if path.is_file()}
    assert packed == {name for name in present if not name.endswith(".pyc")}
    assert "wakeful/store/migrations/sqlite/0001_begin.sql" in packed


def test_the_sdist_has_every_tracked_file(dist: Path):
    (file,) = dist.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}

    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git repository")
    assert {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()} - packed <= _REPOSITORY


@pytest.mark.slow
def test_an_installation_without_extras_stays_small(dist: Path, tmp_path: Path):
    (wheel,) = dist.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(tmp_path)]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True, timeout=600)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size < 60 * 2**20, f"{size / 2**20:.1f} MiB"
