"""The fixtures of pytest, in a project of their own: in sync tests, with pytest-asyncio and with anyio."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from wakeful import Wakeful

app = Wakeful("sqlite:////no/such/directory/wakeful.db")
done = []


@app.cron("0 9 * * *")
async def morning():
    done.append("morning")
    await app.enqueue(remind, "coffee", in_="20m")


@app.function()
def remind(of: str):
    done.append(of)
"""
TESTS = """
import pytest
from program import app, done, remind
from wakeful import Chat, Webhook


@pytest.fixture(autouse=True)
def fresh():
    done.clear()


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_sync(wakeful_harness, wakeful_clock):
    with wakeful_harness(app) as harness:
        wakeful_clock.advance("9h")
        harness.assert_enqueued(remind, in_="20m", of="coffee")
        assert done == ["morning"]


async def check(harness, clock, receiver, model):
    target = Webhook(receiver.url)
    await app.jobs.create("hook", schedule="0 1 * * *", target=target)
    await app.jobs.create("chat", schedule="0 2 * * *", target=Chat(model.url, "m"), message="hi")
    await clock.advance("9h")
    await harness.assert_enqueued(remind, in_="20m", of="coffee")
    await harness.advance("1h")
    assert done == ["morning", "coffee"]
    assert [request.json()["job"] for request in receiver.requests] == ["hook"]
    assert model.texts() == [("user", "hi")]


@pytest.mark.asyncio
async def test_asyncio(wakeful_harness, wakeful_clock, webhook_receiver, chat_endpoint):
    async with wakeful_harness(app) as harness:
        await check(harness, wakeful_clock, webhook_receiver, chat_endpoint)


@pytest.mark.anyio
async def test_anyio(wakeful_harness, wakeful_clock, webhook_receiver, chat_endpoint):
    async with wakeful_harness(app, at="2027-06-01T00:00:00Z") as harness:
        assert wakeful_clock.now().year == 2027
        await check(harness, wakeful_clock, webhook_receiver, chat_endpoint)


def test_fails(wakeful_harness):
    with wakeful_harness(app) as harness:
        harness.assert_enqueued(remind)
"""
#: Prints what a run of pytest imports.
CONFTEST = """
import sys

def pytest_sessionfinish():
    heavy = {"asyncio", "sqlite3", "aiohttp", "http.server", "wakeful.app", "wakeful.testing.clock"}
    found = sorted(heavy & set(sys.modules))
    print("IMPORTED", found)
"""


def test_the_fixtures_serve_every_kind_of_test(tmp_path: Path, database: str):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "test_program.py").write_text(TESTS)
    server = [] if database.startswith("sqlite") else ["--wakeful-url", database]
    scope = "asyncio_default_fixture_loop_scope=function"
    ended = run_pytest(tmp_path, "-W", "error", "-o", scope, "-p", "no:schemathesis", *server)
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "1 failed" in ended.stdout
    assert "no such call of 'remind' waits; these do:" in ended.stdout


def test_a_run_without_the_fixtures_imports_nothing(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_other.py").write_text("def test_other(): pass")
    plain = run_pytest(tmp_path, "-s", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    with_plugin = run_pytest(
        tmp_path, "-s", "-p", "wakeful.testing.pytest_plugin", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
    )
    assert "1 passed" in with_plugin.stdout
    imported = [line for line in with_plugin.stdout.splitlines() if "IMPORTED" in line]
    assert imported == [line for line in plain.stdout.splitlines() if "IMPORTED" in line]


def test_modules_of_an_installed_package_are_not_compiled_anew(tmp_path: Path):
    installed = tmp_path / "installed" / "wakeful-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: wakeful\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nwakeful = wakeful.testing.pytest_plugin\n")
    (installed / "RECORD").write_text("wakeful/__init__.py,,\nwakeful/cron/__init__.py,,\n")
    (tmp_path / "test_loader.py").write_text(
        "def test_loader():\n    import wakeful.cron\n    print('LOADER', wakeful.cron.__spec__.loader)\n"
    )
    ended = run_pytest(tmp_path, "-s", "-p", "no:schemathesis", PYTHONPATH=str(installed.parent))
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "SourceFileLoader" in ended.stdout


def run_pytest(directory: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory as a user does: no setting of this project applies."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "WAKEFUL"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(directory), *options],
        cwd=directory,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
