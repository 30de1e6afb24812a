"""Render templates: the Jinja environment, the security headers, and single regions of a page.

A region is a block of a template, `{% block region_NAME %}`. If the browser asks for one, only that block is
rendered; of several, each in a `<template id="region-NAME">`. All values are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from wakeful.dashboard import charts, formats, icons
from wakeful.dashboard.assets import asset_url
from wakeful.values.package_version import package_version
from wakeful.values.stored_text import cleaned

if TYPE_CHECKING:
    from wakeful.dashboard.context import Page

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: The headers of every page.
HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "vary": "x-wakeful-region",
}


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
    made.globals.update(asset=asset_url, charts=charts, icons=icons, version=package_version())
    # A global, not an import of each template: a region is rendered without the rest of its template.
    made.globals["ui"] = made.get_template("macros.html").module
    return made


def render_page(page: Page | None, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """Return a page, or the region that the browser asks for. `page` is None without a session."""
    found = environment().get_template(template)
    given = {"page": page, **values}
    regions = page.regions if page is not None else ()
    if not regions:
        return HTMLResponse(cleaned(found.render(given)), status, HEADERS)
    if not all(f"region_{name}" in found.blocks for name in regions):
        return Response("no such region", 404, HEADERS, media_type="text/plain")
    context = found.new_context(given)
    if len(regions) == 1:
        return HTMLResponse(cleaned(_block(found, context, regions[0])), status, HEADERS)
    part = Markup('<template id="region-{}">{}</template>')
    parts = [part.format(name, Markup(_block(found, context, name))) for name in regions]
    return HTMLResponse(cleaned(Markup("").join(parts)), status, HEADERS)


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
