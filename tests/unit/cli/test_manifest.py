"""A file of jobs: how it is read, and what it would change."""

from __future__ import annotations

from typing import Any, cast

import pytest

from wakeful.cli.manifest import plan, read_manifest
from wakeful.cli.show.diff import diff
from wakeful.client.types import JobShape
from wakeful.document import Defaults, read_definition, write_definition
from wakeful.errors import InvalidArgument

NOW = 1_800_000_000_000


def there(
    document: dict[str, Any], *, agent: str = "default", enabled: bool = True, tz: str = "UTC"
) -> JobShape:
    """The job of this document, as a server shows it."""
    definition = read_definition(document, now_ms=NOW, defaults=Defaults(tz))
    job = {**write_definition(definition), "agentId": agent, "enabled": enabled, "revision": 7, "id": "j"}
    return cast(JobShape, job)


def changes(text: str, *jobs: JobShape, prune: bool = False) -> list[tuple[str, str]]:
    found = plan(read_manifest(text, "default"), jobs, now_ms=NOW, prune=prune)
    return [(change.kind, change.name) for change in found]


DAILY = "[{name: digest, schedule: '@daily'}]"


def test_a_file_is_a_list_of_jobs_or_an_object_that_has_one():
    alone = read_manifest(DAILY, "mine")
    within = read_manifest(
        '{"name": "reports", "agent": "writer", "jobs": [{"name": "a", "schedule": "@daily"}]}', "x"
    )

    assert (alone.name, alone.jobs[0].agent) == (None, "mine")
    assert (within.name, within.jobs[0].agent) == ("reports", "writer")


def test_a_job_may_be_of_an_agent_of_its_own():
    (job,) = read_manifest("[{name: a, schedule: '@daily', agentId: other}]", "mine").jobs

    assert job.agent == "other"
    assert "agentId" not in job.document


def test_the_words_and_times_of_a_file_are_what_they_look_like():
    (job,) = read_manifest(
        "- name: a\n  after: {job: b, on: failed}\n  labels: {time: 09:30, day: 2027-03-01, yes: no}", "x"
    ).jobs

    assert job.document["after"] == {"job": "b", "on": "failed"}
    assert job.document["labels"] == {"time": "09:30", "day": "2027-03-01", "yes": "no"}


def test_a_cron_expression_needs_no_quotes_where_yaml_lets_it():
    (job,) = read_manifest("- name: a\n  schedule: 0 9 * * 1-5\n  maxAttempts: 3\n  deliver: true", "x").jobs

    assert (job.document["schedule"], job.document["maxAttempts"]) == ("0 9 * * 1-5", 3)
    assert job.document["deliver"] is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- name: a\n  schedule: * * * * *", "line 2"),
        ("{jobs: [], nmae: x}", "nmae"),
        ("{name: x}", "jobs are missing"),
        ("just text", "a list"),
        ("[1, 2]", "a list"),
        ("- schedule: '@daily'", "job 1 has no name"),
        ("- name: a\n  name: b", "'name' is there twice"),
        ("[{name: a, schedule: '@daily'}, {name: a, schedule: '@hourly'}]", "twice"),
        ("{name: Not A Slug, jobs: []}", "slug"),
        ("{agent: Not A Slug, jobs: [{name: a, schedule: '@daily'}]}", "agent: 'Not A Slug' is not a slug"),
    ],
)
def test_what_is_no_such_file_is_refused_with_a_sentence(text: str, says: str):
    with pytest.raises(InvalidArgument, match=says):
        read_manifest(text, "default")


def test_all_that_is_wrong_in_a_file_is_said_at_once_and_of_which_job():
    text = (
        "[{name: a, schedule: nope}, {name: b, schedule: '@daily'}, {name: c, schedule: '@daily', jitter: x}]"
    )

    with pytest.raises(InvalidArgument) as error:
        changes(text)

    assert "job 'a': schedule" in error.value.message
    assert "job 'c': jitter" in error.value.message
    assert "job 'b'" not in error.value.message


def test_labels_that_are_none_are_refused_though_the_file_adds_its_own():
    with pytest.raises(InvalidArgument, match="labels"):
        changes("{name: reports, jobs: [{name: a, schedule: '@daily', labels: nonsense}]}")


def test_what_is_not_there_is_created_and_what_is_the_same_is_left_alone():
    same = there({"name": "digest", "schedule": "0 0 * * *", "maxAttempts": 5})

    assert changes(DAILY) == [("created", "digest")]
    assert changes(DAILY, same) == [("unchanged", "digest")]


def test_another_field_is_a_change_and_says_from_what_to_what():
    old = there({"name": "digest", "schedule": "@daily", "timeout": "30s", "message": "hello"})

    (change,) = plan(
        read_manifest("[{name: digest, schedule: '@daily', timeout: 1m}]", "default"), [old], now_ms=NOW
    )

    assert change.kind == "changed"
    assert change.fields == {"timeoutMs": (30_000, 60_000), "message": ("hello", None)}


def test_a_schedule_without_a_zone_stays_in_the_one_it_is_in():
    assert changes(DAILY, there({"name": "digest", "schedule": "@daily"}, tz="Asia/Tokyo")) == [
        ("unchanged", "digest")
    ]


def test_a_pause_is_a_change_only_where_the_file_says_so():
    paused = there({"name": "digest", "schedule": "@daily"}, enabled=False)

    assert changes(DAILY, paused) == [("unchanged", "digest")]
    assert changes("[{name: digest, schedule: '@daily', enabled: true}]", paused) == [("changed", "digest")]


def test_a_job_of_another_agent_is_another_job():
    assert changes(DAILY, there({"name": "digest", "schedule": "@daily"}, agent="other")) == [
        ("created", "digest")
    ]


def test_only_the_files_own_jobs_are_ever_removed():
    file = "{name: reports, jobs: [{name: a, schedule: '@daily'}]}"
    own = {"labels": {"managed-by": "reports"}, "schedule": "@daily"}
    jobs = [
        there({"name": "a", **own}),
        there({"name": "gone", **own}),
        there({"name": "other", "schedule": "@daily", "labels": {"managed-by": "others"}}),
        there({"name": "mine", "schedule": "@daily"}),
    ]

    assert changes(file, *jobs) == [("unchanged", "a")]
    assert changes(file, *jobs, prune=True) == [("unchanged", "a"), ("removed", "gone")]


def test_a_file_without_a_name_removes_nothing():
    with pytest.raises(InvalidArgument, match="--prune"):
        changes(DAILY, prune=True)


def test_the_diff_says_each_job_and_what_it_comes_to():
    old = there({"name": "digest", "schedule": "@daily"})
    found = plan(
        read_manifest("[{name: digest, schedule: '@hourly'}, {name: new, schedule: '@daily'}]", "default"),
        [old],
        now_ms=NOW,
    )

    lines = [str(line) for line in diff(found, dry_run=True)]

    assert lines[0].startswith("~ digest")
    assert "0 0 * * *" in lines[1]
    assert "0 * * * *" in lines[1]
    assert lines[2].startswith("+ new")
    assert lines[3].startswith("1 created, 1 changed, 0 unchanged, 0 removed")
