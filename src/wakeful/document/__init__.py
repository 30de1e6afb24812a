"""The job document: the external form of a definition, read and written.

A document is an object of fields, with names in camelCase (`maxAttempts`) or snake_case (`max_attempts`); a
null is the same as a field that is left out. All problems of a document are reported in one error, a line for
each field. A document may also contain these:

- each `…Ms` field without its Ms takes a duration: `timeout: "30s"`, `jitter: "5s"`, `catchupWindow: "12h"`;
- `cron` is short for `schedule`, `webhookUrl` for a webhook `target`, and `workflowId`, `version` and
  `userId` for a workflow target (see `document.target`);
- `enabled` and `agentId` are state and owner of the job. The caller reads them: they are no part of a
  definition.

An `at` schedule makes `deleteAfterRun` true unless the document sets it.
"""

from wakeful.document.definition import patch_definition, read_definition, write_definition
from wakeful.document.reading import Defaults
from wakeful.document.text import (
    json_from_text,
    payload_from_text,
    payload_to_text,
    policy_from_text,
    policy_or_default,
    policy_to_text,
    timing_from_text,
    timing_to_text,
    work_from_text,
    work_to_text,
)

__all__ = [
    "Defaults",
    "json_from_text",
    "patch_definition",
    "payload_from_text",
    "payload_to_text",
    "policy_from_text",
    "policy_or_default",
    "policy_to_text",
    "read_definition",
    "timing_from_text",
    "timing_to_text",
    "work_from_text",
    "work_to_text",
    "write_definition",
]
