"""Command targets: a program on this machine, run without a shell.

    {"kind": "command", "argv": ["/usr/local/bin/report", "--daily"], "env": {"JOB_TO": "me"}, "cwd": "/srv"}

The operator allows programs and environment names (`command_rules.py`). Both are checked when a job is saved
and at each launch. The program reads the payload as compact JSON from stdin; environment variables describe
the run. Exit code 0 succeeds, and the beginning of stdout is the output; any
other code fails, and the end of stderr is the error.

As a precheck it works like `test`, `grep` and `diff`: exit code 0 means that there is something to do, 1 that
there is not, and any other that the precheck failed. A JSON object with `run` on stdout is a whole answer.
`WAKEFUL_PRECHECK_STATE` is the state that the last precheck left, as JSON. As a verification, 0 means that
the work was done, and 1 that it was not. `JOB_EVIDENCE_FILE` names a file for the evidence of a program.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from tempfile import mkdtemp
from typing import Final
from uuid import uuid4

from wakeful.errors import InvalidArgument
from wakeful.launch.command_rules import (
    CommandAllowlist,
    CommandNotFound,
    CommandSpec,
    EnvironmentAllowlist,
    read_command,
)
from wakeful.launch.port import (
    DEFAULT_TIMEOUT_MS,
    MAX_FAILED_OUTPUT,
    MAX_OUTPUT,
    MAX_READ,
    Launch,
    Launcher,
    NotAllowed,
    truncate,
)
from wakeful.launch.precheck import MAX_ANSWER, PrecheckResult, result_of_output
from wakeful.launch.process import ProcessGroups, ProcessResult, ProcessSpec
from wakeful.launch.verify import VerifyLaunch
from wakeful.launch.webhook_response import read_usage
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.run.verification import MAX_EVIDENCE, Verdict, read_evidence
from wakeful.settings import PREFIX, SECRET_VARIABLES
from wakeful.values.instants import iso_utc
from wakeful.values.json_value import Json

#: Errors that a retry does not fix.
_PERMANENT_ERRORS: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.E2BIG,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)
EVIDENCE_FILE: Final = "JOB_EVIDENCE_FILE"
NO_DIRECTORY: Final = (
    f"there is no {EVIDENCE_FILE}: no temporary directory of the server is writable; set TMPDIR"
)
#: JSON may have blanks, so the file may be larger than what is kept of it.
_MAX_FILE: Final = 4 * MAX_EVIDENCE

log = get_logger("wakeful.launch.command")


class CommandLauncher(Launcher):
    """Runs programs on this machine."""

    kind = "command"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def __init__(self, commands: CommandAllowlist, environment: EnvironmentAllowlist) -> None:
        self._commands = commands
        self._environment = environment
        self._processes = ProcessGroups()
        self._evidence = EvidenceFiles()

    async def close(self) -> None:
        """Kill programs that are still running."""
        await self._processes.close()
        self._evidence.close()

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for an invalid target, NotAllowed for what the operator does not allow."""
        command = _command(target)
        try:
            self._commands.check(command.argv[0])
            self._environment.check(command.env)
        except NotAllowed as error:
            raise NotAllowed(f"target: {error.message}") from error

    async def start(self, run: Launch) -> Outcome:
        """Run the program and return its outcome."""
        with self._evidence.file() as file:
            variables = {} if file is None else {EVIDENCE_FILE: file}
            result = await self._run(run, run.target, variables, MAX_READ)
            if isinstance(result, Failed) or result.code:
                return result if isinstance(result, Failed) else _failure(result)
            stdout = result.out.beginning()
            evidence, error = (None, NO_DIRECTORY) if file is None else read_file(file)
        if error is not None and file is not None:
            log.warning("evidence.unreadable", **run.log_fields, error=error)
        usage = read_usage(None, stdout)
        return Succeeded(truncate(stdout) or None, usage, evidence=evidence, evidence_error=error)

    async def precheck(self, run: Launch, precheck: Mapping[str, Json]) -> PrecheckResult:
        """Run the program of a precheck and return the result.

        It has a key of its own, so that a program that acts once per key does not take the later run for a
        duplicate.
        """
        request = run.with_target(precheck, run.payload_text)
        request.idempotency_key = f"{run.idempotency_key}-precheck"
        target = {key: value for key, value in precheck.items() if key != "timeoutMs"}
        state = (None if run.watch is None else run.watch.state) or ""
        variables = {f"{PREFIX}PRECHECK": "1", f"{PREFIX}PRECHECK_STATE": state}
        result = await self._run(request, target, variables, MAX_ANSWER)
        if isinstance(result, Failed):
            return result
        if result.code not in (0, 1):
            return _failure(result)
        return result_of_output(result.code, result.out.beginning(), result.err.last_lines())

    async def verify(self, run: VerifyLaunch, verify: Mapping[str, Json]) -> Verdict | Failed:
        """Run the program of a verification and return its verdict. It reads a JSON object from stdin."""
        target = {key: value for key, value in verify.items() if key != "timeoutMs"}
        request = run.with_target(target, run.report)
        result = await self._run(request, target, {f"{PREFIX}VERIFY": "1"})
        if isinstance(result, Failed):
            return result
        if result.code == 1:
            return Verdict(False, result.out.beginning().strip() or result.err.last_lines())
        return _failure(result) if result.code else Verdict(True)

    async def _run(
        self,
        run: Launch,
        target: Mapping[str, Json],
        extra_env: Mapping[str, str] | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> ProcessResult | Failed:
        try:
            command = _command(target)
            program = self._commands.find(command.argv[0])
            self._environment.check(command.env)
        except NotAllowed as error:
            return Failed(truncate(error.message), permanent=True, reason="not_allowed")
        except CommandNotFound as error:
            return Failed(truncate(error.message), permanent=True, reason="not_found")
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True, reason="invalid_target")
        env = {**_own_environment(), **command.env, **_run_variables(run), **(extra_env or {})}
        try:
            return await self._processes.run(
                ProcessSpec(command.argv, program, env, command.cwd, run.payload_text, max_output)
            )
        except OSError as error:
            return _not_started(command, error)


