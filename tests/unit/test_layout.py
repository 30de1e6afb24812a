"""The layout in CONTRIBUTING.md is that of the source tree, in the order of the layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wakeful"


def _documented_layers() -> list[set[str]]:
    """Return the packages on each line of the layout."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    layout = text.partition("## Source layout")[2].partition("```\n")[2].partition("```")[0]
    return [set(re.split(r" {3,}", line)[0].split()) for line in layout.splitlines()]


def _checked_layers() -> list[set[str]]:
    """Return the packages on each line of the contract that `make lint` checks."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["id"] == "layers"]
    return [set(re.split(r" [|:] ", line)) for line in layers]


def test_the_documented_layers_are_those_that_are_checked():
    packages = {each.name for each in SOURCE.iterdir() if (each / "__init__.py").exists()}
    assert _documented_layers() == [line for line in _checked_layers() if line & packages]
    assert set().union(*_documented_layers()) == packages


def test_modules_stand_in_packages():
    own = {"__init__.py", "__main__.py", "errors.py"}
    assert {each.name for each in SOURCE.glob("*.py")} == own


def test_every_package_says_what_belongs_in_it():
    for each in SOURCE.rglob("__init__.py"):
        assert each.read_text().startswith('"""'), each
