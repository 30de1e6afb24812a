"""The layout in CONTRIBUTING.md is that of the source tree, in the order of the layers."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Container
from graphlib import TopologicalSorter
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


def test_no_module_imports_one_that_imports_it():
    """Imports for types, and those inside functions, count too."""
    files = {_name(each): each for each in SOURCE.rglob("*.py")}
    graph = {name: _imports(file, files) - {name} for name, file in files.items()}
    graph["wakeful.model.codec"].discard("wakeful.model")  # finds the class of a resource by its name
    TopologicalSorter(graph).prepare()  # or CycleError, with the circle


def _name(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(file: Path, modules: Container[str]) -> set[str]:
    """Return those of these modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = (f"{node.module}.{each.name}" for each in node.names)
            found |= {name if name in modules else node.module for name in names}
    return {each for each in found if each in modules}
