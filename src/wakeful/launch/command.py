"""Command targets: a program that is run on this machine, without a shell.

    {"kind": "command", "argv": ["/usr/local/bin/report", "--daily"], "env": {"JOB_TO": "me"}, "cwd": "/srv"}

Only programs that the operator allows are run (`allowed.py`), and a job sets only the environment names that
the operator allows (`command_environment.py`). Both are checked when a job is saved and at each launch. The
program reads the payload as compact JSON from stdin and finds in its environment which run it is. Exit code 0
succeeds, and the beginning of stdout is the output; any other fails, and the end of stderr says why.

As a precheck it answers as `test`, `grep` and `diff` do: 0, there is something to do; 1, there is not; and
anything else, that it could not find out.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.instants import iso_utc
from wakeful.job import Json
from wakeful.launch.argv import Asked, read_command
from wakeful.launch.command_allowlist import Allowed, NotAllowed, NotThere
from wakeful.launch.command_environment import AllowedNames
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch, kept
from wakeful.launch.precheck import PrecheckResult
from wakeful.launch.process import Ended, Order, Processes
from wakeful.launch.webhook_response import usage_in
from wakeful.outcome import Failed, Outcome, Skipped, Succeeded
from wakeful.settings import PREFIX

#: What is not mended by trying again. Too many processes, or too little memory, may be.
_LASTING: Final = frozenset(
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


class CommandLauncher:
    """Takes runs to programs on this machine."""

    kind = "command"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def __init__(self, allowed: Allowed | None = None, names: AllowedNames | None = None) -> None:
        self._allowed = allowed or Allowed()
        self._names = names or AllowedNames()
        self._processes = Processes()

    async def open(self) -> None:
        """Nothing to get ready."""

    async def close(self) -> None:
        """End what is left of the programs that were told to stop."""
        await self._processes.close()

    def check(self, target: Mapping[str, Json]) -> None:
        """Refuse an invalid target, and a program or an environment name that the operator does not allow."""
        asked = _asked(target)
        try:
            self._allowed.check(asked.argv[0])
            self._names.check(asked.env)
        except NotAllowed as error:
            raise NotAllowed(f"target: {error.message}") from error

    async def start(self, run: Launch) -> Outcome:
        """Run the program, and make of how it ends an outcome."""
        ended = await self._run(run, run.target)
        if isinstance(ended, Failed) or ended.code:
            return ended if isinstance(ended, Failed) else _failed(ended)
        output = kept(ended.out.beginning())
        return Succeeded(output or None, usage_in(None, output))

    async def precheck(self, run: Launch, precheck: Mapping[str, Json]) -> PrecheckResult:
        """Run the program of a precheck: its exit code says whether there is anything to do.

        It has a key of its own: who does each thing once does not take the run for done because it was
        asked about it.
        """
        asked = run.sent_to(precheck, run.payload_text)
        asked.idempotency_key = f"{run.idempotency_key}-precheck"
        target = {key: value for key, value in precheck.items() if key != "timeoutMs"}
        ended = await self._run(asked, target, {f"{PREFIX}PRECHECK": "1"})
        if isinstance(ended, Failed):
            return ended
        if ended.code == 1:
            why = ended.out.beginning().strip() or ended.err.last_lines()
            return Skipped(kept(why) or None)
        return _failed(ended) if ended.code else None

    async def _run(
        self, run: Launch, target: Mapping[str, Json], more: Mapping[str, str] | None = None
    ) -> Ended | Failed:
        try:
            asked = _asked(target)
            program = self._allowed.find(asked.argv[0])
            self._names.check(asked.env)
        except NotAllowed as error:
            return Failed(kept(error.message), permanent=True, reason="not_allowed")
        except NotThere as error:
            return Failed(kept(error.message), permanent=True, reason="not_found")
        except InvalidArgument as error:
            return Failed(kept(error.message), permanent=True, reason="invalid_target")
        env = {**_own_environment(), **asked.env, **_about(run), **(more or {})}
        try:
            return await self._processes.run(Order(asked.argv, program, env, asked.cwd, run.payload_text))
        except OSError as error:
            return _unbegun(asked, error)


def _asked(target: Mapping[str, Json]) -> Asked:
    if os.name != "posix":
        raise InvalidArgument(
            "target: commands are not run on Windows; run the server on Linux or macOS, or have an executor "
            "that pulls"
        )
    return read_command(target)


def _own_environment() -> dict[str, str]:
    """The environment of this process without its credentials: settings, and the database password."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) and name != "PGPASSWORD"
    }


def _about(run: Launch) -> dict[str, str]:
    """Which run it is, as a program finds it in its environment."""
    return {
        f"{PREFIX}RUN_ID": run.id,
        f"{PREFIX}JOB": run.job or "",
        f"{PREFIX}AGENT": run.agent,
        f"{PREFIX}WORKSPACE": run.workspace,
        f"{PREFIX}ATTEMPT": str(run.attempt),
        f"{PREFIX}SCHEDULED_AT": iso_utc(run.scheduled_ms),
        f"{PREFIX}IDEMPOTENCY_KEY": run.idempotency_key,
        f"{PREFIX}TRIGGER": run.trigger,
    }


def _failed(ended: Ended) -> Failed:
    """What an exit code other than 0 means: an ordinary failure, whichever it is."""
    if ended.code > 0:
        what, reason = f"exit {ended.code}", "exit"
    else:
        what, reason = f"killed by {_signal(-ended.code)}", "killed"
    why = ended.err.last_lines() or ended.out.last_lines()
    return Failed(kept(f"{what}: {why}" if why else what), reason=reason)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _unbegun(asked: Asked, error: OSError) -> Failed:
    """What it means that a program could not be begun."""
    lasting = error.errno in _LASTING
    what = f"the program '{asked.argv[0]}'"
    if asked.cwd is not None and error.filename in (asked.cwd, os.fsencode(asked.cwd)):
        what = f"the directory '{asked.cwd}'"
    why = error.strerror or str(error)
    if error.errno == errno.ENOEXEC:
        why = "it is neither a program nor a script that begins with #! and what runs it"
    return Failed(
        kept(f"{what} could not be used: {why}"),
        permanent=lasting,
        reason="not_found" if lasting else "not_started",
    )
