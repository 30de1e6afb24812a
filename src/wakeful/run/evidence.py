"""Evidence: what shows that the work of a run was done, such as the id of the record that it created. Pure.

It is a JSON object. An executor reports it with `complete`, a command writes it to a file, and other targets
return it as fields of their JSON output. The job names the fields that a success must have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json, json_text

#: The largest evidence, in bytes of compact JSON.
MAX_EVIDENCE: Final = 16 * 1024
#: Names that are read from the output of a job that sets `verify` or `evidence`, besides those it names.
CONVENTIONAL: Final = ("external_id", "result_url", "summary", "artifacts")
_EMPTY: Final[tuple[Json, ...]] = (None, "", [], {})
_EXAMPLE: Final = 'write an object, such as {"external_id": "inv-17"}'


class Evidence(NamedTuple):
    """The evidence of an attempt."""

    #: compact JSON; None: there is none
    text: str | None
    #: why it is not sufficient; None: it is
    problem: str | None = None


def read_evidence(text: str | bytes) -> str:
    """Return the text of reported evidence as compact JSON, or raise InvalidArgument.

    >>> read_evidence('{"external_id": "inv-17"}')
    '{"external_id":"inv-17"}'
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"it is not valid JSON; {_EXAMPLE}") from None
    return write_evidence(value)


def write_evidence(value: object) -> str:
    """Return evidence as compact JSON, or raise InvalidArgument if it is not an object, or is too large."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"it is not an object; {_EXAMPLE}")
    return json_text(value, MAX_EVIDENCE)


def collect_evidence(
    names: Sequence[str], output: str | None, reported: str | None, error: str | None = None
) -> Evidence:
    """Return the evidence of a success: what was reported, and else the fields of its JSON output.

    A field that is null or empty is missing. `error` says why what was reported could not be read.

    >>> collect_evidence(["external_id"], '{"external_id": 17, "rows": 3}', None)
    Evidence(text='{"external_id":17}', problem=None)
    >>> collect_evidence(["external_id"], "done", '{"summary":"done"}')
    Evidence(text='{"summary":"done"}', problem="the evidence 'external_id' is missing")
    """
    found = _fields(output, (*names, *CONVENTIONAL)) | evidence_object(reported)
    text = reported
    if found:
        try:
            text = write_evidence(found)
        except InvalidArgument as invalid:  # of the output: what was reported is valid
            found, error = evidence_object(reported), error or invalid.message
    missing = [f"'{name}'" for name in names if found.get(name) in _EMPTY]
    if not missing:
        return Evidence(text)
    why = f": {error}" if error else ""
    are = "is" if len(missing) == 1 else "are"
    return Evidence(text, f"the evidence {', '.join(missing)} {are} missing{why}")


def evidence_object(text: str | None) -> dict[str, Json]:
    """Return stored evidence as an object; empty if there is none.

    >>> evidence_object('{"external_id":17}'), evidence_object(None)
    ({'external_id': 17}, {})
    """
    if not text:
        return {}
    found: dict[str, Json] = json.loads(text)
    return found


def _fields(output: str | None, names: Iterable[str]) -> dict[str, Json]:
    """Return these fields of JSON output, unless they are empty."""
    if output is None or not output.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):  # also output that was cut
        return {}
    return {name: value[name] for name in names if value.get(name) not in _EMPTY}
