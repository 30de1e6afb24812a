"""Find unit files on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wakeful.cli.importers.entries import Reading
from wakeful.cli.importers.systemd.timers import read_timers, unit_candidates
from wakeful.cli.importers.systemd.units import UnitFile
from wakeful.errors import InvalidArgument

#: Where administrators put their units. Units of packages are imported only if they are named.
_DEFAULT: Final = ("/etc/systemd/system", "~/.config/systemd/user")
#: Where else a service or a drop-in may be.
_SYSTEM: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_USER: Final = ("~/.config/systemd/user", "/etc/systemd/user", "/usr/lib/systemd/user")


def read_units(paths: Sequence[str]) -> Reading:
    """Read the timers of files and directories, by default those of the administrator and of this user."""
    given = [Path(path).expanduser() for path in paths or _DEFAULT]
    if not paths:
        given = [path for path in given if path.is_dir()]
    timers: list[Path] = []
    for path in given:
        if path.is_dir():
            timers += sorted(each for each in path.iterdir() if each.suffix == ".timer" and _is_here(each))
        elif path.suffix == ".timer":
            timers.append(path)
        elif path.suffix != ".service":
            raise InvalidArgument(f"{path}: it is neither a directory nor a .timer or .service file")
        elif not path.is_file():
            raise InvalidArgument(f"{path}: there is no such file")
    if not timers:
        where = ", ".join(map(str, given)) or " and ".join(_DEFAULT)
        raise InvalidArgument(f"no .timer file in {where}")
    own = [path if path.is_dir() else path.parent for path in given]
    files = [_load(path.name, path, _search_path(own, path.parent)) for path in timers]
    return read_timers(files, lambda name: _find(name, _search_path(own, None)))


def _is_here(path: Path) -> bool:
    """Return whether a file is there: a link to /dev/null is, as a masked unit."""
    return path.is_file() or path.resolve() == Path("/dev/null")


def _search_path(own: Sequence[Path], first: Path | None) -> list[Path]:
    user = any("systemd/user" in str(path) for path in own)
    others = [Path(path).expanduser() for path in (_USER if user else _SYSTEM)]
    return list(dict.fromkeys([*([first] if first else []), *own, *others]))


def _find(name: str, directories: Sequence[Path]) -> UnitFile | None:
    for candidate in unit_candidates(name):
        for directory in directories:
            if (directory / candidate).is_file():
                return _load(name, directory / candidate, directories)
    return None


def _load(name: str, path: Path, directories: Sequence[Path]) -> UnitFile:
    """Return a unit with its drop-ins: of files with the same name, that of the first directory applies."""
    drop_ins: dict[str, Path] = {}
    for directory in directories:
        for candidate in unit_candidates(name):
            folder = directory / f"{candidate}.d"
            if folder.is_dir():
                for each in folder.glob("*.conf"):
                    drop_ins.setdefault(each.name, each)
    texts = tuple(_text(drop_ins[each]) for each in sorted(drop_ins))
    return UnitFile(name, str(path), _text(path), texts)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidArgument(f"{path}: it cannot be read: {why}") from error
