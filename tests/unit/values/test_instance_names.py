"""The names of instances: which text is one, and that a path or a source keeps it."""

from __future__ import annotations

import unicodedata
from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from wakeful.errors import InvalidArgument
from wakeful.job.job import check_slug
from wakeful.run.instances import schedule_job_name
from wakeful.signal.signals import Signal
from wakeful.values.instance_names import (
    MAX_INSTANCE,
    check_instance,
    instance_from_path,
    instance_to_path,
    instance_to_source,
)

names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=MAX_INSTANCE)


@given(names)
@example("..")
@example(".")
@example("a/../b")
@example("%2F")
@example("~Li4")
@example("//a//")
@example("customer:7@eu?x=1#y")
def test_a_name_survives_the_path_of_an_address_in_clients_that_normalize_it(name: str):
    part = quote(instance_to_path(name), safe="")
    path = URL(f"http://a.example/instances/{part}/start").raw_path
    assert path == f"/instances/{part}/start" or unquote(path) == unquote(f"/instances/{part}/start")
    assert instance_from_path(unquote(part)) == name
    assert part not in (".", "..")
    assert "%2F" not in part


@given(names)
def test_a_valid_name_is_composed_once(name: str):
    if len(unicodedata.normalize("NFC", name)) > MAX_INSTANCE:
        return
    checked = check_instance(name)
    assert checked == unicodedata.normalize("NFC", name) == check_instance(checked)


@given(names)
def test_a_name_becomes_a_source_and_the_name_of_a_job(name: str):
    Signal("a", source=f"/workspaces/{'w' * 64}/agents/{'a' * 64}/instances/{instance_to_source(name)}")
    check_slug(schedule_job_name(name, "dynamic", name[:128]))


def test_names_of_jobs_of_different_instances_differ():
    split = schedule_job_name("a", "declared", "b/declared/c")
    assert split != schedule_job_name("a/declared/b", "declared", "c")
    assert schedule_job_name("🙂", "declared", "🙂") != schedule_job_name("🙃", "declared", "🙂")
    assert schedule_job_name("eu", "declared", "daily") == "eu-daily-3d7134e8"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "give the name of an instance"),
        (7, "give the name of an instance"),
        (None, "give the name of an instance"),
        ("a\x00b", r"control character U\+0000"),
        ("a\nb", r"control character U\+000A"),
        ("a\u2028é", r"control character U\+2028"),
        ("\ud800", r"control character U\+D800"),
        ("x" * 256, "has 256 characters; it may have 255"),
        ("é" * 256, "has 256 characters; it may have 255"),
    ],
)
def test_other_values_are_no_names(name: object, message: str):
    with pytest.raises(InvalidArgument, match=f"instance: .*{message}"):
        check_instance(name)
