"""Commands start without modules that they do not need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.main import get_command

from wakeful.cli import exit_codes
from wakeful.cli.main import app, main
from wakeful.errors import Unavailable

#: Runs the command line and prints the imported modules as the last line.
_PROGRAM = """
import json, sys
from wakeful.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""
#: Not needed to print a text.
_FOR_REQUESTS = ("aiohttp", "asyncio", "rich", "ssl", "wakeful.cli.session", "wakeful.job.job")
#: Not needed by a client.
_FOR_SERVERS = (
    *("wakeful.document", "wakeful.job.job", "wakeful.schedule.schedules"),
    *("asyncpg", "cryptography", "fastapi", "holidays", "mcp", "opentelemetry", "prometheus_client"),
    *("pydantic", "sqlite3", "uvicorn", "yaml", "wakeful.engine", "wakeful.store"),
)


def imported(*arguments: str) -> tuple[int, set[str]]:
    """Run the command line in a new process; return its exit code and the modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_a_text_is_printed_without_heavy_modules(option: str):
    code, modules = imported(option)

    assert code == 0
    assert modules.intersection(_FOR_REQUESTS + _FOR_SERVERS) == set()
    assert [name for name in modules if name.startswith("wakeful.cli.commands.")] == [
        "wakeful.cli.commands.index"
    ]


def test_a_request_needs_no_module_of_the_server():
    code, modules = imported("list", "--label", "team=blue", "--server", "http://127.0.0.1:1")

    assert code == exit_codes.exit_code(Unavailable(""))
    assert modules.intersection(_FOR_SERVERS) == set()
    assert "aiohttp" in modules


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], "greater than or equal to 1"),
        (["-n", "many"], "a valid integer"),
        (["--json=yes"], "does not take a value"),
        ([], ""),
        (["-n", "3", "--tz", "Europe/Berlin"], ""),
    ],
)
def test_the_values_of_options_are_checked(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    code = main(["preview", "@daily", *arguments])

    assert (code == 0) == (not message)
    assert message in capsys.readouterr().err


def test_the_modules_of_the_other_commands_are_not_imported():
    _, modules = imported("keys", "--help")

    assert "wakeful.cli.commands.admin" in modules
    assert "wakeful.cli.commands.serve" not in modules


def test_an_unknown_command_is_not_found_and_imports_no_command():
    code, modules = imported("lst")

    assert code == 2
    assert "wakeful.cli.commands.jobs" not in modules
    assert "lst" not in get_command(app).commands  # type: ignore[attr-defined]
