"""The schemas of the OpenAPI document: what the shapes of the service layer look like, and what it takes.

They are written by hand, as the shapes are: the service layer judges what comes in, and says what is wrong in
its own words, so that a schema here tells and never decides. A test holds them against each other.
"""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas import admin, enums, jobs, runs
from wakeful.api.http.schemas.parts import Schema

#: Every schema, by the name that it has in the document.
SCHEMAS: Final[dict[str, Schema]] = {**enums.SCHEMAS, **jobs.SCHEMAS, **runs.SCHEMAS, **admin.SCHEMAS}

__all__ = ["SCHEMAS"]
