"""Build the sdist and the wheel into dist/, and try the wheel in a new environment.

    python -m scripts.package

The wheel is built from the unpacked sdist, so both are complete. The environment has the wheel without extras
and nothing of this repository; a server runs in it, and jobs are added, applied and listed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
_JOBS: Final = """
jobs:
  - {name: report, schedule: "0 9 * * 1-5", tz: Europe/Berlin, exclude: ["holidays:DE-BY"], message: hello}
"""


def main() -> None:
    """Build and try the package; raise an error if something fails."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="wakeful-package-") as name:
        folder = Path(name)
        sdist = build("sdist", ROOT)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        wheel = build("wheel", folder / sdist.name.removesuffix(".tar.gz"))
        say(f"built {sdist.name} and {wheel.name}")
        python = environment(folder / "venv", wheel)
        say("installed the wheel in a new environment")
        try_commands(python, folder)
    say("the installed package works: serve, add, apply, list, preview")


def build(kind: str, source: Path) -> Path:
    """Build the sdist or wheel of a directory into dist/; return the file."""
    before = set(DIST.glob("*"))
    run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(DIST)], cwd=source)
    (built,) = set(DIST.glob("*")) - before
    return built


def environment(venv: Path, wheel: Path) -> Path:
    """Install the wheel with its dependencies into a new environment; return its Python."""
    run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)])
    return python


def try_commands(python: Path, folder: Path) -> None:
    """Run a server and commands of the package in this environment."""
    (folder / "jobs.yaml").write_text(_JOBS)
    with server(python, folder) as variables:

        def wakeful(*arguments: str) -> str:
            return run([str(python.with_name("wakeful")), *arguments], cwd=folder, env=variables)

        wakeful("add", "hello", "--schedule", "every 10s", "--target", '{"kind": "pull"}')
        wakeful("apply", "jobs.yaml")
        names = [job["name"] for job in json.loads(wakeful("list", "--json"))["jobs"]]
        if sorted(names) != ["hello", "report"]:
            raise SystemExit(f"the installed package lists {names}, not hello and report")
        wakeful("preview", "report")


@contextmanager
def server(python: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Run `wakeful serve --dev`; yield the environment variables of its command line."""
    kept = ("PATH", "LANG", "PYTHONDONTWRITEBYTECODE")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables |= {"HOME": str(folder), "WAKEFUL_DB": f"sqlite:///{folder}/wakeful.db"}
    serve = [str(python), "-I", "-m", "wakeful", "serve", "--dev", "--port", "0", "--json"]
    with subprocess.Popen(serve, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line == "}\n":
                    break
            yield {**variables, "WAKEFUL_URL": json.loads("".join(lines))["url"]}
        finally:
            process.terminate()


def run(command: list[str], cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; stop with its output if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
