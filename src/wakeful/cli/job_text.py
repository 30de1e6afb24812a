"""A job as a text to edit, and the changes that an edited text makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.document.definition import DEFINITION
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json
from wakeful.values.yaml_text import dump_yaml, load_yaml

_RULE: Final = "# " + "-" * 70
_ERROR: Final = "# ERROR: "
_GIVE_UP: Final = "# Correct the text, or save it as it is to give up."


def job_text(title: str, document: Mapping[str, Json]) -> str:
    """Return the text to edit: an explanation, and the document as YAML."""
    return (
        f"# {title}\n"
        "# Save and close the editor to apply the changes. A field that you remove gets its default.\n"
        "# '***' stands for a credential; leave its field as it is to keep it.\n"
        "# An empty file changes nothing.\n"
        f"{_RULE}\n{dump_yaml(dict(document))}"
    )


def with_error(text: str, error: str) -> str:
    """Return an edited text with the error on top, in place of the error before.

    >>> print(with_error(with_error("# Job\\nname: a\\n", "one"), "two"), end="")
    # ERROR: two
    # Correct the text, or save it as it is to give up.
    # Job
    name: a
    """
    lines = [f"{_ERROR}{line}" for line in error.splitlines()]
    return "\n".join([*lines, _GIVE_UP, without_error(text)])


def without_error(text: str) -> str:
    """Return an edited text without the error on top."""
    kept = [line for line in text.splitlines() if not line.startswith(_ERROR) and line != _GIVE_UP]
    return "\n".join(kept) + "\n"


def read_job_text(text: str) -> dict[str, Json] | None:
    """Return the document of an edited text; None if it has none. InvalidArgument if it is not an object."""
    content = load_yaml(text, "the text")
    if content is None:
        return None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InvalidArgument("the text: write the fields of one job, such as 'schedule: 0 9 * * *'")
    return content


def job_patch(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """Return the changes from one document to another; a removed field is reset with null.

    >>> job_patch({"name": "a", "tz": "UTC", "lane": "x"}, {"name": "a", "tz": "Asia/Tokyo"})
    {'tz': 'Asia/Tokyo', 'lane': None}
    """
    changed = {name: value for name, value in after.items() if _differ(before, name, value)}
    return {**changed, **{name: None for name in before if name not in after}}


def changed_fields(old: Mapping[str, Json], new: Mapping[str, Json]) -> dict[str, tuple[Json, Json]]:
    """Return the old and the new value of each field that differs between two states of a job."""
    names = (*DEFINITION, "enabled")
    return {name: (old.get(name), new.get(name)) for name in names if _differ(old, name, new.get(name))}


def _differ(before: Mapping[str, Json], name: str, value: Json) -> bool:
    # In Python 1 equals true; in JSON it does not.
    old = before.get(name)
    return name not in before or old != value or repr(old) != repr(value)