def _command(target: Mapping[str, Json]) -> CommandSpec:
    if os.name != "posix":
        raise InvalidArgument(
            "target: commands do not run on Windows; run the server on Linux or macOS, or use a pull executor"
        )
    return read_command(target)


def _own_environment() -> dict[str, str]:
    """Return the environment of this process without settings and the credentials of other programs."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) and name not in SECRET_VARIABLES
    }


def _run_variables(run: Launch) -> dict[str, str]:
    """Return the environment variables that describe the run."""
    return {
        f"{PREFIX}RUN_ID": run.id,
        f"{PREFIX}JOB": run.job or "",
        f"{PREFIX}AGENT": run.agent,
        f"{PREFIX}WORKSPACE": run.workspace,
        f"{PREFIX}ATTEMPT": str(run.attempt),
        f"{PREFIX}SCHEDULED_AT": iso_utc(run.scheduled_ms),
        f"{PREFIX}IDEMPOTENCY_KEY": run.idempotency_key,
        f"{PREFIX}TRIGGER": run.trigger,
        **({} if run.traceparent is None else {"TRACEPARENT": run.traceparent}),
    }


def _failure(result: ProcessResult) -> Failed:
    """Return the failure of a program that did not exit with 0."""
    if result.code > 0:
        what, reason = f"exit {result.code}", "exit"
    else:
        what, reason = f"killed by {_signal(-result.code)}", "killed"
    why = result.err.last_lines() or result.out.last_lines()
    output = truncate(result.out.beginning(), MAX_FAILED_OUTPUT) or None
    return Failed(truncate(f"{what}: {why}" if why else what), reason=reason, output=output)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _not_started(command: CommandSpec, error: OSError) -> Failed:
    """Return the failure of a program that could not be started."""
    permanent = error.errno in _PERMANENT_ERRORS
    what = f"the program '{command.argv[0]}'"
    if command.cwd is not None and error.filename in (command.cwd, os.fsencode(command.cwd)):
        what = f"the directory '{command.cwd}'"
    why = error.strerror or str(error)
    if error.errno == errno.ENOEXEC:
        why = "it is neither a program nor a script that starts with #!"
    return Failed(
        truncate(f"{what} could not be used: {why}"),
        permanent=permanent,
        reason="not_found" if permanent else "not_started",
    )


class EvidenceFiles:
    """The directory of the evidence files of this process. It is created when it is needed.

    Each launch has a name of its own in a directory that only this user can read. The file is deleted after
    the launch. A program that writes none has no evidence. There is no file where no temporary directory is
    writable.
    """

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
