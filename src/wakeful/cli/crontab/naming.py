"""Derive a job name from a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container
from pathlib import PurePosixPath
from typing import Final

from wakeful.job import MAX_NAME

_SEPARATORS: Final = re.compile(r"&&|\|\||[;|&(){}]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
#: Commands that only prepare for the next one.
_PREPARATION: Final = frozenset(
    "cd test [ [[ export source . sleep set umask ulimit true : echo if then".split()
)
#: Commands that only run another command.
_WRAPPERS: Final = frozenset(
    "sudo nice nohup env exec time chronic ionice timeout flock setsid command cronic run-one stdbuf".split()
)
_INTERPRETERS: Final = re.compile(r"(python|perl|ruby|node|php|bash|sh|zsh|dash|Rscript|uv|npx)[0-9.]*")
_EXTENSION: Final = re.compile(r"\.(sh|bash|py|pl|rb|php|js|ts|bin|exe|R)$")


def name_of(command: str, taken: Container[str] = ()) -> str:
    """Return a slug for a command that is not in `taken`.

    >>> name_of("cd /srv/app && /usr/bin/python3 manage.py clearsessions >/dev/null 2>&1")
    'manage-clearsessions'
    >>> name_of("/usr/local/bin/backup.sh --full", {"backup"})
    'backup-2'
    """
    base = _slug(" ".join(_significant_words(command))) or "job"
    base = base[:MAX_NAME].rstrip("-")
    name, number = base, 1
    while name in taken:
        number += 1
        suffix = f"-{number}"
        name = base[: MAX_NAME - len(suffix)].rstrip("-") + suffix
    return name


def _significant_words(command: str) -> list[str]:
    """Return the program of a command and its first argument."""
    fallback: list[str] = []
    for part in _SEPARATORS.split(command):
        words = _words(part)
        while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _WRAPPERS):
            wrapper = words.pop(0)
            if wrapper in _WRAPPERS:
                words = _without_options(words)
        if not words:
            continue
        program = _program(words)
        if words[0] not in _PREPARATION:
            return program
        fallback = fallback or program
    return fallback


def _words(part: str) -> list[str]:
    part = re.sub(r"\d*>>?\s*&?\s*\S+|<\s*\S+", " ", part)
    try:
        return shlex.split(part)
    except ValueError:
        return part.split()


def _without_options(words: list[str]) -> list[str]:
    """Drop the options, numbers, durations and lock files of a wrapper."""
    while len(words) > 1 and re.fullmatch(
        r"-\S*|\d+[smhd]?|\S*\.lock|\S*/lock/\S*|[A-Za-z_]\w*=\S*", words[0]
    ):
        words = words[1:]
    return words


def _program(words: list[str]) -> list[str]:
    first, rest = _base(words[0]), words[1:]
    plain = [word for word in rest if not word.startswith("-")]
    if _INTERPRETERS.fullmatch(first) and plain:
        first, plain = _base(plain[0]), plain[1:]
        if len(first) > 40 or " " in first:  # an inline script
            return [first.split()[0]]
    following = [_base(word) for word in plain[:1] if re.fullmatch(r"[\w./:-]{1,40}", word)]
    return [first, *following]


def _base(word: str) -> str:
    return _EXTENSION.sub("", PurePosixPath(word).name or word)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
