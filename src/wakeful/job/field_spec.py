"""The parts of a job field declaration besides its type and default.

A job field is declared once, as an annotated attribute of `Timing`, `Policy`, `Work` or `Definition`:

    max_queued: Annotated[int, FieldSpec("How many runs may wait.", low=1, high=10_000)] = 100

`wakeful.document.fields` derives the rest from it: how the value is read, its JSON schema, the Python option,
the CLI flag, what the MCP tool understands, and the row in docs/reference/job.md. Run `make generate` after a
change: it rewrites the derived parts of source files and documentation pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: The group of a field in the documentation and in the help of the CLI.
Section = Literal["schedule", "target", "policy", "delivery"]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The name, bounds and documentation of a job field."""

    #: one or two sentences in Markdown; links are relative to docs/reference
    doc: str
    section: Section = "policy"
    #: the JSON name, unless it is the name of the attribute in camelCase
    name: str = ""
    #: the least and the greatest number, both included; of a text, `high` is the greatest length
    low: int = 0
    high: int | None = None
    #: the flags of `wakeful add`, unless there is one with the field's name
    flags: tuple[str, ...] = ()
    #: the description in the schema of the MCP tool; empty: the tool reads the field but does not list it
    tool: str = ""
    #: the default in the documentation, where it is no fixed value
    default: str = ""
