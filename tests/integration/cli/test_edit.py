"""`wakeful edit`: with options, and in an editor. Nothing that is typed is lost."""

from __future__ import annotations

import re
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import prefork
from tests.support.command_line import Completed, Machine, serving

#: An editor: each call applies the next program to the text, which is a file with the lines before and after.
_EDITOR = """
import os, pathlib, stat, sys
folder, path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
count = len(list(folder.glob("seen-*")))
text = path.read_text()
(folder / f"seen-{count}").write_text(text)
(folder / "mode").write_text(oct(stat.S_IMODE(os.stat(path).st_mode)))
exec((folder / "program").read_text())
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("edit")) as machine:
        yield machine


class Editor:
    """An editor that runs a program on the text, and keeps the texts that it was opened with."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine, self._folder = machine, folder
        (folder / "editor.py").write_text(_EDITOR)
        self.command = shlex.join([sys.executable, str(folder / "editor.py"), str(folder)])

    def edit(self, name: str, program: str, *options: str, variable: str = "EDITOR") -> Completed:
        """Run `wakeful edit`. `program` changes `text` of the file at `path`; `count` numbers the calls."""
        (self._folder / "program").write_text(program)
        environment = {variable: self.command, "TMPDIR": str(self._folder)}
        return self._machine.process("edit", name, *options, **environment)

    def seen(self, number: int = 0) -> str:
        return (self._folder / f"seen-{number}").read_text()

    @property
    def opened(self) -> int:
        return len(list(self._folder.glob("seen-*")))

    @property
    def left(self) -> list[Path]:
        return list(self._folder.glob("*.yaml"))


@pytest.fixture
def editor(machine: Machine, tmp_path: Path) -> Editor:
    return Editor(machine, tmp_path)


@pytest.fixture
def job(machine: Machine) -> Iterator[str]:
    made = machine.wakeful(
        *("add", "digest", "-s", "0 9 * * 1-5", "--tz", "Europe/Berlin", "-m", "line one\nline two\n"),
        *("--label", "team=ops", "--timeout", "30s"),
        *("--target", '{"kind":"webhook","url":"http://127.0.0.1:9/","headers":{"x-key":"very-secret"}}'),
    )
    assert made.code == 0, made
    yield "digest"
    for each in machine.wakeful("list", "--all", "--json").json["jobs"]:
        machine.wakeful("delete", each["id"])


def show(machine: Machine, name: str = "digest") -> Any:
    return machine.wakeful("show", name, "--json").json


def test_options_change_a_job_and_show_the_difference(machine: Machine, job: str):
    done = machine.wakeful(
        "edit", job, "--schedule", "0 8 * * *", "--label", "urgent=", "--max-attempts", "3"
    )
    assert done.code == 0, done
    assert "maxAttempts: 5 → 3" in done.out
    assert 'labels: {"team": "ops"} → {"team": "ops", "urgent": ""}' in done.out
    assert done.out.count("08:00 Europe/Berlin") == 5
    after = show(machine)
    assert (after["schedule"]["expr"], after["maxAttempts"], after["tz"]) == ("0 8 * * *", 3, "Europe/Berlin")
    assert after["timeoutMs"] == 30_000, "the other fields stay"

    same = machine.wakeful("edit", job, "--max-attempts", "3")
    assert (same.code, same.out) == (0, "nothing changed\n")

    machine.wakeful(
        "edit", job, "--unset", "max_attempts", "--unset", "timeout", "--set", 'labels={"a": "b"}'
    )
    reset = show(machine)
    assert (reset["maxAttempts"], reset["timeoutMs"], reset["labels"]) == (5, None, {"a": "b"})

    assert machine.wakeful("edit", job, "--rename", "weekly", "--json").json["name"] == "weekly"
    assert show(machine, "weekly")["id"] == after["id"]


def test_an_invalid_option_is_refused_and_changes_nothing(machine: Machine, job: str):
    before = show(machine)["revision"]
    for arguments in (
        ("--schedule", "nope"),
        ("--set", "colour=1"),
        ("--unset", "colour"),
        ("--rename", "A B"),
    ):
        refused = machine.wakeful("edit", job, *arguments)
        assert (refused.code, refused.out) == (2, "")
    assert machine.wakeful("edit", "nope", "--schedule", "@daily").code == 3
    assert show(machine)["revision"] == before


@pytest.mark.parametrize("variable", ["VISUAL", "EDITOR"])
def test_an_editor_changes_a_job(machine: Machine, editor: Editor, job: str, variable: str):
    done = editor.edit(
        job,
        "text = text.replace('0 9 * * 1-5', '30 7 * * *').replace('line two', 'line 2')\n"
        "text = text.replace(\"timeoutMs: 30000\\n\", '') + 'lane: main\\n'\n"
        "path.write_text(text)",
        variable=variable,
    )
    assert done.code == 0, done
    assert "schedule: " in done.out
    assert "07:30 Europe/Berlin" in done.out
    after = show(machine)
    assert (after["schedule"]["expr"], after["lane"], after["timeoutMs"]) == ("30 7 * * *", "main", None)
    assert after["message"] == "line one\nline 2\n"
    assert (editor.opened, editor.left) == (1, [])


