"""What the readers of `jobs.json` files of agents share."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from wakeful.cli.importers.entries import Entry, Place, Reading, Remark
from wakeful.cli.importers.naming import slug
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json


@dataclass(slots=True)
class JobReader:
    """One job of the file, and what it becomes."""

    source: Mapping[str, Json]
    place: Place
    schedule: Json = None
    tz: str | None = None
    agent: str | None = None
    fields: dict[str, Json] = field(default_factory=dict)
    notes: list[Remark] = field(default_factory=list)

    def value(self, name: str) -> Json:
        """Return a field of the job."""
        return self.source.get(name)

    def mapping(self, name: str) -> Mapping[str, Json]:
        """Return a field that is an object, or raise InvalidArgument."""
        value = self.source.get(name)
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"{name}: it is missing, or not an object")
        return cast(Mapping[str, Json], value)

    def note(self, name: str, why: str) -> None:
        """Add a note about a field."""
        self.notes.append(Remark(self.place, self.place.item, why, name))

    def note_unknown(self, values: Mapping[str, Json], known: Collection[str], where: str = "") -> None:
        """Add a note for each field with a value that is not known."""
        prefix = f"{where}." if where else ""
        for name, value in values.items():
            if name not in known and value not in (None, False, "", [], {}):
                self.note(f"{prefix}{name}", "not converted")

    def note_carried(self, values: Mapping[str, Json], names: Sequence[str], where: str = "") -> None:
        """Add a note for each field that the payload carries."""
        prefix = f"{where}." if where else ""
        for name in names:
            if values.get(name) not in (None, False, "", [], {}):
                self.note(f"{prefix}{name}", "passed in the payload: the target decides what it means")

    def set_message(self, message: str, carried: Mapping[str, Json]) -> None:
        """Set the message; what the target may also need goes into the payload."""
        self.fields["message"] = message
        if carried:
            self.fields["payload"] = {"message": message, **carried}

    def set_delivery(self, channel: Json, to: Json, where: str) -> None:
        """Deliver the output; without a channel, to that of the agent."""
        self.fields["deliver"] = True
        if isinstance(channel, str) and channel not in ("", "last"):
            self.fields["channel"] = channel
        else:
            self.note(where, "goes to the channel of the agent: there it goes to the last conversation")
        if isinstance(to, str) and to:
            self.fields["to"] = to

    def entry(self) -> Entry:
        """Return the entry."""
        title = self.place.item
        self.fields.setdefault("description", str(self.value("description") or title)[:10_000])
        if self.value("enabled") is False:
            self.fields["enabled"] = False
        return Entry(
            self.place, title, slug(title), self.schedule, self.tz, None, self.fields, _agent(self.agent)
        )


def read_store(text: str, file: str, what: str, read: Callable[[JobReader], None]) -> Reading:
    """Return the entries of a store: a list of jobs, or an object with `jobs`."""
    try:
        content = json.loads(text.removeprefix("\ufeff"))
    except ValueError as error:
        raise InvalidArgument(f"{'stdin' if file == '-' else file}: it is not JSON: {error}") from error
    jobs = content.get("jobs") if isinstance(content, dict) else content
    if isinstance(jobs, dict):
        jobs = list(jobs.values())
    if not isinstance(jobs, list):
        raise InvalidArgument(
            f"{'stdin' if file == '-' else file}: it is not a {what}: it has no list of jobs"
        )
    entries: list[Entry] = []
    refused: list[Remark] = []
    notes: list[Remark] = []
    for number, job in enumerate(jobs, 1):
        if not isinstance(job, dict):
            refused.append(Remark(Place(file, f"job {number}"), str(job)[:100], "it is not an object"))
            continue
        reader = JobReader(job, Place(file, str(job.get("name") or job.get("id") or f"job {number}")))
        try:
            read(reader)
            entries.append(reader.entry())
            notes += reader.notes
        except InvalidArgument as error:
            refused.append(Remark(reader.place, reader.place.item, error.message))
    return Reading(tuple(entries), tuple(refused), tuple(notes))


def _agent(name: str | None) -> str | None:
    return slug(name) if name else None
