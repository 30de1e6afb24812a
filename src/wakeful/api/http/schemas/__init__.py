"""The schemas of the OpenAPI document.

They document requests and responses and validate nothing: the service layer validates requests and writes the
error messages. Tests compare the schemas with the documents that are read and written.
"""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas import admin, enums, instances, job_checks, jobs, operations, runs, sessions
from wakeful.api.http.schemas.parts import Schema

#: Every schema by its name in the document.
SCHEMAS: Final[dict[str, Schema]] = {
    **enums.SCHEMAS,
    **jobs.SCHEMAS,
    **job_checks.SCHEMAS,
    **runs.SCHEMAS,
    **instances.SCHEMAS,
    **sessions.SCHEMAS,
    **admin.SCHEMAS,
    **operations.SCHEMAS,
}

__all__ = ["SCHEMAS"]
