"""The editor of the user: edit a text in a private temporary file."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from wakeful.errors import FailedPrecondition, InvalidArgument

_USUAL: Final = ("editor", "nano", "vi")


class EditedFile:
    """A text in a file that only its owner can read. It stays if it is not deleted."""

    def __init__(self, name: str, text: str) -> None:
        number, path = tempfile.mkstemp(prefix=f"wakeful-{name}-", suffix=".yaml")
        self.path = Path(path)
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)

    def edit(self, editor: list[str], text: str) -> str:
        """Write a text, open the editor, and return the text afterwards."""
        self.path.write_text(text, encoding="utf-8")
        # Ctrl-C is for the editor: it must not end this process, which would lose the text.
        handler = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            code = subprocess.run([*editor, str(self.path)], check=False).returncode
        except OSError as error:
            self.delete()
            raise FailedPrecondition(
                f"the editor '{editor[0]}' does not start: {error.strerror}; set VISUAL or EDITOR"
            ) from error
        finally:
            signal.signal(signal.SIGINT, handler)
        after = self.read()
        if code != 0:
            kept = "" if after == text else f"; the text is in {self.path}"
            if after == text:
                self.delete()
            raise FailedPrecondition(f"the editor ended with code {code}; nothing was changed{kept}")
        return after

    def read(self) -> str:
        """Return the text of the file."""
        try:
            return self.path.read_text(encoding="utf-8")
        except OSError:  # the editor has deleted it
            return ""
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{self.path}: it is not UTF-8 text; nothing was changed") from error

    def delete(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


def find_editor() -> list[str]:
    """Return the command of the editor: VISUAL, EDITOR, or a usual one if there is a terminal."""
    for variable in ("VISUAL", "EDITOR"):
        if words := shlex.split(os.environ.get(variable, "")):
            return words
    found = [path for name in _USUAL if (path := shutil.which(name))]
    if not found or not sys.stdin.isatty():
        raise InvalidArgument(
            "there is no editor: set VISUAL or EDITOR, or give the changes as options: `wakeful edit --help`"
        )
    return found[:1]
