"""The command launcher with real programs, and cleanup of their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.programs import OBEDIENT, STUBBORN, alive, command_launcher, processes, sh, under_way
from tests.support.waiting import PATIENCE, eventually
from tests.unit.launch.launches import launch
from wakeful.launch import process
from wakeful.launch.command import CommandLauncher
from wakeful.launch.command_rules import CommandAllowlist, EnvironmentAllowlist
from wakeful.launch.port import MAX_OUTPUT
from wakeful.launch.precheck import PrecheckResult
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.run.prechecks import PrecheckAnswer
from wakeful.values.json_value import Json


@pytest.fixture
async def launcher() -> AsyncIterator[CommandLauncher]:
    launcher = command_launcher("*")
    await launcher.open()
    yield launcher
    await launcher.close()


async def run(
    launcher: CommandLauncher, script: str, *arguments: object, payload: str | None = None, **fields: Json
) -> Outcome:
    """Run a script and wait for its outcome."""
    async with asyncio.timeout(PATIENCE):
        return await launcher.start(launch(sh(script, *arguments, **fields), payload))


def error(outcome: Outcome | PrecheckResult) -> str:
    assert isinstance(outcome, Failed)
    return outcome.error


# --- input -------------------------------------------------------------------------------------------


async def test_the_payload_is_stdin_and_the_output_is_stdout(launcher: CommandLauncher):
    payload = '{"to":"Zoë"}'
    assert await run(launcher, "cat", payload=payload) == Succeeded(payload)
    assert await run(launcher, "cat /dev/stdin", payload=payload) == Succeeded(payload)


async def test_without_a_payload_stdin_is_empty(launcher: CommandLauncher):
    assert await run(launcher, "cat") == Succeeded(None)


async def test_arguments_are_not_interpreted_by_a_shell(launcher: CommandLauncher):
    target: dict[str, Json] = {"kind": "command", "argv": ["printf", "%s|", "$HOME", "a b", ";", "*", "ü→"]}
    assert await launcher.start(launch(target)) == Succeeded("$HOME|a b|;|*|ü→|")


async def test_the_environment_describes_the_run(launcher: CommandLauncher):
    outcome = await launcher.start(launch(sh("env"), attempt=3, scheduled_ms=1_741_392_000_250))
    assert isinstance(outcome, Succeeded)
    said = dict(line.split("=", 1) for line in (outcome.output or "").splitlines())
    assert {name: value for name, value in said.items() if name.startswith("WAKEFUL_")} == {
        "WAKEFUL_RUN_ID": "r1",
        "WAKEFUL_JOB": "digest",
        "WAKEFUL_AGENT": "default",
        "WAKEFUL_WORKSPACE": "default",
        "WAKEFUL_ATTEMPT": "3",
        "WAKEFUL_SCHEDULED_AT": "2025-03-08T00:00:00.250Z",
        "WAKEFUL_IDEMPOTENCY_KEY": "5f" * 32,
        "WAKEFUL_TRIGGER": "schedule",
    }
    assert said["PATH"] == os.environ["PATH"]


async def test_secrets_of_the_server_are_not_in_the_environment(
    launcher: CommandLauncher, monkeypatch: pytest.MonkeyPatch
):
    for name in ("WAKEFUL_SECRET_KEY", "WAKEFUL_DB", "WAKEFUL_KEY", "WAKEFUL_CHANNEL_OPS", "PGPASSWORD"):
        monkeypatch.setenv(name, "do-not-tell")
    monkeypatch.setenv("JOB_OWN", "the server's")
    outcome = await run(launcher, "env", env={"JOB_TO": "me", "JOB_OWN": "the job's"})
    assert isinstance(outcome, Succeeded)
    lines = (outcome.output or "").splitlines()
    assert "do-not-tell" not in (outcome.output or "")
    assert {"JOB_TO=me", "JOB_OWN=the job's"} <= set(lines)


async def test_the_working_directory_is_that_of_the_job(launcher: CommandLauncher, tmp_path: Path):
    (tmp_path / "here").touch()
    assert await run(launcher, "ls", cwd=str(tmp_path)) == Succeeded("here\n")


async def test_the_program_is_not_looked_up_on_the_path_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for place in ("good", "evil"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "greet").write_text(f"#!/bin/sh\necho {place}\n")
        (tmp_path / place / "greet").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/good")
    target: dict[str, Json] = {
        "kind": "command",
        "argv": ["greet"],
        "env": {"PATH": f"{tmp_path}/evil"},
        "cwd": f"{tmp_path}/evil",
    }
    launcher = CommandLauncher(CommandAllowlist(["greet"]), EnvironmentAllowlist(["PATH"]))
    assert await launcher.start(launch(target)) == Succeeded("good\n")


async def test_a_program_may_leave_stdin_unread(launcher: CommandLauncher):
    payload = '"' + "x" * 65_534 + '"'
    assert await run(launcher, "echo done", payload=payload) == Succeeded("done\n")
    assert await run(launcher, "exec 0<&-; echo done", payload=payload) == Succeeded("done\n")
    assert await run(launcher, "head -c 3", payload=payload) == Succeeded('"xx')


# --- output ------------------------------------------------------------------------------------------


async def test_large_output_on_both_pipes_neither_blocks_nor_fills_memory(launcher: CommandLauncher):
    flood = "head -c 50000000 /dev/zero | tr '\\0' %s"
    tracemalloc.start()
    try:
        outcome = await run(
            launcher, f"{flood % 'o'} & {{ {flood % 'e'}; echo; echo the end; }} >&2; wait; echo"
        )
        failed = await run(launcher, f"{{ {flood % 'e'}; echo; echo the end; }} >&2; {flood % 'o'}; exit 1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome == Succeeded("o" * MAX_OUTPUT)
    assert error(failed) == "exit 1: the end"
    assert peak < 5_000_000


async def test_output_is_truncated_between_characters(launcher: CommandLauncher):
    outcome = await run(launcher, "printf x; yes ü | tr -d '\\n' | head -c 40001")
    assert outcome == Succeeded("x" + "ü" * ((MAX_OUTPUT - 1) // 2))


async def test_unstorable_bytes_in_the_output_are_replaced(launcher: CommandLauncher):
    assert await run(launcher, "printf 'a\\000b\\377c'") == Succeeded("a�b�c")


async def test_usage_is_read_from_json_output(launcher: CommandLauncher):
    said = '{"result": "done", "usage": {"tokens": 1200}}'
    assert await run(launcher, "cat", payload=said) == Succeeded(said, '{"tokens":1200}')
    long = f'{{"result": "{"x" * MAX_OUTPUT}", "usage": {{"tokens": 1200}}}}'
    assert await run(launcher, "cat", payload=long) == Succeeded(long[:MAX_OUTPUT], '{"tokens":1200}')


# --- exit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "said", "reason"),
    [
        ("exit 3", "exit 3", "exit"),
        ("exit 75", "exit 75", "exit"),
        ("echo all is well; echo no disk >&2; exit 3", "exit 3: no disk", "exit"),
        ("echo no disk; exit 1", "exit 1: no disk", "exit"),
        ("kill -SEGV $$", "killed by SIGSEGV", "killed"),
        ("echo oh >&2; kill -KILL $$", "killed by SIGKILL: oh", "killed"),
    ],
)
async def test_a_nonzero_exit_is_a_retryable_failure(
    launcher: CommandLauncher, script: str, said: str, reason: str
):
    outcome = await run(launcher, script)
    assert error(outcome) == said
    assert isinstance(outcome, Failed)
    assert not outcome.permanent
    # Without a reason, the next attempt would assume that nothing was launched before it.
    assert outcome.reason == reason


async def test_the_error_has_the_last_lines_of_stderr(launcher: CommandLauncher):
    said = error(await run(launcher, "seq 100000 >&2; exit 1"))
    assert said.endswith("\n99999\n100000")
    lines = said.removeprefix("exit 1: ").splitlines()
    assert lines == [str(100_001 - n) for n in range(len(lines), 0, -1)], "whole lines"
    assert 3_000 < len(said) < 4_200


async def test_a_program_that_cannot_be_started_fails_permanently(launcher: CommandLauncher, tmp_path: Path):
    plain = tmp_path / "plain"
    plain.write_text("echo no line says what runs it")
    plain.chmod(0o644)
    cases: list[tuple[dict[str, Json], str]] = [
        ({"argv": ["no-such-program"]}, "there is no program 'no-such-program' on the PATH of the server"),
        ({"argv": ["/no/such"]}, "the program '/no/such' could not be used: No such file or directory"),
        ({"argv": [str(tmp_path)]}, f"the program '{tmp_path}' could not be used: Permission denied"),
        ({"argv": [str(plain)]}, f"the program '{plain}' could not be used: Permission denied"),
        ({"argv": ["true"], "cwd": "/no/such"}, "the directory '/no/such' could not be used: No such file"),
    ]
    for fields, said in cases:
        outcome = await launcher.start(launch({"kind": "command", **fields}))
        assert said in error(outcome)
        assert isinstance(outcome, Failed)
        assert (outcome.permanent, outcome.reason) == (True, "not_found")
    plain.chmod(0o755)
    assert "a script that starts with #!" in error(
        await launcher.start(launch({"kind": "command", "argv": [str(plain)]}))
    )


async def test_a_command_that_is_not_allowed_or_invalid_fails_permanently():
    outcome = await command_launcher("false").start(launch({"kind": "command", "argv": ["true"]}))
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.reason) == (True, "not_allowed")
    wrong = await command_launcher("*").start(launch({"kind": "command", "argv": "true"}))
    assert isinstance(wrong, Failed)
    assert (wrong.permanent, wrong.reason) == (True, "invalid_target")


async def test_many_commands_run_concurrently(launcher: CommandLauncher):
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(launcher, f"echo {n}; exit {n % 2}")) for n in range(60)]
    assert [task.result() for task in tasks] == [
        Failed(f"exit 1: {n}", reason="exit", output=f"{n}\n") if n % 2 else Succeeded(f"{n}\n")
        for n in range(60)
    ]


# --- leftover processes ------------------------------------------------------------------------------


async def test_a_child_that_holds_the_pipes_after_exit_is_killed(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "LINGER_S", 0.1)
    file = tmp_path / "pids"
    outcome = await run(launcher, "trap '' TERM; sleep 60 & echo $! > \"$1\"; echo done", file)
    assert outcome == Succeeded("done\n")
    (pid,) = await processes(file)
    await eventually(lambda: not alive(pid))


async def test_a_child_in_its_own_session_does_not_block_the_run(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "LINGER_S", 0.1)
    file = tmp_path / "pids"
    script = 'setsid sh -c \'echo $$ > "$1"; exec sleep 60\' sh "$1" & echo done'
    assert await run(launcher, script, file) == Succeeded("done\n")
    (pid,) = await processes(file)
    os.kill(pid, signal.SIGKILL)


async def test_a_background_child_without_the_pipes_is_not_killed(launcher: CommandLauncher, tmp_path: Path):
    file = tmp_path / "pids"
    script = 'sleep 60 </dev/null >/dev/null 2>&1 & echo $! > "$1"; echo done'
    assert await run(launcher, script, file) == Succeeded("done\n")
    (pid,) = await processes(file)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


async def test_a_cancelled_command_can_clean_up(launcher: CommandLauncher, tmp_path: Path):
    file = tmp_path / "pids"
    async with under_way(launcher, sh(OBEDIENT, file), file) as (task, pids):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))
    assert (tmp_path / "pids.said").read_text() == "cleaned up\n"


async def test_a_command_that_ignores_sigterm_is_killed_with_its_process_group(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    file = tmp_path / "pids"
    async with under_way(launcher, sh(STUBBORN, file), file) as (task, pids):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))


async def test_a_child_that_outlives_a_terminated_command_is_killed(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    file = tmp_path / "pids"
    script = (
        "sh -c 'trap \"\" TERM; exec >/dev/null 2>&1; while :; do sleep 60; done' &\n"
        'echo $$ $! > "$1.new"; mv "$1.new" "$1"; wait'
    )
    async with under_way(launcher, sh(script, file), file) as (task, pids):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))


async def test_a_command_cancelled_twice_leaves_no_process(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.2)
    file = tmp_path / "pids"
    async with under_way(launcher, sh(STUBBORN, file), file) as (task, pids):
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))


def with_argument(argument: object) -> list[int]:
    """Return the ids of the processes with this argument."""
    found: list[int] = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(argument).encode() in (directory / "cmdline").read_bytes().split(b"\0"):
                found.append(int(directory.name))
    return found


async def test_a_command_cancelled_during_its_start_leaves_no_process(
    launcher: CommandLauncher, tmp_path: Path
):
    file = tmp_path / "pids"
    started: list[bool] = []
    for turns in range(6):
        task = asyncio.create_task(launcher.start(launch(sh("sleep 60; true", file))))
        for _ in range(turns):
            await asyncio.sleep(0)
        started.append(bool(with_argument(file)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert with_argument(file) == []
    assert (started[0], started[-1]) == (False, True)


async def test_closing_the_launcher_kills_remaining_commands_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 4 * PATIENCE)
    launcher = command_launcher("*")
    file = tmp_path / "pids"
    async with under_way(launcher, sh(STUBBORN, file), file) as (task, pids):
        task.cancel()
        async with asyncio.timeout(PATIENCE):  # without waiting for the grace period
            await launcher.close()
        await eventually(lambda: not any(map(alive, pids)))
        with pytest.raises(asyncio.CancelledError):
            await task


# --- as a precheck -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo there is mail", PrecheckAnswer(True)),
        ("exit 1", PrecheckAnswer(False)),
        ("echo no mail; echo not this >&2; exit 1", PrecheckAnswer(False, "no mail")),
        ("echo no mail >&2; exit 1", PrecheckAnswer(False, "no mail")),
        ("echo no server >&2; exit 2", Failed("exit 2: no server", reason="exit")),
        ("kill -KILL $$", Failed("killed by SIGKILL", reason="killed")),
    ],
)
async def test_the_exit_code_of_a_precheck_decides_whether_to_launch(
    launcher: CommandLauncher, script: str, answer: PrecheckResult
):
    precheck = {**sh(script), "timeoutMs": 5000}
    assert await launcher.precheck(launch({"kind": "pull"}), precheck) == answer


async def test_a_precheck_is_marked_in_the_environment_and_has_its_own_key(launcher: CommandLauncher):
    precheck = sh('cat; echo " $WAKEFUL_PRECHECK $WAKEFUL_IDEMPOTENCY_KEY [$WAKEFUL_PRECHECK_STATE]"; exit 1')
    answer = await launcher.precheck(launch({"kind": "pull"}, '{"a":1}', key="k"), precheck)
    assert answer == PrecheckAnswer(False, '{"a":1} 1 k-precheck []')


async def test_a_precheck_command_that_is_not_allowed_is_not_run():
    answer = await command_launcher().precheck(launch({"kind": "pull"}), sh("true"))
    assert "no commands are allowed" in error(answer)


async def test_a_command_runs_where_no_temporary_directory_is_writable(monkeypatch: pytest.MonkeyPatch):
    def refuse(**options: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("wakeful.launch.command.mkdtemp", refuse)
    launcher = command_launcher("*")
    outcome = await run(launcher, 'echo "done${JOB_EVIDENCE_FILE}"')
    await launcher.close()
    assert isinstance(outcome, Succeeded)
    assert (outcome.output, outcome.evidence) == ("done\n", None)
    assert outcome.evidence_error is not None
    assert "set TMPDIR" in outcome.evidence_error
