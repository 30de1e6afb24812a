"""Check the data in the documentation: it can be parsed, and job documents and targets are valid."""

from __future__ import annotations

import ast
import configparser
import json
import re
import subprocess
import tomllib
from collections.abc import Mapping

import yaml

from tests.support.doc_pages import DATA, Block
from wakeful.cli.manifest import read_manifest
from wakeful.document import Defaults, read_definition
from wakeful.errors import WakefulError
from wakeful.job.target_kinds import TARGET_KINDS

#: An instant before all times in the documentation, so that no one-time schedule is in the past.
_EARLY_MS = 1_767_225_600_000
_INSTRUCTION = re.compile(
    r"(ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|RUN|STOPSIGNAL|USER|VOLUME|WORKDIR)\s"
)


def check_block(block: Block) -> None:
    """Check the syntax of a block, and the documents in it. AssertionError with the place if it is wrong."""
    try:
        if block.language in DATA:
            value = _parse(block)
            if block.mark in ("data", "file") and block.language in ("json", "yaml"):
                _check_documents(block.text, value)
        elif block.language == "bash":
            _check_bash(block.text)
        elif block.language == "python" and ">>>" not in block.text:
            ast.parse(block.text)
    except (ValueError, SyntaxError, yaml.YAMLError, configparser.Error, WakefulError) as error:
        raise AssertionError(f"{block.place}: {error}") from error


def _parse(block: Block) -> object:
    match block.language:
        case "json":
            return json.loads(block.text)
        case "yaml":
            documents = list(yaml.safe_load_all(block.text))
            return documents[0] if len(documents) == 1 else documents
        case "toml":
            return tomllib.loads(block.text)
        case "ini":
            parser = configparser.ConfigParser(strict=False, interpolation=None)  # systemd repeats names
            parser.read_string(block.text)
            return parser
        case "sql":
            statements = block.text.strip().split(";\n")
            if not statements[-1].endswith(";"):
                raise ValueError(f"a statement without ';' at its end: {statements[-1]}")
            return statements
    lines = [line for line in re.sub(r"\\\n", " ", block.text).split("\n") if line.strip()]
    unknown = [line for line in lines if not line.startswith("#") and not _INSTRUCTION.match(line)]
    if unknown:
        raise ValueError(f"not an instruction of a Dockerfile: {unknown[0]}")
    return lines


def _check_bash(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr.strip())


def _check_documents(text: str, value: object) -> None:
    """Validate a file of jobs, a job or a target; accept anything else."""
    if isinstance(value, Mapping) and value.get("kind") in TARGET_KINDS:
        text = json.dumps([{"name": "example", "schedule": "@daily", "target": value}])
    elif _is_job(value):
        text = json.dumps([value])
    elif not any(_is_job(each) for each in _listed(value)):
        return
    for job in read_manifest(text, "default").jobs:
        read_definition(job.document, now_ms=_EARLY_MS, defaults=Defaults())


def _listed(value: object) -> list[object]:
    listed = value.get("jobs") if isinstance(value, Mapping) else value
    return listed if isinstance(listed, list) else []


def _is_job(value: object) -> bool:
    return (
        isinstance(value, Mapping) and "name" in value and bool(value.keys() & {"schedule", "cron", "after"})
    )
