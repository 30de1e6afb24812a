"""The OpenAPI document, which several modules need when tests are collected."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from wakeful.server.http_app import create_app
from wakeful.service.services import Services


@cache
def openapi_document() -> dict[str, Any]:
    """Return the document; do not change it. It does not depend on the services."""
    return create_app(cast(Services, None)).openapi()
