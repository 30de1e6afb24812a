"""Which environment variables a job may set for its command."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.programs import command_launcher
from wakeful import InvalidArgument
from wakeful.launch.command_rules import EnvironmentAllowlist

#: Each makes some ordinary program run code of the job's author.
DANGEROUS = [
    *(
        "BASH_ENV",
        "ENV",
        "PATH",
        "IFS",
        "PYTHONWARNINGS",
        "BROWSER",
        "PYTHONPATH",
        "PERL5OPT",
        "NODE_OPTIONS",
    ),
    *("GIT_SSH_COMMAND", "RUBYOPT", "JAVA_TOOL_OPTIONS", "PAGER", "EDITOR", "TO", "JOB", "job_to", "XJOB_TO"),
]


def command(**env: str) -> dict[str, Any]:
    return {"kind": "command", "argv": ["true"], "env": env}


@pytest.mark.parametrize("name", DANGEROUS)
def test_by_default_a_job_sets_only_names_that_start_with_job(name: str):
    launcher = command_launcher("*")
    launcher.check(command(JOB_TO="me", JOB_="x"))
    with pytest.raises(InvalidArgument) as error:
        launcher.check(command(JOB_TO="me", **{name: "x"}))
    assert error.value.message == (
        f"target: env: a job cannot set '{name}'; the operator allows JOB_*, and more by WAKEFUL_COMMAND_ENV"
    )


def test_the_operator_can_allow_other_names():
    names = EnvironmentAllowlist(["REPORT_TO", "MY_*_DIR"])
    names.check(["REPORT_TO", "MY_LOG_DIR", "MY__DIR"])
    for other in ("JOB_TO", "REPORT_TO_", "MY_LOG_DIRS", "my_log_dir"):
        with pytest.raises(InvalidArgument, match=r"the operator allows REPORT_TO, MY_\*_DIR, and more by"):
            names.check([other])
    with pytest.raises(InvalidArgument, match="the operator allows none"):
        EnvironmentAllowlist([]).check(["JOB_TO"])


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "WAKEFUL_RUN_ID"])
def test_reserved_names_are_refused_whatever_is_allowed(name: str):
    EnvironmentAllowlist(["*"]).check(["PATH"])
    with pytest.raises(
        InvalidArgument, match=f"a job cannot set '{name}'; names that start with WAKEFUL_, LD"
    ):
        EnvironmentAllowlist(["*"]).check([name])
    with pytest.raises(InvalidArgument, match=f"WAKEFUL_COMMAND_ENV: '{name}' cannot be allowed"):
        EnvironmentAllowlist([name])


@pytest.mark.parametrize("entry", ["", "A=B", "A B", "1A", "A?", "[A]", "Ä", "A-B"])
def test_an_entry_that_is_not_a_name_is_refused(entry: str):
    with pytest.raises(InvalidArgument, match=r"WAKEFUL_COMMAND_ENV: .* is not the name of an environment"):
        EnvironmentAllowlist([entry])
