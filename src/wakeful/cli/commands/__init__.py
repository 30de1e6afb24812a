"""The commands, one file per command or group."""

from __future__ import annotations

import typer

from wakeful.cli.commands import (
    agents,
    apply,
    audit,
    dead_letters,
    demo,
    import_crontab,
    job_edit,
    jobs,
    keys,
    messages,
    pause,
    preview,
    run,
    runs,
    serve,
    status,
)


def register_all(app: typer.Typer) -> None:
    """Register every command, in the order of the help text."""
    groups = (
        demo,
        serve,
        jobs,
        job_edit,
        pause,
        run,
        runs,
        messages,
        preview,
        apply,
        import_crontab,
        dead_letters,
        agents,
        keys,
        audit,
        status,
    )
    for group in groups:
        group.register(app)
