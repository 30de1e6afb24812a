"""Write the class in client/endpoints.py: a method for each operation of a workspace in the OpenAPI document.

The routes are the declaration: the method has the name of the route's function, its path parameters as
positional parameters, and its query parameters and the fields of a small body as keyword parameters.
"""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from wakeful.server.http_app import create_app
from wakeful.service.services import Services

_TYPES: Final = Path(__file__).parent.parent / "src/wakeful/client/types.py"
#: The paths of the operations.
_PREFIX: Final = "/api/workspaces/{workspace}/"
#: A body with more fields is one argument.
_MAX_FIELDS: Final = 6
#: The types of responses whose schemas have other names, and of the items of lists without a schema.
_SHAPES: Final = {
    "ClaimedRun": "RunShape",
    "Completions.runs": "ReportResultShape",
    "InstanceWithState": "InstanceShape",
    "JobWithTicks": "JobShape",
    "NewHook": "HookShape",
    "NewKey": "KeyShape",
    "Revisions.revisions": "RevisionShape",
    "RunWithAttempts": "RunShape",
    "SavedAgent": "AgentShape",
    "SavedJob": "JobShape",
    "SavedJobs.jobs": "JobShape",
    "SessionWithHistory": "SessionShape",
    "SkippedTick": "JobShape",
}
#: Seconds that operations may take beyond the usual timeout: they wait themselves, or change much.
_EXTRA_TIMEOUTS: Final = {
    "claim_runs": "(wait_ms or 0) / 1000",
    "create_jobs": "300",
    "delete_instance": "30",
    "delete_jobs": "300",
    "pause_jobs": "300",
    "resume_jobs": "300",
    "run_jobs": "300",
    "start_instances": "300",
    "test_channel": "30",
    "test_target": "30",
    "verify_audit": "600",
}
#: Parameters of paths that are any text.
_PARTS: Final = {"{instance}": "instance_to_path(instance)"}
#: When a response may have no content, if it may not always.
_OPTIONAL: Final = {"run_job": 'mode == "due"'}
_KINDS: Final = {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}
_HEADER: Final = '''from __future__ import annotations

from collections.abc import Mapping, Sequence

from wakeful.client.connection import WorkspaceConnection
from wakeful.client.fields import document, given_fields
from wakeful.client.types import (
{shapes}
)
from wakeful.model import Page
from wakeful.values.instance_names import instance_to_path
from wakeful.values.json_value import Json


class Endpoints(WorkspaceConnection):
    """The operations of a workspace. A query parameter or field that is None is not sent."""
'''

Schema = Mapping[str, Any]


def endpoints() -> list[str]:
    """Return the lines of the class, with its imports."""
    openapi = create_app(cast(Services, None)).openapi()
    schemas = openapi["components"]["schemas"]
    lines: list[str] = []
    for path, methods in openapi["paths"].items():
        for verb, operation in methods.items():
            if path.startswith(_PREFIX) and _result(operation) != {}:
                lines += ["", *_method(verb.upper(), path, operation, schemas)]
    body = "".join(f"    {line}\n" for line in lines)
    used = sorted(set(re.findall(r"\b\w+Shape\b", body)), key=str.lower)
    text = _HEADER.replace("{shapes}", "\n".join(f"    {name}," for name in used)) + body
    return [*_format(text).splitlines(), "", ""]


def _method(verb: str, path: str, operation: Schema, schemas: Schema) -> Iterator[str]:
    name = _snake(operation["operationId"])
    parts = path.removeprefix(_PREFIX).split("/")
    parameters = {each["name"]: each for each in operation.get("parameters", ())}
    positional = [
        f"{each[1:-1]}: {_type(parameters[each[1:-1]]['schema'])}" for each in parts if each.startswith("{")
    ]
    query = [each for each in parameters.values() if each["in"] == "query"]
    keywords = [f"{_argument(each['name'])}: {_type(each['schema'])} | None = None" for each in query]
    place = "/".join("{}" if each.startswith("{") else each for each in parts)
    named = [_PARTS.get(each, each[1:-1]) for each in parts if each.startswith("{")]
    call = [f'"{verb} {place}"', *named]
    if query:
        pairs = ", ".join(f'"{each["name"]}": {_argument(each["name"])}' for each in query)
        call.append(f"query={{{pairs}}}")
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        body = schemas[_name(content["application/json"]["schema"])]
        fields, required = body.get("properties", {}), body.get("required", ())
        if not 0 < len(fields) <= _MAX_FIELDS:
            several = len(content) > 1  # also a list of objects, as JSON
            positional.append("body: Json" if several else "body: Mapping[str, object]")
            call.append("body=body" if several else "body=document(body)")
        else:
            for each, schema in fields.items():
                type_ = _type(schema, "object")
                if type_ != "object" and (each not in required or "null" in str(schema.get("type"))):
                    type_ += " | None"
                keywords.append(f"{_argument(each)}: {type_}{'' if each in required else ' = None'}")
            call.append(f"body={_body(fields, required)}")
    if "if-match" in parameters:
        keywords.append("if_version: int | None = None")
        call.append("if_version=if_version")
    if name in _EXTRA_TIMEOUTS:
        call.append(f"extra_timeout={_EXTRA_TIMEOUTS[name]}")
    result = _result(operation)
    optional = bool(result) and "204" in operation["responses"]
    if optional:
        call.append(f"optional={_OPTIONAL.get(name, True)}")
    if keywords:
        positional += ["*", *sorted(keywords, key=_is_optional)]
    signature = ", ".join(["self", *positional])
    returns, statements = _read(result, ", ".join(call), optional, schemas)
    yield f"async def {name}({signature}) -> {returns}:"
    yield f'    """{operation["summary"]}."""'
    yield from (f"    {line}" for line in statements)


