"""The commands, a file for each group of them."""

from __future__ import annotations

import typer

from wakeful.cli.commands import (
    agents,
    applying,
    audit,
    dead_letters,
    demo,
    importing,
    job_edit,
    jobs,
    keys,
    messages,
    pausing,
    previewing,
    running,
    runs,
    serving,
    status,
)


def register_all(app: typer.Typer) -> None:
    """Put every command on the app, in the order that its help shows."""
    groups = (
        demo,
        serving,
        jobs,
        job_edit,
        pausing,
        running,
        runs,
        messages,
        previewing,
        applying,
        importing,
        dead_letters,
        agents,
        keys,
        audit,
        status,
    )
    for group in groups:
        group.register(app)
