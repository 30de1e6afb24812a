"""The version of the package, how to install its extras, and names that are imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

VERSION = "0.1.0"  # the build reads it from this line


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from where Wakeful itself was installed.

    That is a directory, a wheel or a repository, which pip has written down (PEP 610). Without it, Wakeful
    came from a package index.
    """
    source = _installed_from()
    return f"pip install 'wakeful[{extra}]{f' @ {source}' if source else ''}'"


def _installed_from() -> str | None:
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        written = json.loads(distribution("wakeful").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    return source_address(written)


def source_address(written: Mapping[str, object]) -> str | None:
    """Return the address of a `direct_url.json` as a requirement has it; None if it has none.

    >>> source_address({"url": "file:///opt/wakeful", "dir_info": {"editable": True}})
    'file:///opt/wakeful'
    >>> source_address({"url": "https://host/wakeful.git", "vcs_info": {"vcs": "git", "commit_id": "1f0c"}})
    'git+https://host/wakeful.git@1f0c'
    """
    url, vcs = written.get("url"), written.get("vcs_info")
    if not isinstance(url, str):
        return None
    if isinstance(vcs, Mapping):
        return f"{vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', '')}".rstrip("@")
    return url


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package. `homes` has the names by the module that has them.

    The package imports the same names under `TYPE_CHECKING`, for type checkers.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value: object = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names
