"""Fixtures of pytest, for every project that has Wakeful installed; the first use of one imports the rest.

They are sync fixtures: they serve plain tests and those of pytest-asyncio and anyio alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from datetime import datetime

    from wakeful.app.embedded import Wakeful
    from wakeful.testing.clock import MovableClock
    from wakeful.testing.harness import Harness, HarnessFactory
    from wakeful.testing.receivers import ChatEndpoint, WebhookReceiver


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the option that names a PostgreSQL server."""
    # pytest compiles all modules of a package that has a plugin anew, for their `assert`: at each start where
    # no bytecode is written. None of ours is a test.
    marked = getattr(pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("wakeful")
    text = "a PostgreSQL server for `wakeful_harness`, which creates databases on it; else SQLite"
    parser.getgroup("wakeful").addoption("--wakeful-url", metavar="URL", help=text)


@pytest.fixture
def wakeful_clock() -> MovableClock:
    """Return the clock of the harness; it stands at 2030-01-01T00:00:00Z until the test moves it."""
    from wakeful.testing.clock import MovableClock

    return MovableClock("2030-01-01T00:00:00Z")


@pytest.fixture
def wakeful_harness(pytestconfig: pytest.Config, wakeful_clock: MovableClock) -> HarnessFactory:
    """Return a function that makes a harness: `async with wakeful_harness(app) as harness:`, or `with`.

    Its clock is `wakeful_clock`, and its database is on the server of `--wakeful-url`, else SQLite.
    """
    from wakeful.testing.harness import Harness

    def make(
        app: Wakeful | None = None, *, at: datetime | str | None = None, url: str | None = None
    ) -> Harness:
        return Harness(app, at=at, url=url or pytestconfig.getoption("--wakeful-url"), clock=wakeful_clock)

    return make


@pytest.fixture
def webhook_receiver() -> Iterator[WebhookReceiver]:
    """Run a webhook receiver."""
    from wakeful.testing.receivers import WebhookReceiver

    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture
def chat_endpoint() -> Iterator[ChatEndpoint]:
    """Run an OpenAI-compatible endpoint."""
    from wakeful.testing.receivers import ChatEndpoint

    with ChatEndpoint() as endpoint:
        yield endpoint
