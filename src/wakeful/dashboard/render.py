"""Render templates: the Jinja environment, and single regions of a page.

A region is a block of a template, `{% block region_NAME %}`. If the browser asks for one, only that block is
rendered; of several, each in a `<template id="region-NAME">`. All values are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from wakeful.api.http.responses import PAGE_HEADERS
from wakeful.dashboard import charts, formats, icons
from wakeful.dashboard.assets import asset_url
from wakeful.values.package import VERSION
from wakeful.values.stored_text import cleaned


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
    made.filters.update(formats.FILTERS, with_code=with_code)
    made.globals.update(asset=asset_url, charts=charts, icons=icons, version=VERSION)
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
        return HTMLResponse(cleaned(found.render(given)), status, PAGE_HEADERS)
    if not all(f"region_{name}" in found.blocks for name in regions):
        return Response("no such region", 404, PAGE_HEADERS, media_type="text/plain")
    context = found.new_context(given)
    if len(regions) == 1:
        return HTMLResponse(cleaned(_block(found, context, regions[0])), status, PAGE_HEADERS)
    part = Markup('<template id="region-{}">{}</template>')
    parts = [part.format(name, Markup(_block(found, context, name))) for name in regions]
    return HTMLResponse(cleaned(Markup("").join(parts)), status, PAGE_HEADERS)


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
