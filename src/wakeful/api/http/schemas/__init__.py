"""The schemas of the OpenAPI document.

They document requests and responses and validate nothing: the service layer validates requests and writes the
error messages. Tests compare the schemas with the documents that are read and written.
"""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas import admin, agents, enums, jobs, runs
from wakeful.api.http.schemas.parts import Schema
from wakeful.api.http.schemas.resources import resource_schemas

#: Every schema by its name in the document.
SCHEMAS: Final[dict[str, Schema]] = {
    **enums.SCHEMAS,
    **resource_schemas(),
    **jobs.SCHEMAS,
    **runs.SCHEMAS,
    **agents.SCHEMAS,
    **admin.SCHEMAS,
}

__all__ = ["SCHEMAS"]
