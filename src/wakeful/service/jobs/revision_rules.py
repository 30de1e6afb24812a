"""The history of the definition of a job, as a list of changes. Pure.

The store keeps the document before each change (`NewRevision`). The list has one revision for each
change, with what it changed and who made it; the last one is the creation, unless older rows were deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.document import write_definition
from wakeful.document.fields import WORKFLOW
from wakeful.job.job import Definition, JobRecord
from wakeful.service.auth.masking import FIELDS as CREDENTIAL_FIELDS
from wakeful.service.auth.masking import has_mask, mask_document
from wakeful.store.rows import MAX_REVISIONS, NewRevision, RevisionRow
from wakeful.values.json_value import Json, compact

#: Short forms of the target.
_DERIVED: Final = frozenset(field.name for field in WORKFLOW)


class FieldChange(NamedTuple):
    """A changed field, with its values before and after."""

    field: str
    before: Json
    after: Json

    @property
    def hidden(self) -> bool:
        """Whether only credentials changed, which are not kept."""
        return self.before == self.after


class Revision(NamedTuple):
    """One state of the definition of a job, and the change that made it."""

    #: the version of the job since which it was so
    version: int
    at_ms: int
    #: who made it: `role:actor`; '' if that was not recorded
    by: str
    #: what the change before it changed; empty for the creation
    changes: tuple[FieldChange, ...]
    #: the fields that had a value, without credentials
    document: Mapping[str, Json]


def document_of(definition: Definition) -> dict[str, Json]:
    """Return the fields of a definition that have a value, with credentials masked."""
    return {name: value for name, value in mask_document(_full(definition)).items() if value is not None}


def new_revision(old: Definition, new: Definition, by: str) -> NewRevision | None:
    """Return what a change from one definition to another records; None if no field changes."""
    fields: list[Json] = [*changed_fields(_full(old), _full(new))]
    return NewRevision(compact(document_of(old)), compact(fields), by) if fields else None


def changed_fields(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    """Return the names of the fields that differ, in the order of the documents. A missing field is null.

    >>> changed_fields({"tz": "UTC", "lane": "cron"}, {"tz": "Asia/Tokyo", "lane": "cron", "payload": 1})
    ['tz', 'payload']
    """
    # Texts are compared: to Python 1 and true are equal, to a receiver they are not.
    return [name for name in {**before, **after} if _text(before.get(name)) != _text(after.get(name))]


def differing_fields(one: Revision, other: Revision) -> list[FieldChange]:
    """Return the fields in which two revisions differ."""
    names = changed_fields(one.document, other.document)
    return [FieldChange(name, one.document.get(name), other.document.get(name)) for name in names]


def build_revisions(job: JobRecord, rows: Sequence[RevisionRow]) -> list[Revision]:
    """Return the revisions of a job, the current one first. `rows` are its stored ones, newest first."""
    documents = [document_of(job.definition), *(json.loads(row.document) for row in rows)]
    found = [
        Revision(
            row.version + 1,
            row.replaced_ms,
            row.replaced_by,
            tuple(
                FieldChange(name, documents[number + 1].get(name), documents[number].get(name))
                for name in json.loads(row.fields)
            ),
            documents[number],
        )
        for number, row in enumerate(rows)
    ]
    if len(rows) < MAX_REVISIONS:
        found.append(Revision(1, job.created_ms, job.created_by, (), documents[-1]))
    return found


def restoring_patch(current: Mapping[str, Json], wanted: Mapping[str, Json]) -> dict[str, Json]:
    """Return the patch that gives a job the fields of an earlier revision.

    >>> restoring_patch({"name": "a", "tz": "UTC", "message": "go"}, {"name": "a", "tz": "Asia/Tokyo"})
    {'tz': 'Asia/Tokyo', 'message': None}
    """
    return {name: wanted.get(name) for name in changed_fields(current, wanted)}


def lost_credentials(patch: Mapping[str, Json]) -> list[str]:
    """Return the fields of a patch whose credentials are not kept, so that they cannot be restored."""
    return [name for name in CREDENTIAL_FIELDS if has_mask(patch.get(name))]


def _full(definition: Definition) -> dict[str, Json]:
    return {name: value for name, value in write_definition(definition).items() if name not in _DERIVED}


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
