"""The parts that schemas are made of."""

from __future__ import annotations

from typing import Any, Final

from wakeful.document.guards import MOST_COST, TOKENS_PER_DAY
from wakeful.document.values import Bounded, Reader
from wakeful.job import MAX_NAME
from wakeful.schedule import LATEST_MS, LONGEST_TEXT

#: A JSON schema, which may hold anything that JSON can.
Schema = dict[str, Any]

BOOLEAN: Final[Schema] = {"type": "boolean"}
TEXT: Final[Schema] = {"type": "string"}
ID: Final[Schema] = {"type": "string", "format": "uuid"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time", "description": "ISO 8601, in UTC."}
OBJECT: Final[Schema] = {"type": "object"}
#: Any JSON.
ANY: Final[Schema] = {}
SLUG: Final[Schema] = {
    "type": "string",
    "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    "minLength": 1,
    "maxLength": MAX_NAME,
}


def text(longest: int, shortest: int = 0) -> Schema:
    """A text of so many characters."""
    return {"type": "string", "minLength": shortest, "maxLength": longest}


def whole(least: int, most: int) -> Schema:
    """A whole number in a range."""
    return {"type": "integer", "minimum": least, "maximum": most}


def one_of(*words: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(words)}


def taken(read: Reader | None) -> Schema:
    """What a reader takes: the bounds in the document are those that it enforces."""
    assert isinstance(read, Bounded)
    return dict(read.schema)


def or_null(schema: Schema) -> Schema:
    """The same, or null.

    >>> or_null({"type": "string"})
    {'type': ['string', 'null']}
    """
    kind = schema.get("type")
    if not isinstance(kind, str):
        return {"anyOf": [schema, {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "type": [kind, "null"], "enum": [*schema["enum"], None]}
    return {**schema, "type": [kind, "null"]}


#: An instant as it is given.
TIME: Final[Schema] = {
    "description": "Milliseconds since 1970, or ISO 8601; without a zone of its own, in the job's.",
    "anyOf": [whole(0, LATEST_MS), text(LONGEST_TEXT, 1)],
}
#: A length of time as it is given.
DURATION: Final[Schema] = {"type": "string", "examples": ["30s", "1h30m"]}
#: What is shown of a thing and may come back with a document that was read; it says nothing.
READ_ONLY: Final[Schema] = {"description": "Read, and not written.", "readOnly": True}


#: How much may be used on one day, as it is given.
BUDGET: Final[Schema] = {
    "type": "object",
    "description": "How much its runs may use on one day (UTC).",
    "properties": {
        "tokensPerDay": taken(TOKENS_PER_DAY),
        "costPerDay": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_COST},
    },
    "minProperties": 1,
    "additionalProperties": False,
}
#: At which hours of the day runs start.
ACTIVE_HOURS: Final[Schema] = {
    "type": "string",
    "description": "Its runs start within these hours of its zone, and at no others.",
    "examples": ["08:00-22:00"],
}
#: A secret in the response that made it.
SECRET: Final[Schema] = {
    "type": "string",
    "description": "Signs the webhook; shown when it was made and never again.",
    "examples": ["whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="],
}
#: What was used on the day so far.
SPENT: Final[Schema] = {
    "type": "object",
    "description": "What its runs have used today (UTC).",
    "properties": {"tokens": WHOLE, "cost": {"type": "number", "minimum": 0}},
    "required": ["tokens", "cost"],
    "additionalProperties": False,
}


def list_of(schema: Schema, most: int | None = None) -> Schema:
    """A list of these."""
    return {"type": "array", "items": schema, **({} if most is None else {"maxItems": most})}


def ref(name: str) -> Schema:
    """Another schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def shape(properties: dict[str, Schema], *optional: str, says: str = "") -> Schema:
    """What is answered: an object of these properties and no others, all there but the optional ones."""
    return {
        "type": "object",
        **({"description": says} if says else {}),
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def document(properties: dict[str, Schema], *required: str, says: str = "") -> Schema:
    """What is sent: an object of these properties and no others, none needed but the required ones."""
    return {
        "type": "object",
        **({"description": says} if says else {}),
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def page_of(name: str, schema: str) -> Schema:
    """A page of a list."""
    cursor = {**or_null(TEXT), "description": "Send it as `cursor` for the next page; null on the last."}
    return shape({name: list_of(ref(schema)), "cursor": cursor})
