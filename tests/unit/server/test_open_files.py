"""How the limit of open files is divided between HTTP and the engine."""

from __future__ import annotations

import resource

import pytest

from wakeful.server import acceptor
from wakeful.settings import Settings


@pytest.mark.parametrize(
    ("files", "configured", "allowed"),
    [
        (1_048_576, 4_000, 4_000),
        (1_048_576, 0, 1_048_576 - 758),
        (4_096, 4_000, 4_096 - 758),
        (1_024, 4_000, 512),
        (256, 4_000, 128),
        (1_024, 100, 100),
        (resource.RLIM_INFINITY, 4_000, 4_000),
        (resource.RLIM_INFINITY, 0, None),
    ],
)
def test_open_files_are_reserved_for_the_engine(
    monkeypatch: pytest.MonkeyPatch, files: int, configured: int, allowed: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    assert acceptor.connection_limit(Settings(max_http_connections=configured)) == allowed
