"""Parse the documentation: its pages, examples, tables and links.

Every fenced block is run or checked. Its language decides how; a comment on the line before it changes that.

Programs (`bash`, `python`, `javascript`) run in the order of the page:

- no mark: it must succeed. All `bash` blocks of a page run in one shell, so a variable set in one block is
  set in the next. `python` and `javascript` blocks are programs that this shell starts. A `python` block with
  `>>>` is a doctest
- `<!-- fails -->`: it must fail
- `<!-- start -->`: it runs in another terminal, until the end of the page, or until another program is
  started on the same port. The page continues when it listens. A following `text` block is a part of its
  output, and the page continues when it is printed
- `<!-- not run: REASON -->`: only its syntax is checked

A page whose programs use `postgresql://…@127.0.0.1` or `localhost` has a PostgreSQL server on port 5432, with
the superuser `postgres`, no passwords, and `psql` on the PATH.

Data (`json`, `yaml`, `toml`, `ini`, `dockerfile`) is parsed; `sql` is only split into statements. Job
documents, files of jobs and targets are validated too.

- `<!-- output -->`: it is the output of the previous block
- `<!-- sample: REASON -->`: it is only parsed, for example because another program reads it

A `text` block is the output of the previous block; `…` matches anything, and blanks do not count.

- `<!-- sample: REASON -->`: it is not compared

`<!-- file: NAME -->` writes any block to a file in the page's directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"

#: The ports of `wakeful serve`, of the receivers and of PostgreSQL in the documentation.
SERVER_PORT, RECEIVER_PORT, POSTGRES_PORT = 9253, 8080, 5432

PROGRAMS = ("bash", "python", "javascript")
DATA = ("json", "yaml", "toml", "ini", "dockerfile", "sql")
#: The marks of each kind of block; the first is the default.
_PROGRAM_MARKS = ("run", "fails", "start", "file", "not run")
_DATA_MARKS = ("data", "file", "output", "sample")
_TEXT_MARKS = ("output", "file", "sample")
#: The marks that need a value after a colon.
_WITH_VALUE = ("file", "not run", "sample")

_LOCAL_POSTGRES = re.compile(r"postgresql://(\S*@)?(localhost|127\.0\.0\.1)")
_FENCE_LINE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^`]*)$")
_MARK = re.compile(r"^ *<!-- (?P<mark>[a-z ]+?)(?:: (?P<value>.+?))? -->$")
_SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
_ROW = re.compile(r"^\| *(.*?) *\|$", re.MULTILINE)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    mark: str
    #: the name of a file, or the reason of a mark
    value: str
    text: str

    @property
    def place(self) -> str:
        """Return where the block is, for messages."""
        return f"{self.page.relative_to(ROOT)}, line {self.line}"

    @property
    def port(self) -> int | None:
        """The port of the program: that of `--port` or `--bind`, or the default of a known program."""
        if found := re.search(r"(?:--port |--bind [\d.]+:)(\d+)", self.text):
            return int(found[1]) or None
        if "wakeful serve" in self.text:
            return SERVER_PORT
        return RECEIVER_PORT if "receiver.py" in self.text or str(RECEIVER_PORT) in self.text else None

    @property
    def needs_postgres(self) -> bool:
        """Whether the block uses the PostgreSQL server of this machine."""
        return self.mark in ("run", "fails", "start") and bool(_LOCAL_POSTGRES.search(self.text))


def pages() -> list[Path]:
    """Return all pages and the README."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, from top to bottom. AssertionError for a wrong mark or language."""
    lines = page.read_text(encoding="utf-8").split("\n")
    number = 0
    while number < len(lines):
        found = _FENCE_LINE.match(lines[number])
        if found is None:
            number += 1
            continue
        closing = f"{found['indent']}{found['fence']}"
        end = next(
            (each for each in range(number + 1, len(lines)) if lines[each].rstrip() == closing), len(lines)
        )
        before = lines[number - 1] if number else ""
        text = "".join(f"{line.removeprefix(found['indent'])}\n" for line in lines[number + 1 : end])
        text = _SNIPPET.sub(lambda include: (ROOT / include[1]).read_text(encoding="utf-8"), text)
        yield _block(page, number + 1, found["info"], before, text)
        number = end + 1


def _block(page: Path, line: int, info: str, before: str, text: str) -> Block:
    place = f"{page.relative_to(ROOT)}, line {line}"
    language = info.strip("{} .").split(" ")[0].removeprefix(".")
    if language in PROGRAMS:
        marks: tuple[str, ...] = _PROGRAM_MARKS
    elif language in DATA:
        marks = _DATA_MARKS
    else:
        assert language == "text", (
            f"{place}: the language {language!r} is not one of {', '.join([*PROGRAMS, *DATA, 'text'])}"
        )
        marks = _TEXT_MARKS
    found = _MARK.match(before)
    mark, value = (found["mark"], found["value"] or "") if found else (marks[0], "")
    assert mark in marks, f"{place}: the mark {mark!r} of a {language} block is not one of {', '.join(marks)}"
    assert bool(value) == (mark in _WITH_VALUE), (
        f"{place}: write <!-- {mark}{': …' if mark in _WITH_VALUE else ''} -->"
    )
    return Block(page, line, language, mark, value, text)


def commands(page: Path) -> Iterator[str]:
    """Yield the `wakeful` commands of a page: in its text, and in its `bash` blocks."""
    yield from re.findall(r"`(wakeful [^`]+)`", _FENCE.sub("", page.read_text(encoding="utf-8")))
    for block in blocks(page):
        if block.language == "bash":
            lines = re.sub(r"(?m)#.*$|\\\n", " ", block.text)
            yield from re.findall(r"(?m)(?:^|[|;&(]|^\w+=\S+) *(wakeful [^\n|;&)>]+)", lines)


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
