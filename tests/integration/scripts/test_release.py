"""The steps of a release, and the workflow that runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.release import check_tag, release_notes, write_sbom
from tests.support.paths import ROOT
from tests.support.tools import tool_module
from wakeful.values.package import VERSION

_CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Something new.

## [0.2.0] - 2030-02-28

### Fixed

- A defect.

## [0.1.0] - 2030-01-31

- The beginning.

## 0.0.9

- No date.

## [0.0.8] - 2029-01-01
"""


def test_the_notes_are_the_section_of_the_version():
    assert release_notes("0.2.0", _CHANGELOG) == "### Fixed\n\n- A defect."
    assert release_notes("0.1.0", _CHANGELOG) == "- The beginning."


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("v0.2.0", "0.3.0", "the tag is v0.2.0, but the version is 0.3.0"),
        ("0.2.0", "0.2.0", "the tag is 0.2.0"),
        ("v0.3.0", "0.3.0", "no section of 0.3.0"),
        ("v0.0.9", "0.0.9", "write the date"),
        ("v0.0.8", "0.0.8", "is empty"),
        ("vUnreleased", "Unreleased", "write the date"),
    ],
)
def test_a_release_that_is_not_prepared_is_stopped(tag: str, version: str, why: str):
    with pytest.raises(SystemExit, match=re.escape(why)):
        check_tag(tag, _CHANGELOG, version)
    check_tag("v0.2.0", _CHANGELOG, "0.2.0")


def test_the_unreleased_changes_become_notes_when_they_are_given_a_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "### Added" in release_notes(
        "9.9.9", text.replace("## [Unreleased]", "## [9.9.9] - 2030-01-31", 1)
    )


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_the_workflow_calls_steps_and_targets_that_exist(workflow: dict[str, Any]):
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    script = "\n".join(step.get("run", "") for step in steps)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^\s*make ([a-z-]+)", script, re.MULTILINE)) == {"tools", "package"} <= targets
    assert set(re.findall(r"scripts\.release (\w+)", script)) == {"check", "notes", "sbom"}
    for step in steps:
        assert ("run" in step) != ("uses" in step), step
        if "run" in step:  # each is a program of a shell
            subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
    extra = re.findall(r"'\.\[(\w+)\]'", script)
    assert extra == ["release"]
    assert "release = [" in (ROOT / "pyproject.toml").read_text()


def test_only_the_job_that_publishes_has_the_identity_and_it_runs_no_code_of_ours(workflow: dict[str, Any]):
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert not any("run" in step for step in jobs["publish"]["steps"])
    assert [
        name
        for name, job in jobs.items()
        if "contents" in job["permissions"] and job["permissions"]["contents"] == "write"
    ] == ["announce"]
    assert (jobs["publish"]["needs"], jobs["announce"]["needs"]) == ("build", "publish")
    assert "password" not in str(workflow)
    assert "secrets." not in str(workflow)


@pytest.mark.slow
def test_the_sbom_lists_the_dependencies_of_the_wheel_and_no_tools(tmp_path: Path):
    tool_module("cyclonedx_py")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    write_sbom(tmp_path / "sbom.json", tmp_path)
    sbom = json.loads((tmp_path / "sbom.json").read_text())
    component = sbom["metadata"]["component"]
    assert (sbom["bomFormat"], component["name"], component["version"]) == ("CycloneDX", "wakeful", VERSION)
    names = {component["name"].lower() for component in sbom["components"]}
    assert {"aiohttp", "cryptography", "fastapi", "uvicorn"} <= names
    assert names.isdisjoint({"pytest", "mypy", "asyncpg", "celery", "cyclonedx-bom"})
