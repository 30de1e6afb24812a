"""The page at /docs: every path with its fields, an example and its responses, from the OpenAPI document.

It is plain HTML: it runs no script and loads nothing, so it works without a network, and its content security
policy allows only its own style.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from wakeful.api.http.responses import PAGE_HEADERS

router = APIRouter(include_in_schema=False)

#: The prefix of most paths, shown in a lighter colour.
_PREFIX: Final = "/api/workspaces/{workspace}"
#: A larger limit is only a storage limit and is not shown.
_LARGE: Final = 2**31 - 1
_CODE: Final = re.compile(r"`([^`]+)`")
_SLUG: Final = re.compile(r"[^a-z0-9]+")
Schema = Mapping[str, Any]


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Return the page."""
    if not hasattr(request.app.state, "docs"):
        request.app.state.docs = page(request.app.openapi())
    headers = {**PAGE_HEADERS, "content-security-policy": _policy()}
    return HTMLResponse(request.app.state.docs, headers=headers)


def page(document: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document."""
    operations: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            operations[operation["tags"][0]].append(_operation(verb, path, operation, document))
    sections = {tag: "".join(parts) for tag, parts in operations.items() if parts}
    schemas = document["components"]["schemas"]
    links = "".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in (*sections, "schemas"))
    info = document["info"]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(info["title"])} HTTP API</title>
<style>{_style()}</style>
</head>
<body>
<nav>
<strong>{escape(info["title"])}</strong> <span>{escape(info["version"])}</span>
{links}
<a class="apart" href="openapi.json">openapi.json</a>
</nav>
<main>
<h1>{escape(info["title"])} HTTP API</h1>
{_prose(info["description"])}
{"".join(f'<h2 id="{_anchor(tag)}">{escape(tag)}</h2>{html}' for tag, html in sections.items())}
<h2 id="schemas">schemas</h2>
{"".join(_schema(name, schema) for name, schema in schemas.items())}
</main>
</body>
</html>
"""


def _operation(verb: str, path: str, operation: Schema, document: Schema) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    parts = [
        f"<p>{_inline(operation.get('description', ''))}</p>",
        f"<pre>{escape(_example(verb, path, operation, body))}</pre>",
        _table("Parameters", [_parameter(each) for each in operation.get("parameters", ())]),
    ]
    if body:
        schema = _resolved(body["schema"], document)
        table = _table("Body", _fields(schema)) or f"<h4>Body</h4><p>{_type(body['schema'])}</p>"
        left_out = "" if operation["requestBody"].get("required") else "<p>It may be left out.</p>"
        parts += [table, left_out]
    parts.append(_table("Answers", [_answer(*each) for each in sorted(operation["responses"].items())]))
    prefix = _PREFIX if path.startswith(_PREFIX) else ""
    rest = escape(path.removeprefix(prefix))
    return f"""
<details id="{_anchor(verb + path)}">
<summary><b class="{verb}">{verb.upper()}</b><code><i>{prefix}</i>{rest}</code>
<span>{escape(operation.get("summary", ""))}</span></summary>
{"".join(parts)}
</details>"""


def _schema(name: str, schema: Schema) -> str:
    return f"""
<details id="{_anchor("schema " + name)}">
<summary><code>{escape(name)}</code> <span>{_inline(schema.get("description", ""))}</span></summary>
{_table("", _fields(schema)) or f"<p>{_type(schema)}</p>"}
</details>"""


# --- rows: a name, a type and a description ---------------------------------------------------------------

Row = tuple[str, str, str]


def _parameter(given: Schema) -> Row:
    needed = " <em>required</em>" if given.get("required") and given["in"] != "path" else ""
    schema = given.get("schema", {})
    said = given.get("description") or schema.get("description", "")
    return (
        f"<code>{escape(given['name'])}</code>{needed}",
        f"{_type(schema)}, in {given['in']}",
        _inline(said),
    )


def _fields(schema: Schema, within: str = "") -> list[Row]:
    """Return the fields of an object, and of its nested objects."""
    rows = []
    for name, field in schema.get("properties", {}).items():
        needed = " <em>required</em>" if name in schema.get("required", ()) and not within else ""
        said = " ".join(filter(None, [_inline(_said(field)), _limits(field)]))
        rows.append((f"<code>{within}{escape(name)}</code>{needed}", _type(field), said))
        rows += _fields(field, f"{within}{escape(name)}.")
    return rows


def _answer(status: str, answer: Schema) -> Row:
    kinds = [
        _type(content["schema"]) for content in answer.get("content", {}).values() if "schema" in content
    ]
    headers = "".join(
        f"<br><code>{escape(name)}</code>: {_inline(header.get('description', ''))}"
        for name, header in answer.get("headers", {}).items()
    )
    return f"<code>{status}</code>", " or ".join(kinds), _inline(answer["description"]) + headers


def _table(title: str, rows: Iterable[Row]) -> str:
    cells = "".join(f"<tr><th>{name}</th><td>{kind}</td><td>{said}</td></tr>" for name, kind, said in rows)
    heading = f"<h4>{title}</h4>" if title else ""
    return f'{heading}<div class="wide"><table>{cells}</table></div>' if cells else ""


# --- schemas in words -------------------------------------------------------------------------------------


def _type(schema: Schema) -> str:
    """Return the type of a value in words: `text`, `list of Job`, `number or null`."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{_anchor("schema " + name)}">{name}</a>'
    if "enum" in schema:
        return " | ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    kinds = schema.get("type", "anything")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(_kind(kind, schema) for kind in kinds)


def _kind(kind: str, schema: Schema) -> str:
    if kind == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    return {
        "string": str(schema.get("format", "text")),
        "integer": "whole number",
        "boolean": "true or false",
    }.get(kind, kind)


def _said(schema: Schema) -> str:
    """Return the description of a schema, or of its first alternative."""
    if "description" in schema:
        return str(schema["description"])
    return next(filter(None, (_said(each) for each in schema.get("anyOf", ()))), "")


def _limits(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None and high < _LARGE:
        return f"{low or 0} to {high}."
    return f"At least {low}." if low else ""


def _resolved(schema: Schema, document: Schema) -> Schema:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Schema = document["components"]["schemas"][name] if name else schema
    return found


def _example(verb: str, path: str, operation: Schema, body: Schema | None) -> str:
    """Return the request as a command line."""
    pieces = ["curl" if verb == "get" else f"curl -X {verb.upper()}", f'"$WAKEFUL_URL{path}"']
    if operation.get("security"):
        pieces.append('-H "Authorization: Bearer $WAKEFUL_KEY"')
    if body and "example" in body:
        sent = json.dumps(body["example"], indent=2, ensure_ascii=False).replace("\n", "\n  ")
        pieces.append(f"-d '{sent}'")
    return " \\\n  ".join([" ".join(pieces[:2]), *pieces[2:]])


# --- text -------------------------------------------------------------------------------------------------


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in text.strip().split("\n\n"))


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _anchor(text: str) -> str:
    return _SLUG.sub("-", text.lower()).strip("-")


@cache
def _style() -> str:
    return files("wakeful.api.http").joinpath("docs.css").read_text()


@cache
def _policy() -> str:
    """Return the content security policy of the page."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"
