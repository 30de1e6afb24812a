"""Find the timers and services of this machine, and turn them into entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wakeful.cli.arguments import read_file
from wakeful.cli.importers.entries import EntryLocation, ImportEntry, ReadResult, Remark, join_readings, slug
from wakeful.cli.importers.systemd_calendar import CalendarSchedule, read_calendar, read_span
from wakeful.cli.importers.systemd_units import (
    ServiceWork,
    Unit,
    UnitFile,
    condition_notes,
    read_service,
    read_unit,
    split_instance,
)
from wakeful.errors import InvalidArgument
from wakeful.values.duration import spell_duration
from wakeful.values.json_value import Json

#: Intervals that repeat, and what is different here.
_INTERVALS: Final = {
    "OnUnitActiveSec": "",
    "OnUnitInactiveSec": "counts from the end of the service there, and from fixed instants here",
}
_ONCE: Final = {
    "OnBootSec": "Wakeful does not know when the machine boots",
    "OnStartupSec": "Wakeful does not know when the service manager starts",
    "OnActiveSec": "Wakeful does not know when the timer is activated",
}
_NOTES: Final = {
    "AccuracySec": "not needed: a run starts at its instant; `jitter` moves it",
    "WakeSystem": "not converted: Wakeful does not wake a suspended machine",
    "FixedRandomDelay": "not needed: the jitter of a tick is the same on every replica",
    "OnClockChange": "not converted: there is no such trigger",
    "OnTimezoneChange": "not converted: there is no such trigger",
}
_KNOWN: Final = frozenset(
    ["OnCalendar", "Persistent", "RandomizedDelaySec", "Unit", "RemainAfterElapse", *_INTERVALS, *_ONCE]
)

FindUnit = Callable[[str], UnitFile | None]
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


def read_timers(files: Iterable[UnitFile], find: FindUnit) -> ReadResult:
    """Return the entries of timers. `find` returns the file of a service by its name."""
    return join_readings(_Timer(file, find).read() for file in files)


@dataclass(slots=True)
class _Timer:
    """One timer file, and the remarks on it so far."""

    file: UnitFile
    find: FindUnit
    notes: list[Remark] = field(default_factory=list)
    refused: list[Remark] = field(default_factory=list)

    @property
    def place(self) -> EntryLocation:
        return EntryLocation(self.file.path, self.file.name)

    def read(self) -> ReadResult:
        entries: list[ImportEntry] = []
        try:
            entries = self._entries()
        except InvalidArgument as error:
            self._refuse(self.file.name, error.message)
        return ReadResult(tuple(entries), tuple(self.refused), tuple(self.notes))

    def _entries(self) -> list[ImportEntry]:
        if split_instance(self.file.name)[1] == "":
            raise InvalidArgument(
                "it is a template; import a file for each instance, such as name@home.timer"
            )
        if not self.file.text.strip():
            raise InvalidArgument("the file is empty: the unit is masked")
        timer = read_unit(self.file)
        schedules = self._schedules(timer)
        if not schedules:
            if not self.refused:
                raise InvalidArgument("it has no OnCalendar and no OnUnitActiveSec")
            return []
        work, description = self._work(timer)
        shared: dict[str, Json] = {**self._policies(timer), **work.fields}
        return [
            ImportEntry(
                place=self.place,
                text=text,
                name=slug(self.file.name.rpartition(".")[0]),
                schedule=each.schedule,
                tz=each.tz,
                command=work.command,
                fields=_fields(each, shared, description or text),
            )
            for text, each in schedules
        ]

    def _schedules(self, timer: Unit) -> list[tuple[str, CalendarSchedule]]:
        """Return each schedule with its text."""
        found: list[tuple[str, CalendarSchedule]] = []
        for value in timer.all("Timer", "OnCalendar"):
            try:
                found.append((f"OnCalendar={value}", read_calendar(value)))
            except InvalidArgument as error:
                self._refuse(f"OnCalendar={value}", error.message, "OnCalendar")
        for key, note in _INTERVALS.items():
            for value in timer.all("Timer", key):
                text = f"{key}={value}"
                milliseconds = read_span(value)
                if milliseconds is None:
                    raise InvalidArgument(f"{text}: it never elapses")
                if note:
                    self._note(text, note, key)
                found.append((text, CalendarSchedule({"kind": "every", "everyMs": milliseconds})))
        self._once(timer, recurring=bool(found))
        return found

    def _once(self, timer: Unit, *, recurring: bool) -> None:
        for key, why in _ONCE.items():
            for value in timer.all("Timer", key):
                if recurring:
                    self._note(f"{key}={value}", f"not converted: {why}", key)
                else:
                    self._refuse(f"{key}={value}", why, key)

    def _work(self, timer: Unit) -> tuple[ServiceWork, str]:
        """Return the work of the timer's service, and its description."""
        name = timer.last("Timer", "Unit") or f"{self.file.name.rpartition('.')[0]}.service"
        if not name.endswith(".service"):
            raise InvalidArgument(f"it starts {name}, which is not a service")
        file = self.find(name)
        if file is None:
            raise InvalidArgument(f"{name} is not found; give its file, or its directory, too")
        service = read_unit(file)
        work = read_service(service)
        for key, why in work.notes:
            self._note(name, why, key)
        return work, timer.last("Unit", "Description") or service.last("Unit", "Description") or ""

    def _policies(self, timer: Unit) -> dict[str, Json]:
        fields: dict[str, Json] = {}
        if _is_true(timer.last("Timer", "Persistent")):
            fields["catchupPolicy"] = "latest"
        delay = timer.last("Timer", "RandomizedDelaySec")
        milliseconds = read_span(delay) if delay is not None else 0
        if milliseconds:
            half = milliseconds // 2
            fields["jitterMs"] = half
            why = (
                f"becomes a jitter of {spell_duration(half)}: up to that earlier or later; "
                f"systemd starts up to {spell_duration(milliseconds)} later, never earlier"
            )
            self._note(f"RandomizedDelaySec={delay}", why, "RandomizedDelaySec")
        for key, why in condition_notes(timer):
            self._note(f"{key}={timer.last('Unit', key)}", why, key)
        for key in timer.keys("Timer"):
            if key not in _KNOWN:
                self._note(f"{key}={timer.last('Timer', key)}", _NOTES.get(key, "not converted"), key)
        return fields

    def _note(self, text: str, why: str, key: str | None = None) -> None:
        self.notes.append(Remark(self.place, text, why, key))

    def _refuse(self, text: str, why: str, key: str | None = None) -> None:
        self.refused.append(Remark(self.place, text, why, key))


def _fields(each: CalendarSchedule, shared: Mapping[str, Json], description: str) -> dict[str, Json]:
    return {"description": description, **shared, **each.fields}


def _is_true(value: str | None) -> bool:
    return value is not None and value.lower() in ("1", "yes", "y", "true", "t", "on")


def unit_candidates(name: str) -> Sequence[str]:
    """Return the files that may have a unit: its own, and that of its template.

    >>> unit_candidates("backup@home.service")
    ('backup@home.service', 'backup@.service')
    """
    prefix, instance = split_instance(name)
    suffix = name.rpartition(".")[2]
    return (name, f"{prefix}@.{suffix}") if instance else (name,)


def read_units(paths: Sequence[str]) -> ReadResult:
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
    texts = tuple(read_file(str(drop_ins[each])) for each in sorted(drop_ins))
    return UnitFile(name, str(path), read_file(str(path)), texts)
