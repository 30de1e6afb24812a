"""The building blocks of schemas."""

from __future__ import annotations

from typing import Any, Final

from wakeful.document.guards import MOST_COST, TOKENS
from wakeful.document.kinds import Kind, Reader, hours, slug
from wakeful.schedule.schedules import LONGEST_TEXT
from wakeful.service.agents.agents import LANE_WEIGHTS
from wakeful.values.instance_names import MAX_INSTANCE
from wakeful.values.instants import LATEST_MS

#: A JSON schema, which may contain any JSON.
Schema = dict[str, Any]


def schema_of(read: Reader | None) -> Schema:
    """Return the schema of the values that a kind accepts, with the bounds that it enforces."""
    assert isinstance(read, Kind)
    assert read.schema is not None
    return dict(read.schema)


BOOLEAN: Final[Schema] = {"type": "boolean"}
TEXT: Final[Schema] = {"type": "string"}
ID: Final[Schema] = {"type": "string", "format": "uuid"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time", "description": "ISO 8601, in UTC."}
OBJECT: Final[Schema] = {"type": "object"}
#: Any JSON.
ANY: Final[Schema] = {}
SLUG: Final[Schema] = schema_of(slug("name"))


#: The name of an instance in a response.
INSTANCE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_INSTANCE}


def text(longest: int, shortest: int = 0) -> Schema:
    """Text with a length in this range."""
    return {"type": "string", "minLength": shortest, "maxLength": longest}


def whole(least: int, most: int) -> Schema:
    """A whole number in this range."""
    return {"type": "integer", "minimum": least, "maximum": most}


def one_of(*words: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(words)}


def or_null(schema: Schema) -> Schema:
    """Return the schema extended by null.

    >>> or_null({"type": "string"})
    {'type': ['string', 'null']}
    """
    kind = schema.get("type")
    if not isinstance(kind, str):
        return {"anyOf": [schema, {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "type": [kind, "null"], "enum": [*schema["enum"], None]}
    return {**schema, "type": [kind, "null"]}


#: An instant in a request.
TIME: Final[Schema] = {
    "description": "Milliseconds since 1970, or ISO 8601; without an offset, in the zone of the job.",
    "anyOf": [whole(0, LATEST_MS), text(LONGEST_TEXT, 1)],
}
#: A length of time in a request.
DURATION: Final[Schema] = {"type": "string", "examples": ["30s", "1h30m"]}
#: A field of a response that is accepted in a request, and ignored.
READ_ONLY: Final[Schema] = {"description": "Accepted and ignored.", "readOnly": True}
#: A budget in a request.
BUDGET: Final[Schema] = {
    "type": "object",
    "description": "How much its runs may use per day (UTC), and each run.",
    "properties": {
        "tokensPerDay": schema_of(TOKENS),
        "costPerDay": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_COST},
        "tokensPerRun": schema_of(TOKENS),
        "costPerRun": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_COST},
    },
    "minProperties": 1,
    "additionalProperties": False,
}
#: The hours of the day when runs start.
ACTIVE_HOURS: Final[Schema] = {
    **schema_of(hours),
    "description": "Its runs start only within these hours of its zone.",
}
#: A secret in the response that created it.
MAY: Final[Schema] = {"type": "array", "items": {"type": "string"}}
WARNINGS: Final[Schema] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Why it may not do what is expected: absent if there is no such reason.",
}
SECRET: Final[Schema] = {
    "type": "string",
    "description": "Signs the webhook; shown only in the response that created it.",
    "examples": ["whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="],
}
#: The use of the current day.
SPENT: Final[Schema] = {
    "type": "object",
    "description": "What its runs have used today (UTC).",
    "properties": {"tokens": WHOLE, "cost": {"type": "number", "minimum": 0}},
    "required": ["tokens", "cost"],
    "additionalProperties": False,
}


#: The share of a workspace in full lanes.
LANE_WEIGHT: Final[Schema] = {
    "type": "number",
    "minimum": LANE_WEIGHTS[0],
    "maximum": LANE_WEIGHTS[1],
    "description": "Its share of a full lane, compared with other workspaces. 1 unless set.",
}


def list_of(schema: Schema, most: int | None = None) -> Schema:
    """A list of at most this many items."""
    return {"type": "array", "items": schema, **({} if most is None else {"maxItems": most})}


def ref(name: str) -> Schema:
    """A reference to another schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def response(properties: dict[str, Schema], *optional: str, about: str = "") -> Schema:
    """An object in a response: exactly these properties, all present except for the optional ones."""
    return {
        "type": "object",
        **({"description": about} if about else {}),
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def request(properties: dict[str, Schema], *required: str, about: str = "") -> Schema:
    """An object in a request: no other properties, and only the named ones are required."""
    return {
        "type": "object",
        **({"description": about} if about else {}),
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def page_of(name: str, schema: str) -> Schema:
    """A page of a list."""
    cursor = {**or_null(TEXT), "description": "Send it as `cursor` for the next page; null on the last."}
    return response({name: list_of(ref(schema)), "cursor": cursor})


#: A channel and a recipient on it.
ADDRESS: Final[Schema] = request({"channel": text(255, 1), "to": or_null(text(1_024, 1))}, "channel")
#: A schedule in a response.
NORMAL_SCHEDULE: Final[Schema] = response(
    {"kind": ref("ScheduleKind"), "atMs": WHOLE, "everyMs": WHOLE, "expr": TEXT, "tz": TEXT},
    "atMs",
    "everyMs",
    "expr",
    "tz",
    about="The normal form: `at` has `atMs`, `every` has `everyMs`, `cron` has `expr`.",
)
