"""The shell of a page runs blocks as a user's terminal does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.doc_pages import Block
from tests.support.doc_shell import PageShell, exclusive_ports
from tests.support.paths import ROOT


def block(text: str, mark: str = "run", language: str = "bash") -> Block:
    return Block(ROOT / "README.md", 1, language, mark, "", text)


def test_variables_stay_set_and_none_is_set_at_first(tmp_path: Path):
    with exclusive_ports(), PageShell(tmp_path) as shell:
        assert shell.run(block("env | grep WAKEFUL_", "fails")) == (False, "")
        assert shell.run(block("echo $WAKEFUL_KEY", "fails"))[0] is False
        assert shell.run(block('eval "$(wakeful keys env)"\nX=1')) == (True, "")
        assert shell.run(block("echo $X $WAKEFUL_URL")) == (True, "1 http://127.0.0.1:9253\n")
        assert shell.run(block(">>> 1 + 1\n2\n", language="python")) == (True, "")
        assert shell.run(block(">>> 1 + 1\n3\n", "fails", "python"))[0] is False
        succeeded, output = shell.run(block("echo before\nfalse\necho after"))

    assert (succeeded, output) == (False, "before\n")


def test_a_server_of_the_page_replaces_the_plain_one(tmp_path: Path):
    add = "wakeful add disk --schedule @daily --command 'df -h /'"
    with exclusive_ports(), PageShell(tmp_path) as shell:
        refused = shell.run(block(add, "fails"))
        server = shell.start(block("WAKEFUL_COMMANDS=df wakeful serve --dev", "start"))
        assert server.wait_for_output(re.compile("Wakeful is running"))
        accepted = shell.run(block(add))

    assert (refused[0], accepted[0]) == (False, True), (refused, accepted)


def test_a_page_that_uses_postgres_has_a_server(tmp_path: Path):
    psql = block("psql -At postgresql://postgres@127.0.0.1/postgres -c 'SELECT 1'")
    assert psql.needs_postgres
    with exclusive_ports(), PageShell(tmp_path, postgres=True) as shell:
        shell.start(block("wakeful serve --dev --db postgresql://postgres@localhost/postgres", "start"))
        assert shell.run(psql) == (True, "1\n")
        assert shell.run(block("wakeful list"))[0]


def test_a_started_program_that_fails_fails_the_page(tmp_path: Path):
    def failing_page() -> None:
        with PageShell(tmp_path) as shell:
            assert not shell.start(block("echo oh; exit 3", "start")).wait_for_output(re.compile("no such"))

    with exclusive_ports(), pytest.raises(AssertionError, match="line 1 ended with an error:\noh"):
        failing_page()
