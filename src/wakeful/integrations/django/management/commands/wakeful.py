"""`manage.py wakeful`: the command line of Wakeful on the database of the project."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand

from wakeful.cli.main import main
from wakeful.integrations.django.scheduler import database_url
from wakeful.settings import PREFIX

_APP: Final = "wakeful.integrations.django:served_app"


class Command(BaseCommand):  # type: ignore[misc]
    """Runs a command of Wakeful: `manage.py wakeful serve`."""

    help = "Runs a command of Wakeful on the database of the project: serve, worker, migrate, list, …"

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Run the command with its own options; Django has read `--settings` and `--pythonpath` already."""
        known = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        known.add_argument("--settings")
        known.add_argument("--pythonpath")
        sys.exit(run(known.parse_known_args(argv[2:])[1]))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Accept what `call_command("wakeful", "migrate")` passes."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: object, **options: Any) -> None:
        """Run the command for `call_command`."""
        code = run([*map(str, args), *options["arguments"]])
        if code:
            sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command with the database of the project; return its exit code."""
    os.environ[f"{PREFIX}DB"] = database_url(getattr(settings, "WAKEFUL", {}))
    if arguments[:1] in (["serve"], ["worker"]) and "--app" not in arguments:
        arguments = [arguments[0], "--app", _APP, *arguments[1:]]
    return main(arguments)
