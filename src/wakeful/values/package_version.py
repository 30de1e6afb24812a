"""The version of the installed package."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def package_version() -> str:
    """Return the version; reading it from the metadata of the package takes some milliseconds."""
    return version("wakeful")
