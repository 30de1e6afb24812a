"""The static files of the dashboard: `/assets/VERSION/NAME`, where the version changes with any of them.

So browsers keep them forever, and modules import each other by relative names. They are read once and kept,
also compressed.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.compression import accepts_gzip

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
    return f"/assets/{version()}/{name}"


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
