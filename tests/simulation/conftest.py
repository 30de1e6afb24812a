"""Silences the log of the simulated engines, except where a test captures it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("wakeful")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)
