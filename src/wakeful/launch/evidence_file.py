"""The files in which commands report evidence: `JOB_EVIDENCE_FILE` names one that does not exist yet.

Each launch has a name of its own in a directory that only this user can read. The file is deleted after the
launch. A program that writes none has no evidence. There is no file where no temporary directory is writable.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from tempfile import mkdtemp
from typing import Final
from uuid import uuid4

from wakeful.errors import InvalidArgument
from wakeful.run.evidence import MAX_EVIDENCE, read_evidence

EVIDENCE_FILE: Final = "JOB_EVIDENCE_FILE"
NO_DIRECTORY: Final = (
    f"there is no {EVIDENCE_FILE}: no temporary directory of the server is writable; set TMPDIR"
)
#: JSON may have blanks, so the file may be larger than what is kept of it.
_MAX_FILE: Final = 4 * MAX_EVIDENCE


class EvidenceFiles:
    """The directory of the evidence files of this process. It is created when it is needed."""

    def __init__(self) -> None:
        self._directory: str | None = None

    @contextmanager
    def file(self) -> Iterator[str | None]:
        """Return a new path. The file is deleted at the end, if there is one. None: nothing is writable."""
        if self._directory is None or not os.path.isdir(self._directory):
            try:
                self._directory = mkdtemp(prefix="wakeful-evidence-")
            except OSError:
                yield None
                return
        path = os.path.join(self._directory, f"{uuid4().hex}.json")
        try:
            yield path
        finally:
            with suppress(OSError):
                os.unlink(path)

    def close(self) -> None:
        """Delete the directory."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def read_file(path: str) -> tuple[str | None, str | None]:
    """Return the evidence in a file as compact JSON, and why it could not be read. Both None: no file."""
    try:
        # A program may have made it a pipe or a device, which would block.
        if not S_ISREG(os.lstat(path).st_mode):
            return None, f"{EVIDENCE_FILE} is not a plain file"
        with Path(path).open("rb") as file:
            text = file.read(_MAX_FILE + 1)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{EVIDENCE_FILE} could not be read: {error.strerror or error}"
    if not text.strip():
        return None, f"{EVIDENCE_FILE} is empty"
    if len(text) > _MAX_FILE:
        return None, f"{EVIDENCE_FILE} has more than {_MAX_FILE // 1024} KB"
    try:
        return read_evidence(text), None
    except InvalidArgument as error:
        return None, f"{EVIDENCE_FILE}: {error.message}"
