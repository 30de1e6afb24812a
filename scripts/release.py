"""The steps of a release that do not need a package index. `.github/workflows/release.yml` runs them.

    python -m scripts.release check v0.1.0      check the tag, and the section of the changelog
    python -m scripts.release notes 0.1.0       print the section of the changelog
    python -m scripts.release sbom FILE         write the SBOM of the wheel in dist/ with its dependencies

The SBOM (CycloneDX) needs the extra `release`, and a wheel, which `make package` builds.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from scripts.package import DIST, ROOT, environment, run, say
from wakeful.values.package import VERSION

_SECTION = re.compile(
    r"^## \[?(?P<version>[^\]\s]+)\]?(?: - (?P<date>\S+))?\n(?P<text>.*?)(?=^## |\Z)", re.M | re.S
)


def check_tag(tag: str, changelog: str, version: str = VERSION) -> None:
    """Stop if a tag is not that of this version, or if the changelog has no dated section of it."""
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, but the version is {version} (src/wakeful/values/package.py)")
    release_notes(version, changelog)


def release_notes(version: str, changelog: str) -> str:
    """Return the section of a version in the changelog; stop if it is missing, empty or not dated."""
    for section in _SECTION.finditer(changelog):
        if section["version"] == version:
            if re.fullmatch(r"\d{4}-\d{2}-\d{2}", section["date"] or "") is None:
                raise SystemExit(f"CHANGELOG.md: write the date of {version}: '## [{version}] - 2030-01-31'")
            if text := section["text"].strip():
                return text
            raise SystemExit(f"CHANGELOG.md: the section of {version} is empty")
    raise SystemExit(f"CHANGELOG.md has no section of {version}; rename 'Unreleased' to it")


def write_sbom(file: Path, dist: Path = DIST) -> None:
    """Write the SBOM of an environment that has the wheel, its dependencies and nothing else."""
    wheels = list(dist.glob("*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"dist/ has {len(wheels)} wheels, not one; run `make package`")
    program = Path(sys.executable).with_name("cyclonedx-py")
    if not program.exists():
        raise SystemExit("cyclonedx-py is not installed: pip install -e '.[release]'")
    with tempfile.TemporaryDirectory(prefix="wakeful-sbom-") as folder:
        python = environment(Path(folder) / "venv", wheels[0])
        options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "-o", str(file)]
        run([str(program), "environment", *options, str(python)])
    sbom = json.loads(file.read_text(encoding="utf-8"))
    sbom["metadata"]["component"]["version"] = VERSION  # pyproject.toml has none: the build reads it
    file.write_text(json.dumps(sbom, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Run one step."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    match arguments:
        case ["check", tag]:
            check_tag(tag, changelog)
        case ["notes", version]:
            say(release_notes(version, changelog))
        case ["sbom", file]:
            write_sbom(Path(file).absolute())
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
