"""Every command has examples in its help, and they are valid."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.support.command_line import Machine
from wakeful.cli.exit_codes import USAGE
from wakeful.cli.main import app


def _commands(command: Any, name: str = "wakeful") -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for each, inner in command.commands.items():
            yield from _commands(inner, f"{name} {each}")
    else:
        yield name, command


ALL = dict(_commands(get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_examples_that_parse(name: str, monkeypatch: pytest.MonkeyPatch):
    for variable in ("WAKEFUL_AGENT", "WAKEFUL_WORKSPACE", "WAKEFUL_URL"):
        monkeypatch.delenv(variable, raising=False)
    command = ALL[name]
    head, *examples = command.epilog.splitlines()
    assert head == "Examples:"
    assert examples
    for example in examples:
        words = shlex.split(example)
        prefix = name.split()
        assert words[: len(prefix)] == prefix
        context = command.make_context(name, words[len(prefix) :])  # raises if it does not parse
        assert context.params


def test_a_wrong_example_does_not_parse():
    with pytest.raises(Exception, match="No such option"):
        ALL["wakeful pause"].make_context("pause", ["digest", "--untill", "x"])


def test_the_help_shows_the_examples_unwrapped_and_the_exit_codes(tmp_path_factory: pytest.TempPathFactory):
    machine = Machine(tmp_path_factory.mktemp("help"))
    shown = machine.wakeful("add", "--help").out
    assert "lists the others" in shown
    assert "\n  wakeful add digest -s '0 9 * * 1-5' --tz Europe/Berlin -m 'Summarize the news.'\n" in shown
    top = machine.wakeful("--help").out
    for code in range(9):
        assert f"\n  {code}  " in top


def test_an_argument_after_the_name_of_a_new_job_is_answered_with_the_option_for_schedules(tmp_path: Path):
    done = Machine(tmp_path, "http://model").wakeful("add", "digest", "every 2s")
    assert done.code == USAGE
    assert "--schedule 'every 15m'" in done.err


def test_every_command_takes_json():
    for name, command in ALL.items():
        assert "--json" in {word for each in command.params for word in each.opts}, name
