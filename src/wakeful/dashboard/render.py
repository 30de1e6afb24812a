"""Render templates: the Jinja environment, single regions of a page, and the static files.

A region is a block of a template, `{% block region_NAME %}`. If the browser asks for one, only that block
is rendered; of several, each in a `<template id="region-NAME">`. All values are escaped.

Static files are served at `/assets/VERSION/NAME`, where the version changes with any of them.
So browsers keep them forever, and modules import each other by relative names. They are read once and kept,
also compressed.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from wakeful.api.http.compression import accepts_gzip
from wakeful.api.http.responses import PAGE_HEADERS
from wakeful.api.http.root_path import href
from wakeful.dashboard import charts, formats, icons
from wakeful.dashboard.markdown import is_markdown, markdown
from wakeful.values.package import VERSION
from wakeful.values.stored_text import clean_text

router = APIRouter(include_in_schema=False)

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}
_FOREVER: Final = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A static file."""

    content: bytes
    compressed: bytes
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by name."""
    found: dict[str, Asset] = {}
    for file in files("wakeful.dashboard").joinpath("static").iterdir():
        media_type = _TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            content = file.read_bytes()
            found[file.name] = Asset(content, gzip.compress(content, 9, mtime=0), media_type)
    return found


@cache
def version() -> str:
    """Return the version of all files together."""
    digest = hashlib.sha256()
    for name, asset in sorted(assets().items()):
        digest.update(name.encode() + b"\0" + asset.content + b"\0")
    return digest.hexdigest()[:12]


def asset_url(name: str) -> str:
    """Return the address of a file."""
    if name not in assets():
        raise LookupError(f"there is no asset {name}")
    return href(f"/assets/{version()}/{name}")


@router.get("/assets/{asked}/{name}")
async def asset(request: Request, asked: str, name: str) -> Response:
    """Return a file. Another version, of a replica that is older or newer, is not kept by the browser."""
    found = assets().get(name)
    if found is None:
        return Response("no such file", 404, media_type="text/plain")
    headers = {
        "cache-control": _FOREVER if asked == version() else "no-store",
        "content-security-policy": "default-src 'none'",  # an image that is opened as a page
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "vary": "accept-encoding",
    }
    content = found.content
    if accepts_gzip(request.headers.get("accept-encoding")):
        content = found.compressed
        headers["content-encoding"] = "gzip"
    return Response(content, 200, headers, media_type=found.media_type)


@cache
def environment() -> Environment:
    """Return the Jinja environment."""
    made = Environment(
        loader=PackageLoader("wakeful.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(formats.FILTERS, with_code=with_code, markdown=markdown)
    made.tests["markdown"] = is_markdown
    made.globals.update(href=href, asset=asset_url, charts=charts, icons=icons, version=VERSION, zip=zip)
    # A global, not an import of each template: a region is rendered without the rest of its template.
    made.globals["ui"] = made.get_template("macros.html").module
    return made


def render_page(
    template: str, values: Mapping[str, Any], status: int = 200, regions: Sequence[str] = ()
) -> Response:
    """Return a page, or the regions that the browser asks for. A page without a session has no `page`."""
    found = environment().get_template(template)
    given = {"page": None, **values}
    if not regions:
        return HTMLResponse(clean_text(found.render(given)), status, PAGE_HEADERS)
    if not all(f"region_{name}" in found.blocks for name in regions):
        return Response("no such region", 404, PAGE_HEADERS, media_type="text/plain")
    context = found.new_context(given)
    if len(regions) == 1:
        return HTMLResponse(clean_text(_block(found, context, regions[0])), status, PAGE_HEADERS)
    part = Markup('<template id="region-{}">{}</template>')
    parts = [part.format(name, Markup(_block(found, context, name))) for name in regions]
    return HTMLResponse(clean_text(Markup("").join(parts)), status, PAGE_HEADERS)


def with_code(text: str) -> Markup:
    """Return a text in which parts between backquotes are code.

    >>> with_code("set `a<b`, then `wakeful serve`")
    Markup('set <code>a&lt;b</code>, then <code>wakeful serve</code>')
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is not closed
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(each) if index % 2 else each for index, each in enumerate(parts))


def _block(template: Template, context: Context, region: str) -> str:
    return "".join(template.blocks[f"region_{region}"](context))