def test_the_text_is_yaml_without_credentials_and_only_for_its_owner(
    machine: Machine, editor: Editor, job: str, tmp_path: Path
):
    done = editor.edit(job, "")
    assert (done.code, done.out) == (0, "nothing changed\n")
    text = editor.seen()
    assert text.startswith("# Job 'digest' of the agent 'default', revision 1.\n")
    assert "schedule: 0 9 * * 1-5\ntz: Europe/Berlin\n" in text
    assert "message: |\n  line one\n  line two\n" in text
    assert "enabled: true\n" in text
    assert "very-secret" not in text
    assert "whsec_" not in text
    assert "maxAttempts" not in text, "defaults are not shown"
    assert (tmp_path / "mode").read_text() == oct(stat.S_IRUSR | stat.S_IWUSR)
    assert editor.left == []

    changed = editor.edit(job, "path.write_text(text.replace('line one', 'line 1'))")
    assert changed.code == 0
    assert show(machine)["target"]["headers"] == {"x-key": "very-secret"}, "a masked field is kept"


def test_an_invalid_text_is_opened_again_with_the_error_on_top(machine: Machine, editor: Editor, job: str):
    done = editor.edit(
        job,
        "if count == 0: path.write_text(text.replace('0 9 * * 1-5', 'nonsense') + '# a note\\n')\n"
        "if count == 1: path.write_text(text + 'lane: [\\n')\n"
        "if count == 2: path.write_text(text.replace('lane: [', '').replace('nonsense', '0 * * * *'))",
    )
    assert done.code == 0, done
    assert editor.opened == 3
    assert editor.seen(1).startswith("# ERROR: schedule: ")
    assert "# a note" in editor.seen(1)
    assert editor.seen(2).startswith("# ERROR: the text: not valid YAML")
    assert "ERROR: schedule" not in editor.seen(2)
    assert show(machine)["schedule"]["expr"] == "0 * * * *"
    assert editor.left == []


@pytest.mark.parametrize(
    "program",
    [
        "path.write_text('schedule: nonsense\\nmessage: a long text\\n')",
        "path.write_text(text + 'message: a long text\\n') if count == 0 else None",
    ],
)
def test_a_text_that_stays_invalid_is_kept_in_a_file(
    machine: Machine, editor: Editor, job: str, program: str
):
    before = show(machine)
    refused = editor.edit(job, program)
    assert refused.code == 2
    assert editor.opened == 2
    (kept,) = editor.left
    assert f"the text was not applied; it is in {kept}" in refused.err
    assert "a long text" in kept.read_text()
    assert show(machine)["revision"] == before["revision"]


def test_a_change_by_someone_else_is_detected_and_the_text_is_kept(
    machine: Machine, editor: Editor, job: str
):
    change = prefork.command("wakeful", "edit", job, "--description", "theirs")
    refused = editor.edit(
        job,
        f"import subprocess\nsubprocess.run({change}, check=True)\n"
        "path.write_text(text + 'description: mine\\n')",
    )
    assert refused.code == 5
    assert "job 'digest' has changed meanwhile: it is at revision 2, and you edited revision 1" in refused.err
    (kept,) = editor.left
    assert "description: mine" in kept.read_text()
    assert show(machine)["description"] == "theirs"


def test_an_editor_that_fails_or_is_missing_is_reported(machine: Machine, editor: Editor, job: str):
    failed = editor.edit(job, "path.write_text(text + 'lane: main\\n'); sys.exit(3)")
    assert failed.code == 5
    assert "the editor ended with code 3; nothing was changed; the text is in " in failed.err
    assert "lane: main" in editor.left[0].read_text()
    missing = machine.process("edit", job, EDITOR="/no/such/editor")
    assert (missing.code, "does not start" in missing.err) == (5, True)
    none = machine.process("edit", job, EDITOR="", VISUAL="")
    assert none.code == 2
    assert "set VISUAL or EDITOR" in none.err
    assert show(machine)["revision"] == 1


def test_an_empty_text_changes_nothing(machine: Machine, editor: Editor, job: str):
    done = editor.edit(job, "path.write_text('')", "--json")
    assert (done.code, done.json["revision"]) == (0, 1)
    assert show(machine)["revision"] == 1


def test_a_job_is_paused_and_renamed_in_an_editor(machine: Machine, editor: Editor, job: str):
    program = (
        "path.write_text(text.replace('enabled: true', 'enabled: false').replace('name: digest', 'name: n'))"
    )
    done = editor.edit(job, program)
    assert done.code == 0, done
    assert re.search(r"it is paused", done.out)
    after = show(machine, "n")
    assert (after["enabled"], after["disabledReason"]) == (False, "paused")