def _is_optional(keyword: str) -> bool:
    return keyword.endswith("= None")


def _body(fields: Iterable[str], required: Iterable[str]) -> str:
    pairs = {each: f'"{each}": {_argument(each)}' for each in fields}
    needed = [pairs[each] for each in fields if each in required]
    others = [pairs[each] for each in fields if each not in required]
    given = f"given_fields({{{', '.join(others)}}})"
    if not needed:
        return given
    return f"document({{{', '.join(needed)}}})" + (f" | {given}" if others else "")


def _result(operation: Schema) -> Schema | None:
    """Return the schema of the response; None: it has no content. {}: it is not JSON."""
    for status, response in operation["responses"].items():
        if status in ("200", "201", "202"):
            content = response.get("content", {}).get("application/json")
            return cast(Schema, content["schema"]) if content else {}
    return None


def _read(schema: Schema | None, call: str, optional: bool, schemas: Schema) -> tuple[str, list[str]]:
    """Return the type of a result, and the statements that return it from a call with these arguments."""
    if not schema:
        return "None", [f"await self._request({call})"]
    name = _name(schema)
    fields: Schema = schemas[name].get("properties", {})
    lists = {each: _items(name, each, schema) for each, schema in fields.items() if _is_list(schema)}
    if len(lists) == 1:
        ((field, (item, kind)),) = lists.items()
        if "cursor" in fields:
            return f"Page[{item}]", [f'return await self._request_page("{field}", {kind}, {call})']
        if len(fields) == 1:
            return f"list[{item}]", [f'return await self._request_list("{field}", {kind}, {call})']
    shape = _shape(name)
    returned = f"return await self._request({call})"
    if optional:
        return f"{shape} | None", [returned]
    if not lists or {"id", "name", "workspace"} & {*fields}:
        return shape, [returned]
    required = schemas[name].get("required", ())
    checked = ", ".join(f'"{field}": {lists[field][1]}' for field in lists if field in required)
    return shape, [f"return await self._request({call}, lists={{{checked}}})" if checked else returned]


def _is_list(schema: Schema) -> bool:
    return schema.get("type") == "array"


def _items(name: str, field: str, schema: Schema) -> tuple[str, str]:
    """Return the type of the items of a list, and their class."""
    items = schema["items"]
    if items.get("type") == "string":
        return "str", "str"
    return _shape(_name(items) or f"{name}.{field}"), "dict"


def _shape(schema: str) -> str:
    shape = _SHAPES.get(schema, f"{schema}Shape")
    known = re.search(rf"^(class )?{shape}\b", _TYPES.read_text(encoding="utf-8"), re.MULTILINE)
    return shape if known else "dict[str, Json]"


def _type(schema: Schema, other: str = "str") -> str:
    """Return the type of a parameter or of a field of the body."""
    kinds = [schema, *schema.get("anyOf", ())]
    found = {
        type_
        for each in kinds
        for type_ in (each.get("type") if isinstance(each.get("type"), list) else [each.get("type")])
        if type_ not in (None, "null")
    }
    if found == {"array"}:
        items = next(each["items"] for each in kinds if "items" in each)
        return "Sequence[str]" if items.get("type") == "string" else "Sequence[Mapping[str, object]]"
    if found == {"object"}:
        return "Mapping[str, object]"
    if len(found) == 1:
        return _KINDS[found.pop()]
    return "str" if "$ref" in schema or any("$ref" in each for each in kinds) else other


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _argument(name: str) -> str:
    name = _snake(name)
    return f"{name}_" if keyword.iskeyword(name) else name


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _format(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
