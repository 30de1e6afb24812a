"""The CPU time of imports and of commands that start and end, and the size of an installation.

    python -m benchmarks.startup

`list` asks a server on this machine that has ten jobs. Each time is the least of ten calls, as the sum of
user and system time, and as a ratio to `python -c pass` in the same run; that of an import as a ratio to
`import fastapi`, with the number of modules. Sizes count the files of the
installed packages without bytecode.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

CALLS = 10
JOBS = 10
WAKEFUL = [sys.executable, "-m", "wakeful"]
EXTRAS = ("", "postgres", "mcp", "deliver", "nats", "celery", "kubernetes", "otel", "all", "dev")


_APP: Final = "from wakeful import Wakeful"
IMPORTS: Final = ("import fastapi", "import wakeful.cron", _APP, f"{_APP}; Wakeful('sqlite://')")


def main() -> None:
    measure_imports()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as environment:
        for number in range(JOBS):
            add = [*WAKEFUL, "add", f"job-{number}", "--schedule", "@daily", "--target", '{"kind": "pull"}']
            subprocess.run(add, env=environment, stdout=subprocess.DEVNULL, check=True)
        bare = cpu_seconds([sys.executable, "-c", "pass"], environment)
        print(f"python -c pass     {bare:6.3f} s CPU")
        for words in (["--version"], ["--help"], ["list", "--help"], ["list"], ["list", "--json"]):
            seconds = cpu_seconds([*WAKEFUL, *words], environment)
            print(
                f"{'wakeful ' + ' '.join(words):18} {seconds:6.3f} s CPU, {seconds / bare:5.1f} times python"
            )
    base = packages("")
    for extra in EXTRAS:
        names = packages(extra)
        size, more = megabytes(names), megabytes(names - base)
        added = f", {more:.0f} MB more than without" if extra else ""
        print(
            f"{'wakeful' + (f'[{extra}]' if extra else ''):18} {len(names):3} packages, {size:3.0f} MB{added}"
        )


def measure_imports() -> None:
    """Print the time of each import beside the first, without that of the interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    bare = cpu_seconds([sys.executable, "-c", "pass"], environment)
    times = {each: cpu_seconds([sys.executable, "-c", each], environment) - bare for each in IMPORTS}
    count = "import sys; before = len(sys.modules); {}; print(len(sys.modules) - before)"
    for each, seconds in times.items():
        program = [sys.executable, "-c", count.format(each)]
        modules = subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout
        ratio = seconds / times[IMPORTS[0]]
        print(f"{each:54} {seconds:6.3f} s CPU, {ratio:4.2f} of fastapi, {modules.strip()} modules")


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """Return the least CPU time of a command."""
    times = []
    for _ in range(CALLS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@contextmanager
def server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server; yield the environment of its command line."""
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("WAKEFUL_KEY", None)
    serve = [*WAKEFUL, "serve", "--port", "0", "--db", str(folder / "wakeful.db"), "--json"]
    with subprocess.Popen(
        serve, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            text = ""
            for line in process.stdout:
                text += line
                if line == "}\n":
                    break
            yield {**environment, "WAKEFUL_URL": json.loads(text)["url"]}
        finally:
            process.terminate()


def packages(extra: str) -> frozenset[str]:
    """Return the names of the packages that `wakeful[extra]` installs."""
    found: set[tuple[str, str]] = set()
    left = [("wakeful", extra)]
    while left:
        name, wanted = left.pop()
        if (name, wanted) in found:
            continue
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found |= {(name, wanted), (name, "")}
        for text in requirements:
            each = Requirement(text)
            if each.marker is None or each.marker.evaluate({"extra": wanted}):
                left += [(each.name.lower(), option) for option in ("", *each.extras)]
    return frozenset(name.replace("_", "-") for name, _ in found)


def megabytes(names: frozenset[str]) -> float:
    """Return the size of the files of packages."""
    source = Path(__file__).parent.parent / "src"
    total = sum(path.stat().st_size for path in source.rglob("*") if path.suffix != ".pyc" and path.is_file())
    if "wakeful" not in names:
        total = 0
    for name in names:
        for file in distribution(name).files or []:
            path = Path(str(file.locate()))
            if path.suffix != ".pyc" and path.is_file():
                total += path.stat().st_size
    return total / 1e6


if __name__ == "__main__":
    main()
