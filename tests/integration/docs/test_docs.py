"""What the documentation says is so: its examples run, its tables are complete, its links lead somewhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.docs.test_examples import free_port, wait_for
from tests.support import prefork
from tests.support.command_line import Machine, serving
from tests.support.doc_pages import DOCS, Block, anchors, blocks, links, pages
from tests.support.paths import ROOT

_LONG = 180.0
_WITH_EXAMPLES = [page for page in pages() if any(blocks(page))]


@pytest.mark.parametrize("page", _WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "wakeful.toml").write_text('commands = ["*"]\n')
    with serving(home) as machine, ExitStack() as stack:
        place = PageRunner(tmp_path / "page", machine, cold=page.name == "README.md")
        output = ""
        for block in blocks(page):
            where = f"{page.name}, line {block.line}"
            if block.mark == "file":
                assert block.file is not None
                (place.directory / block.file).write_text(place.own(block.text))
            elif block.mark == "start":
                stack.enter_context(place.started(block))
            elif block.mark == "output":
                assert_like(place.own(block.text), output, where)
            else:
                code, output = place.run(block)
                assert (code == 0) == (block.mark == "run"), f"{where}: it ended with {code}\n{output}"


class PageRunner:
    """Where a page's examples run: a directory of its own, and a server.

    What they start is warm, lest most of the time be spent on imports; where it is to be cold, it is what
    somebody has who has installed the package.
    """

    def __init__(self, directory: Path, machine: Machine, *, cold: bool) -> None:
        directory.mkdir()
        shutil.copytree(ROOT / "examples", directory / "examples")
        self.directory, self._machine, self._count = directory, machine, 0
        self._port = free_port()
        keys = machine.home / "config/wakeful/keys"
        before = [*([] if cold else [prefork.programs()]), Path(sys.executable).parent]
        self._environment = {
            **machine.environment,
            "WAKEFUL_KEY": next(keys.iterdir()).read_text().strip(),
            "PATH": os.pathsep.join(map(str, [*before, os.environ["PATH"]])),
        }
        for file in (directory / "examples").iterdir():
            if file.is_file():
                file.write_text(self.own(file.read_text()))

    def own(self, text: str) -> str:
        """The text with the ports of this test: 8080 receives, 9253 is the server."""
        text = text.replace("http://127.0.0.1:9253", str(self._machine.url))
        return text.replace("8080", str(self._port))

    def run(self, block: Block) -> tuple[int, str]:
        """Run an example to its end; its exit code, and what it printed."""
        done = subprocess.run(
            self._command(block),
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LONG,
            check=False,
        )
        return done.returncode, done.stdout

    @contextmanager
    def started(self, block: Block) -> Iterator[None]:
        """An example that stays; where it listens on the port that receives, until it does."""
        output = (self.directory / f"{self._count}.out").open("w")
        program = subprocess.Popen(
            self._command(block),
            cwd=self.directory,
            env=self._environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            if "8080" in block.text or "receiver" in block.text:
                wait_for(self._port)
            yield
        finally:
            os.killpg(program.pid, signal.SIGTERM)
            program.wait(_LONG)
            output.close()

    def _command(self, block: Block) -> list[str]:
        self._count += 1
        file = self.directory / f"{self._count}.{block.language}"
        file.write_text(self.own(block.text))
        if block.language == "python":
            return ["python", str(file)]
        if block.language == "javascript":
            if shutil.which("node") is None:
                pytest.skip("node is not here")
            return ["node", str(file)]
        assert block.language == "bash", f"line {block.line}: who runs {block.language}?"
        return ["bash", "-euo", "pipefail", str(file)]


def assert_like(expected: str, output: str, where: str) -> None:
    """What was printed is what the page shows, where `…` stands for anything and blanks do not count."""
    parts = (re.escape(" ".join(part.split())) for part in expected.split("…"))
    pattern = r"\s*.*?\s*".join(parts)
    assert re.fullmatch(pattern, " ".join(output.split()), re.DOTALL), (
        f"{where} shows\n{expected}\nbut:\n{output}"
    )


@pytest.mark.parametrize("receiver", ["standard.py", "receiver.mjs"])
def test_the_documented_receivers_verify_signatures(receiver: str, tmp_path: Path):
    if receiver.endswith("mjs") and shutil.which("node") is None:
        pytest.skip("node is not here")
    (text,) = (each.text for each in blocks(DOCS / "how-to/webhook.md") if each.file == receiver)
    (tmp_path / receiver).write_text(text)
    program, port = ("node" if receiver.endswith("mjs") else sys.executable), free_port()
    with serving(tmp_path) as machine:
        job = machine.wakeful(
            *("add", "hook", "--schedule", "0 0 29 2 *", "--url", f"http://127.0.0.1:{port}"),
            *("--max-attempts", "1", "--payload", '{"to": "me"}', "--json"),
        ).json
        listening = subprocess.Popen([program, str(tmp_path / receiver), job["secret"], str(port)])
        try:
            wait_for(port)
            genuine = machine.wakeful("run", "hook", "--wait", "--json").json
            machine.wakeful("delete", "hook")
            machine.wakeful(
                "add",
                "hook",
                "--schedule",
                "@yearly",
                "--url",
                f"http://127.0.0.1:{port}",
                "--max-attempts",
                "1",
                "--payload",
                '{"to": "me"}',
            )
            forged = machine.wakeful("run", "hook", "--wait", "--json").json
        finally:
            listening.terminate()
            listening.wait()
    assert (genuine["state"], genuine["output"]) == ("succeeded", "hello me")
    assert forged["error"].startswith("HTTP 401")


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
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    actual = set(re.findall(r"[\w/-]+\.md", nav))
    assert actual == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
