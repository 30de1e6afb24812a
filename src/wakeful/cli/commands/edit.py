"""`wakeful add`, and `wakeful edit`: change a job with options, or in an editor."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import CreateAgent, JobName, Unset, now_ms
from wakeful.cli.document_options import document_options, read_document
from wakeful.cli.exit_codes import OK
from wakeful.cli.output import field_lines, full_name, print_error
from wakeful.cli.pages import changed_fields, differs, secret, status, ticks
from wakeful.cli.session import CliSession, command
from wakeful.client.rest import RestClient
from wakeful.client.types import JobShape
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.values.json_value import Json, camel

_USUAL: Final = ("editor", "nano", "vi")
_RULE: Final = "# " + "-" * 70
_ERROR: Final = "# ERROR: "
_GIVE_UP: Final = "# Correct the text, or save it as it is to give up."


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "add",
        examples=(
            "wakeful add digest -s '0 9 * * 1-5' --tz Europe/Berlin -m 'Summarize the news.'",
            "wakeful add sync -s 'every 15m' --url https://example.com/hook --payload '{\"full\": false}'",
            "wakeful add reminder -s 'in 20m' -m 'Check the build.' --agent ops",
        ),
        panel="Jobs",
        options=document_options(),
    )
    async def add(
        s: CliSession,
        /,
        name: Annotated[str, typer.Argument(metavar="NAME", help="a slug such as daily-report")],
        paused: Annotated[bool, typer.Option("--paused", help="create the job paused")] = False,
        replace: Annotated[
            bool,
            typer.Option(
                "--replace",
                help="replace the job if the name exists; fields that are not given get their defaults",
            ),
        ] = False,
        create_agent: CreateAgent = False,
        **options: object,
    ) -> None:
        """Add a job. Shows when it fires next, and once the secret of its webhook."""
        given = {**await read_document(options), "name": name, "enabled": False if paused else None}
        document = {key: value for key, value in given.items() if value is not None}
        await s.check_agents(create=create_agent)
        if replace:
            job, _ = await s.out.wait_for(s.client.save_job(s.own_agent, document))
        else:
            job = await s.out.wait_for(s.client.create_job(s.own_agent, document))
        now = now_ms()
        done = Text("added ", "green").append(job["name"], "bold").append(f": {job['explain']}")
        s.out.show(job, done, *ticks(job, now), *secret(job))
        s.out.print_warnings(job.get("warnings", ()))
        name = full_name(job["agentId"], job["name"])
        s.out.say(Text(f"run it now with: wakeful run {name} --wait", "dim"))

    @command(
        app,
        "edit",
        examples=(
            "wakeful edit digest",
            "wakeful edit digest --schedule '0 8 * * 1-5' --timeout 5m",
            "wakeful edit ops/backup --label team=ops --unset description",
            "wakeful edit digest --rename daily-digest",
        ),
        panel="Jobs",
        options=document_options(),
    )
    async def edit(
        s: CliSession,
        /,
        name: JobName,
        unset: Unset = None,
        rename: Annotated[str | None, typer.Option("--rename", metavar="NAME", help="the new name")] = None,
        **options: object,
    ) -> int:
        """Change a job: with options, or without them in an editor. Shows what changed and the next ticks.

        The editor is $VISUAL or $EDITOR. It shows the job as YAML. If the text is invalid, the editor opens
        again with the error; a text that is not applied stays in a file. A change by someone else meanwhile
        is detected, and nothing is overwritten. --label adds a label to those that the job has.
        """
        agent, slug = await s.find_job(name)
        patch = await read_document(options)
        patch |= dict.fromkeys((camel(field) for field in unset or ()), None)
        if rename is not None:
            patch["name"] = rename
        job = await s.out.wait_for(s.client.get_job(agent, slug))
        if not patch:
            return await _edit_text(s, job)
        if options.get("label") and isinstance(patch.get("labels"), dict):
            patch["labels"] = {**job["labels"], **cast(dict[str, Json], patch["labels"])}
        saved = await s.out.wait_for(_save(s.client, job, patch))
        _show(s, job, saved)
        return OK


async def _save(client: RestClient, job: JobShape, patch: Mapping[str, Json]) -> JobShape:
    """Change the job if it is still as it was read. `ConcurrentEdit` if it is not."""
    try:
        return await client.update_job(job["agentId"], job["id"], patch, if_version=job["revision"])
    except FailedPrecondition as error:
        now = await client.get_job(job["agentId"], job["id"])
        if now["revision"] == job["revision"]:
            raise
        raise ConcurrentEdit(
            f"job '{job['name']}' has changed meanwhile: it is at revision {now['revision']}, and you edited "
            f"revision {job['revision']}; nothing was overwritten; edit it again"
        ) from error


class ConcurrentEdit(FailedPrecondition):
    """The job has changed since it was read."""


async def _edit_text(s: CliSession, job: JobShape) -> int:
    from wakeful.document.definition import default_fields, editable
    from wakeful.service.auth.masking import mask_document

    editor = find_editor()
    shown = mask_document(cast(Mapping[str, Json], job))
    title = f"Job '{job['name']}' of the agent '{job['agentId']}', revision {job['revision']}."
    text = job_text(title, editable(shown, default_fields()))
    before = read_job_text(text) or {}
    file = EditedFile(job["name"], text)
    saved = await _edit_until_saved(s, job, before, file, editor, text)
    file.delete()
    if saved is None:
        s.out.show(job, Text("nothing changed", "yellow"))
    else:
        _show(s, job, saved)
    return OK


async def _edit_until_saved(
    s: CliSession,
    job: JobShape,
    before: dict[str, Json],
    file: EditedFile,
    editor: list[str],
    text: str,
) -> JobShape | None:
    """Edit until the server accepts the text; None if nothing changes. If it fails, the text stays."""
    refused = ""
    while True:
        edited = file.edit(editor, text)
        try:
            after = read_job_text(edited)
            patch = None if after is None else job_patch(before, after)
            if not patch:
                return None
            return await s.out.wait_for(_save(s.client, job, patch))
        except BaseException as error:
            if not isinstance(error, InvalidArgument) or remove_error(edited) == refused:
                print_error(f"the text was not applied; it is in {file.path}")
                raise
            refused, text = remove_error(edited), add_error(edited, error.message)


def _show(s: CliSession, old: JobShape, new: JobShape) -> None:
    s.out.show(new, *_lines(old, new), *secret(new))
    s.out.print_warnings(new.get("warnings", ()))


def _lines(old: JobShape, new: JobShape) -> Iterator[RenderableType]:
    fields = changed_fields(old, new)
    if not fields:
        yield Text("nothing changed", "yellow")
        return
    yield Text("changed ", "green").append(new["name"], "bold").append(f": {new['explain']}")
    yield from field_lines(fields)
    if not new["enabled"]:
        yield Text("it is ").append(status(new))
    yield from ticks(new, now_ms())


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


def job_text(title: str, document: Mapping[str, Json]) -> str:
    """Return the text to edit: an explanation, and the document as YAML."""
    from wakeful.values.yaml_text import dump_yaml

    return (
        f"# {title}\n"
        "# Save and close the editor to apply the changes. A field that you remove gets its default.\n"
        "# '***' stands for a credential; leave its field as it is to keep it.\n"
        "# An empty file changes nothing.\n"
        f"{_RULE}\n{dump_yaml(dict(document))}"
    )


def add_error(text: str, error: str) -> str:
    """Return an edited text with the error on top, in place of the error before.

    >>> print(add_error(add_error("# Job\\nname: a\\n", "one"), "two"), end="")
    # ERROR: two
    # Correct the text, or save it as it is to give up.
    # Job
    name: a
    """
    lines = [f"{_ERROR}{line}" for line in error.splitlines()]
    return "\n".join([*lines, _GIVE_UP, remove_error(text)])


def remove_error(text: str) -> str:
    """Return an edited text without the error on top."""
    kept = [line for line in text.splitlines() if not line.startswith(_ERROR) and line != _GIVE_UP]
    return "\n".join(kept) + "\n"


def read_job_text(text: str) -> dict[str, Json] | None:
    """Return the document of an edited text; None if it has none. InvalidArgument if it is not an object."""
    from wakeful.values.yaml_text import load_yaml

    content = load_yaml(text, "the text")
    if content is None:
        return None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InvalidArgument("the text: write the fields of one job, such as 'schedule: 0 9 * * *'")
    return content


def job_patch(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """Return the changes from one document to another; a removed field is reset with null.

    >>> job_patch({"name": "a", "tz": "UTC", "lane": "x"}, {"name": "a", "tz": "Asia/Tokyo"})
    {'tz': 'Asia/Tokyo', 'lane': None}
    """
    changed = {name: value for name, value in after.items() if differs(before, name, value)}
    return {**changed, **{name: None for name in before if name not in after}}
