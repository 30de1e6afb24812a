"""What the documentation says is so: its examples run, its tables are complete, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import serving
from tests.support.doc_documents import check_block
from tests.support.doc_pages import DOCS, PROGRAMS, Block, anchors, blocks, links, pages
from tests.support.doc_shell import PageShell, Terminal, exclusive_ports
from tests.support.paths import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path):
    examples = list(blocks(page))
    for block in examples:
        check_block(block)
    if not any(block.mark in ("run", "fails", "start") for block in examples):
        return
    postgres = any(block.needs_postgres for block in examples)
    with exclusive_ports(), PageShell(tmp_path, cold=page.name == "README.md", postgres=postgres) as shell:
        printed: str | Terminal | None = None
        for block in examples:
            if block.mark == "file":
                (shell.directory / block.value).write_text(block.text)
            elif block.mark == "start":
                printed = shell.start(block)
            elif block.mark in ("run", "fails"):
                succeeded, printed = shell.run(block)
                assert succeeded == (block.mark == "run"), f"{block.place}:\n{printed}"
            elif block.mark == "output":
                assert printed is not None, f"{block.place}: there is no program before this output"
                assert_output(block, printed)


def assert_output(block: Block, printed: str | Terminal) -> None:
    """Assert that the output is what the page shows: `…` matches anything, and blanks do not count."""
    parts = (re.escape(" ".join(part.split())) for part in block.text.split("…"))
    pattern = re.compile(r"\s*.*?\s*".join(parts), re.DOTALL)
    if isinstance(printed, Terminal):
        assert printed.wait_for_output(pattern), f"{block.place}: the output is\n{printed.output}"
    else:
        assert pattern.fullmatch(" ".join(printed.split())), f"{block.place}: the output is\n{printed}"


def test_few_programs_are_not_run():
    programs = [block for page in pages() for block in blocks(page) if block.language in PROGRAMS]
    not_run = [f"{block.place}: {block.value}" for block in programs if block.mark == "not run"]

    assert len(not_run) <= len(programs) / 10, "\n".join(not_run)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("```\nwakeful list\n```\n", "line 1: the language '' is not one of bash,"),
        ("```cobol\n```\n", "the language 'cobol' is not one of"),
        ("<!-- skip -->\n```bash\n```\n", "line 2: the mark 'skip' of a bash block"),
        ("<!-- not run -->\n```bash\n```\n", "write <!-- not run: … -->"),
        ("<!-- sample: times -->\n```bash\n```\n", "the mark 'sample' of a bash block"),
        ("```json\n{]\n```\n", "line 1: Expecting property name"),
        ("```yaml\n- {name: a, schedule: 0 0 31 2 *}\n```\n", "never fires"),
        ('```json\n{"kind": "webhook", "url": "wakeful"}\n```\n', "'wakeful'"),
        ("<!-- not run: needs Docker -->\n```bash\nif true\n```\n", "syntax error"),
    ],
)
def test_a_block_without_a_check_is_refused(content: str, error: str, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("tests.support.doc_pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(content)

    with pytest.raises(AssertionError, match=re.escape(error)):
        check_block(next(blocks(page)))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path):
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page.name} points to {link}, which does not exist"
        if page.is_relative_to(DOCS):
            assert place.is_relative_to(DOCS), f"{page.name} points out of the documentation, to {link}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{page.name} points to {link}; its anchors are {anchors(place)}"


def test_every_page_is_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    actual = set(re.findall(r"[\w/-]+\.md", str(nav)))
    assert actual == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_the_index_names_every_how_to_page():
    named = {link.partition("#")[0] for link in links(DOCS / "how-to/index.md")}

    assert {page.name for page in (DOCS / "how-to").glob("*.md")} - named == {"index.md"}


def test_a_server_writes_only_the_files_that_the_page_on_uninstalling_lists(tmp_path: Path):
    with serving(tmp_path) as machine:
        machine.wakeful("add", "hook", "--schedule", "@daily", "--url", "http://127.0.0.1:9", "--json")
        machine.wakeful("run", "hook", "--json")
        machine.wakeful("open")
        written = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}

    page = (DOCS / "operations/uninstall.md").read_text()
    expected = {"log"}  # the stderr of the server, which the test writes
    for name, stored in (
        ("wakeful.db", "a.db"),
        ("wakeful.db-wal", "a.db-wal"),
        ("wakeful.db-shm", "a.db-shm"),
        ("wakeful.db.key", "a.db.key"),
    ):
        assert f"`{name}`" in page
        expected.add(stored)
    keys = {each for each in written if each.startswith("config/wakeful/keys/127.0.0.1-")}
    assert len(keys) == 1
    assert written == expected | keys
