"""The job document: what people write, read into a definition and written out again.

A document is an object of fields, in JSON's spelling (`maxAttempts`) or Python's (`max_attempts`); a null
says nothing, and neither does a field that is left out. It is read whole: whatever is wrong with it is said
at once, a line for each field, in words that hold for every way in. Beside the fields of a definition these
are understood:

- each `…Ms` field without its Ms takes a duration: `timeout: "30s"`, `jitter: "5s"`, `catchupWindow: "12h"`;
- `cron` is short for `schedule`, `webhookUrl` for a webhook `target`, and `workflowId`, `version` and
  `userId` for one that starts a workflow (see `document.target`);
- `enabled` and `agentId` say where a job stands and whose it is. They are the caller's to read, and no part
  of a definition.

An `at` schedule makes `deleteAfterRun` true unless the document says otherwise.
"""

from wakeful.document.definition import patch_definition, read_definition, write_definition
from wakeful.document.reading import Defaults
from wakeful.document.text import (
    payload_from_text,
    payload_to_text,
    policy_from_text,
    policy_to_text,
    timing_from_text,
    timing_to_text,
    work_from_text,
    work_to_text,
)

__all__ = [
    "Defaults",
    "patch_definition",
    "payload_from_text",
    "payload_to_text",
    "policy_from_text",
    "policy_to_text",
    "read_definition",
    "timing_from_text",
    "timing_to_text",
    "work_from_text",
    "work_to_text",
    "write_definition",
]
