"""Parse the documentation: its pages, runnable examples, tables and links.

The comment on the line before a fenced block marks it:

- `<!-- run -->`: bash or Python; it must succeed
- `<!-- fails -->`: the same, but it must fail
- `<!-- start -->`: the same, but it runs until the end of the page
- `<!-- output -->`: the output of the previous block; `…` matches anything
- `<!-- file: NAME -->`: the content of a file
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"^(?P<indent> *)<!-- (?P<mark>run|fails|start|output|file: (?P<file>\S+)) -->\n"
    r"(?P=indent)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
_ROW = re.compile(r"^\| *(.*?) *\|$", re.MULTILINE)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A marked block."""

    mark: str
    language: str
    text: str
    line: int
    file: str | None = None


def pages() -> list[Path]:
    """Return all pages and the README."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the marked blocks of a page, from top to bottom."""
    content = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(content):
        indent = found["indent"]
        text = "\n".join(line.removeprefix(indent) for line in found["text"].split("\n"))
        text = _SNIPPET.sub(lambda include: (ROOT / include[1]).read_text(encoding="utf-8"), text)
        line = content.count("\n", 0, found.start()) + 1
        yield Block(found["mark"].split(":")[0], found["language"], text, line, found["file"])


def rows(page: str, section: str | None = None) -> list[list[str]]:
    """Return the cells of all table rows of a page, or of one section, without headers."""
    content = _FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))
    if section is not None:
        head = re.search(rf"^(#+) {re.escape(section)}$", content, re.MULTILINE)
        assert head, f"{page} has no section '{section}'"
        content = content[head.end() :]
        following = re.search(rf"^#{{1,{len(head[1])}}} ", content, re.MULTILINE)
        content = content[: following.start()] if following else content
    found = [re.split(r" *(?<!\\)\| *", row[1]) for row in _ROW.finditer(content)]
    rules = {index for index, cells in enumerate(found) if set("".join(cells)) <= set(":- ")}
    return [cells for index, cells in enumerate(found) if index not in rules and index + 1 not in rules]


def code(cell: str) -> str:
    """Return the first code in a cell."""
    found = re.search(r"`([^`]+)`", cell)
    return found[1].replace("\\|", "|") if found else ""


def links(page: Path) -> Iterator[str]:
    """Yield the links of a page."""
    content = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in re.finditer(r"\]\(([^)\s]+)\)", content):
        yield found[1]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page."""
    content = _FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+?)(?: \{#([\w-]+)\})?$", content, re.MULTILINE)
    return {own or _slug(text) for text, own in heads}


def _slug(text: str) -> str:
    plain = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", text)).strip().lower()
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\x00-\x7f]", "", plain)).strip("-")
