"""What a command target says, and what is said of one that is written wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.programs import command_launcher
from wakeful import Command, InvalidArgument
from wakeful.launch.command_rules import MAX_ARGUMENTS, MAX_BYTES, MAX_ENV, read_command


def command(**fields: Any) -> dict[str, Any]:
    return {"kind": "command", "argv": ["true"], **fields}


def test_the_python_target_equals_the_json_target():
    target = Command("/usr/bin/report", "--daily", env={"TO": "me"}, cwd="/srv")
    assert target == Command("/usr/bin/report", "--daily", env={"TO": "me"}, cwd="/srv")
    assert target.to_json() == {
        "kind": "command",
        "argv": ["/usr/bin/report", "--daily"],
        "env": {"TO": "me"},
        "cwd": "/srv",
    }
    assert read_command(target.to_json()) == (("/usr/bin/report", "--daily"), {"TO": "me"}, "/srv")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (command(argv="rsync -a /a /b"), "argv is a list: there is no shell to split it; write ["),
        (command(argv=None), "a command needs an argv, such as ["),
        (command(argv=[]), "a command needs an argv, such as ["),
        (command(argv={"0": "true"}), "a command needs an argv"),
        (command(argv=["", "a"]), "argv starts with the program, which is empty"),
        (command(argv=["sleep", 5]), "argv: 5 is not text; put it in quotes"),
        (command(argv=["sleep", 10**5000]), "argv: a number too long to print is not text"),
        (command(argv=["sleep", None]), "argv: null is not text"),
        (command(argv=["a\x00b"]), "argv: remove U+0000"),
        (command(argv=["a\ud800"]), "argv: remove U+0000 and lone surrogates"),
        (command(argv=["true"] * (MAX_ARGUMENTS + 1)), "argv has 257 arguments; at most 256"),
        (command(argv=["true", "ü" * (MAX_BYTES // 2)]), "argv and env have more than 65536 bytes"),
        (command(env={"A": "x" * MAX_BYTES}), "argv and env have more than 65536 bytes"),
        (command(env=["A=b"]), "env is an object with at most 256 names"),
        (command(env={f"A{n}": "" for n in range(MAX_ENV + 1)}), "env is an object with at most 256 names"),
        (command(env={"A": 1}), "env, A: 1 is not text"),
        (command(env={"A": "\x00"}), "env, A: remove U+0000"),
        (command(env={"A=B": "c"}), "'A=B' is not a name for env"),
        (command(env={"": "c"}), "'' is not a name for env"),
        (command(env={"BASH_FUNC_true%%": "() { sh; }"}), "is not a name for env"),
        (command(cwd="srv"), "cwd is the absolute path of a directory"),
        (command(cwd=1), "cwd is the absolute path of a directory"),
        (command(cwd="/a\x00"), "cwd: remove U+0000"),
        (command(shell=True), "a command has no field 'shell'; it has argv, env and cwd"),
    ],
)
def test_an_invalid_target_is_refused_with_an_example(target: dict[str, Any], said: str):
    with pytest.raises(InvalidArgument) as error:
        command_launcher("*").check(target)
    assert error.value.message.startswith("target: ")
    assert said in error.value.message


def test_the_maximum_size_is_accepted():
    command_launcher("*").check(command(argv=["true"] * MAX_ARGUMENTS))
    command_launcher("*").check(command(argv=["true", "x" * (MAX_BYTES - 6)]))


def test_a_program_that_is_not_allowed_is_refused():
    with pytest.raises(InvalidArgument, match="target: no commands are allowed"):
        command_launcher().check(command())
    with pytest.raises(InvalidArgument, match="target: 'true' is not an allowed command"):
        command_launcher("false").check(command())


def test_commands_are_refused_on_windows(monkeypatch: pytest.MonkeyPatch):
    launcher = command_launcher("*")
    with monkeypatch.context() as patch:
        patch.setattr("wakeful.launch.command.os.name", "nt")
        with pytest.raises(InvalidArgument, match="not run on Windows"):
            launcher.check(command())
