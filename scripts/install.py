"""Install the package in editable mode, with its dependencies, into .venv, unless that is done.

    python3 scripts/install.py product      # Wakeful and its extras: `make run`
    python3 scripts/install.py tools        # and the tools for tests, lint, benchmarks and docs: `make test`

It runs before anything is installed, so it uses the standard library only.

Each part ends with a stamp, a file that contains the directory. During an installation the file `.incomplete`
exists. After an interrupted installation, or in a directory that was moved, .venv is built from scratch.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv"
PYTHON: Final = VENV / "bin" / "python"
PRODUCT: Final = VENV / ".product"
TOOLS: Final = VENV / ".tools"
INCOMPLETE: Final = VENV / ".incomplete"
LOCK: Final = VENV / ".lock"
#: The build backend: with it in .venv, pip needs no second environment to build the package.
_BUILD: Final = ("hatchling", "editables")
#: The dependencies are compiled when they are first imported. To compile all of them takes longer.
_PIP_OPTIONS: Final = (
    *("--no-compile", "--disable-pip-version-check", "--progress-bar=off"),
    *("-c", "constraints.txt"),
)


def main(part: str) -> int:
    """Install a part; return the exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036
        return failed("Wakeful needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ...")
    VENV.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current(PRODUCT) and (part == "product" or is_current(TOOLS)):
            return 0
        started = time.monotonic()
        try:
            if not is_current(PRODUCT):
                say("== installing Wakeful into .venv (half a minute if pip has the packages)")
                install("all", PRODUCT)
            if part == "tools":
                say("== installing the developer tools into .venv (a minute if pip has the packages)")
                install("dev", TOOLS)
        except subprocess.CalledProcessError as error:
            return failed(f"{error.output}\n{error}\nthe next `make` tries again; `make clean` removes .venv")
        except KeyboardInterrupt:
            return failed("\ninterrupted; the next `make` installs it from scratch")
        say(f"== installed in {time.monotonic() - started:.0f} s")
        return 0


def is_current(stamp: Path) -> bool:
    """Return whether a part is installed, here, after the last change of the dependencies."""
    if not PYTHON.exists() or not stamp.exists() or INCOMPLETE.exists() or is_moved():
        return False
    return all(
        stamp.stat().st_mtime >= (ROOT / name).stat().st_mtime
        for name in ("pyproject.toml", "constraints.txt")
    )


def is_moved() -> bool:
    """Return whether .venv was installed in another directory: its programs contain the path."""
    return any(stamp.exists() and stamp.read_text() != str(ROOT) for stamp in (PRODUCT, TOOLS))


def install(extra: str, stamp: Path) -> None:
    """Install the package with an extra, and write the stamp."""
    broken = INCOMPLETE.exists() or is_moved() or not PYTHON.exists()
    stamp.unlink(missing_ok=True)
    INCOMPLETE.touch()
    if broken:
        new_environment()
    try:
        if not broken:
            pip(*_BUILD)
        pip("--no-build-isolation", "-e", f".[{extra}]")
    except subprocess.CalledProcessError:
        INCOMPLETE.unlink()  # pip has restored what it replaced: without a network, the next one finds it
        raise
    stamp.write_text(str(ROOT))
    INCOMPLETE.unlink()


def new_environment() -> None:
    """Replace .venv by a new environment with pip and the build backend."""
    for each in VENV.iterdir():
        if each in (LOCK, INCOMPLETE):
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    run([sys.executable, "-m", "venv", "--without-pip", str(VENV)])
    bootstrap = ["install", *_PIP_OPTIONS, "pip", *_BUILD]
    try:
        # The pip of this Python takes a third of the time of `ensurepip`, which compiles.
        run([sys.executable, "-m", "pip", "--python", str(PYTHON), *bootstrap])
    except subprocess.CalledProcessError:  # it has no pip, or one that is too old
        run([str(PYTHON), "-m", "ensurepip"])
        run([str(PYTHON), "-m", "pip", *bootstrap, "--upgrade"])


def pip(*arguments: str) -> None:
    """Install with the pip of .venv."""
    run([str(PYTHON), "-m", "pip", "install", *_PIP_OPTIONS, *arguments], progress=show_progress)


def run(command: list[str], progress: Callable[[Iterable[str]], list[str]] = list) -> None:
    """Run a command; raise an error with its output if it fails."""
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = progress(process.stdout)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, "".join(lines))


def show_progress(lines: Iterable[str]) -> list[str]:
    """Show the package that pip is at, on a terminal; return all lines."""
    seen = []
    for line in lines:
        seen.append(line)
        verb, _, rest = line.strip().partition(" ")
        if sys.stdout.isatty() and verb in ("Collecting", "Downloading", "Installing") and rest:
            say(f"\r\033[K   {verb.lower()} {rest.split()[0].rstrip(',')}", end="")
    if sys.stdout.isatty():
        say("\r\033[K", end="")
    return seen


def say(text: str, end: str = "\n") -> None:
    """Print a text at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def failed(text: str) -> int:
    """Print an error; return the exit code."""
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
