"""Every install line names a source: the name `wakeful` is on no package index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.paths import ROOT
from wakeful.values.package import install_command

#: `pip install wakeful`, `uvx wakeful`, `pipx run 'wakeful[all]'` …, unless ` @ source` follows.
_LINE = re.compile(
    r"(?:\bpip3?|\bpipx|\buv)\s+(?:pip\s+|tool\s+)?(?:install|run|add)\b[^\n`]*?(?<![\w./@-])"
    r"wakeful(?![\w./-])(?!\[?[\w,]*\]? @ )"
    r"|\buvx\s+(?:--?[\w=-]+\s+)*wakeful\b"
)
#: It writes the line that `install_command` returns.
_WRITER = ROOT / "src/wakeful/values/package.py"


def texts() -> Iterator[Path]:
    """Yield all that users read: pages, examples, and the source with its messages."""
    yield from ROOT.glob("*.md")
    for folder in ("docs", "examples", "deploy", "src", "scripts"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (
                *("", ".css", ".html", ".js", ".md", ".mjs", ".py", ".service", ".toml", ".yaml", ".yml"),
            ):
                yield path


def test_no_install_line_is_without_a_source():
    found = [
        f"{path.relative_to(ROOT)}: {line[0]}"
        for path in texts()
        if path != _WRITER
        for line in _LINE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("pip install wakeful", True),
        ("`pip install 'wakeful[otel]'`", True),
        ("python3 -m pip install -U wakeful", True),
        ("pipx install wakeful", True),
        ("uv add 'wakeful[mcp]'", True),
        ("uvx wakeful serve", True),
        ("pip install '.[otel]'", False),
        ("pip install ./dist/wakeful-0.1.0-py3-none-any.whl", False),
        ("pip install 'wakeful[mcp] @ file:///opt/wakeful'", False),
        ("pip install 'wakeful @ git+https://host/wakeful.git'", False),
        ("/opt/wakeful/bin/pip install '.[all]'", False),
    ],
)
def test_the_check_finds_lines_without_a_source(line: str, refused: bool):
    assert (_LINE.search(line) is not None) == refused


def test_a_message_names_where_this_installation_came_from():
    command = install_command("mcp")
    assert command.startswith("pip install '")
    requirement = Requirement(command.removeprefix("pip install ").strip("'"))
    assert (requirement.name, requirement.extras) == ("wakeful", {"mcp"})
    # The tests run in an installation of a copy of the repository.
    assert requirement.url is not None
    assert Path(requirement.url.removeprefix("file://"), "pyproject.toml").exists()
