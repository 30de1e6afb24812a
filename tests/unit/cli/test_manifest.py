"""Reading a file of jobs, and the changes it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from wakeful.cli.commands.apply import diff
from wakeful.cli.manifest import ManifestChange, plan, read_manifest
from wakeful.client.types import JobShape
from wakeful.document import Defaults, read_definition, write_definition
from wakeful.errors import InvalidArgument

NOW = 1_800_000_000_000


def existing_job(document: dict[str, Any], *, agent: str = "default", revision: int = 7) -> JobShape:
    """Return the job of this document as the server returns it."""
    definition = read_definition(document, now_ms=NOW, defaults=Defaults())
    job = {**write_definition(definition), "agentId": agent, "enabled": True, "revision": revision}
    return cast(JobShape, {**job, "id": f"id of {document['name']}"})


def make_plan(
    text: str, *jobs: JobShape, new: Sequence[JobShape] = (), prune: bool = False
) -> list[ManifestChange]:
    """Return the changes; `new` are the jobs that the file changes, as the server would save them."""
    would_be = {(job["agentId"], job["name"]): job for job in (*jobs, *new)}
    return plan(read_manifest(text, "default"), jobs, would_be, prune=prune)


def changes(text: str, *jobs: JobShape, prune: bool = False) -> list[tuple[str, str]]:
    return [(change.kind, change.name) for change in make_plan(text, *jobs, prune=prune)]


DAILY = "[{name: digest, schedule: '@daily'}]"


def test_a_file_is_a_list_of_jobs_or_an_object_with_one():
    alone = read_manifest(DAILY, "mine")
    within = read_manifest(
        '{"name": "reports", "agent": "writer", "jobs": [{"name": "a", "schedule": "@daily"}]}', "x"
    )

    assert (alone.name, alone.jobs[0].agent) == (None, "mine")
    assert (within.name, within.jobs[0].agent) == ("reports", "writer")


def test_a_job_can_name_its_agent():
    (job,) = read_manifest("[{name: a, schedule: '@daily', agentId: other}]", "mine").jobs

    assert job.agent == "other"
    assert "agentId" not in job.document


def test_yaml_words_times_and_dates_are_text():
    (job,) = read_manifest(
        "- name: a\n  after: {job: b, on: failed}\n  labels: {time: 09:30, day: 2027-03-01, yes: no}", "x"
    ).jobs

    assert job.document["after"] == {"job": "b", "on": "failed"}
    assert job.document["labels"] == {"time": "09:30", "day": "2027-03-01", "yes": "no"}


def test_a_cron_expression_needs_no_quotes_if_yaml_allows_it():
    (job,) = read_manifest("- name: a\n  schedule: 0 9 * * 1-5\n  maxAttempts: 3\n  deliver: true", "x").jobs

    assert (job.document["schedule"], job.document["maxAttempts"]) == ("0 9 * * 1-5", 3)
    assert job.document["deliver"] is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- name: a\n  schedule: * * * * *", "line 2"),
        ("{jobs: [], nmae: x}", "nmae"),
        ("{name: x}", "'jobs' is missing"),
        ("just text", "a list"),
        ("[1, 2]", "a list"),
        ("- schedule: '@daily'", "job 1 has no name"),
        ("- name: a\n  name: b", "'name' appears twice"),
        ("[{name: a, {b: c}: d}]", "line 1: a key is text"),
        ("[{name: a, ? !!set {b} : d}]", "line 1: a key is text"),
        ("[{name: !!bool a}]", "not valid YAML"),
        ("[{name: !!timestamp a}]", "not valid YAML"),
        ("[{name: a, schedule: '@daily'}, {name: a, schedule: '@hourly'}]", "twice"),
        ("{name: Not A Slug, jobs: []}", "slug"),
        ("{agent: Not A Slug, jobs: [{name: a, schedule: '@daily'}]}", "agent: 'Not A Slug' is not a slug"),
    ],
)
def test_an_invalid_file_is_refused_with_the_reason(text: str, message: str):
    with pytest.raises(InvalidArgument, match=message):
        read_manifest(text, "default")


def test_a_missing_job_is_created_and_an_equal_one_is_unchanged():
    same = existing_job({"name": "digest", "schedule": "0 0 * * *", "maxAttempts": 5})

    assert changes(DAILY) == [("created", "digest")]
    assert changes(DAILY, same) == [("unchanged", "digest")]


def test_a_changed_field_is_listed_with_its_old_and_new_value():
    old = existing_job({"name": "digest", "schedule": "@daily", "timeout": "30s", "message": "hello"})

    new = existing_job({"name": "digest", "schedule": "@daily", "timeout": "1m"}, revision=8)

    (change,) = make_plan("[{name: digest, schedule: '@daily', timeout: 1m}]", old, new=[new])

    assert change.kind == "changed"
    assert change.fields == {"timeoutMs": (30_000, 60_000), "message": ("hello", None)}


def test_a_job_is_changed_if_the_server_does_not_say_how_it_would_be():
    old = existing_job({"name": "digest", "schedule": "@daily"})

    (change,) = plan(read_manifest(DAILY, "default"), [old], {})

    assert (change.kind, change.fields) == ("changed", {})


def test_the_same_name_at_another_agent_is_another_job():
    assert changes(DAILY, existing_job({"name": "digest", "schedule": "@daily"}, agent="other")) == [
        ("created", "digest")
    ]


def test_prune_removes_only_jobs_labelled_with_the_files_name():
    file = "{name: reports, jobs: [{name: a, schedule: '@daily'}]}"
    own = {"labels": {"managed-by": "reports"}, "schedule": "@daily"}
    jobs = [
        existing_job({"name": "a", **own}),
        existing_job({"name": "gone", **own}),
        existing_job({"name": "other", "schedule": "@daily", "labels": {"managed-by": "others"}}),
        existing_job({"name": "mine", "schedule": "@daily"}),
    ]

    assert changes(file, *jobs) == [("unchanged", "a")]
    assert changes(file, *jobs, prune=True) == [("unchanged", "a"), ("removed", "gone")]


def test_prune_for_one_agent_removes_no_jobs_of_agents_that_have_the_same_file():
    file = "{name: reports, jobs: [{name: a, schedule: '@daily'}]}"
    own = {"labels": {"managed-by": "reports"}, "schedule": "@daily"}
    jobs = [existing_job({"name": name, **own}, agent=agent) for agent in ("ada", "bob") for name in "ab"]

    def removed(agent: str | None) -> list[tuple[str, str]]:
        manifest = read_manifest(file, agent or "ada")
        would_be = {(job["agentId"], job["name"]): job for job in jobs}
        found = plan(manifest, jobs, would_be, prune=True, agent=agent)
        return [(change.agent, change.name) for change in found if change.kind == "removed"]

    assert removed("ada") == [("ada", "b")]
    assert removed("bob") == [("bob", "b")]
    assert removed(None) == [("ada", "b"), ("bob", "a"), ("bob", "b")]


def test_prune_needs_a_file_with_a_name():
    with pytest.raises(InvalidArgument, match="--prune"):
        changes(DAILY, prune=True)


def test_the_diff_shows_each_job_and_the_totals():
    old = existing_job({"name": "digest", "schedule": "@daily"})
    new = existing_job({"name": "digest", "schedule": "@hourly"}, revision=8)
    text = "[{name: digest, schedule: '@hourly'}, {name: new, schedule: '@daily'}]"
    result = make_plan(text, old, new=[new])

    lines = [str(line) for line in diff(result, dry_run=True)]

    assert lines[0].startswith("~ digest")
    assert "0 0 * * *" in lines[1]
    assert "0 * * * *" in lines[1]
    assert lines[2].startswith("+ new")
    assert lines[3].startswith("1 created, 1 changed, 0 unchanged, 0 removed")
