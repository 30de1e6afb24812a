"""The Job of a run."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kubernetes_rules import decoded, new_job
from tests.support.kubernetes_status import ApiError
from tests.support.tools import tool_module
from wakeful.errors import InvalidArgument, Permanent
from wakeful.model import Run
from wakeful.model.enums import DeliveryState, RunState, Trigger
from wakeful.remote.kubernetes.templates import (
    MAX_VARIABLE,
    check_executor_name,
    check_template,
    choose_template,
    job_manifest,
    job_name,
    main_container,
    template_names,
)
from wakeful.values.json_value import Json

AT = datetime(2027, 1, 1, 9, tzinfo=UTC)
RUN = Run(
    id="0190a0b0-0000-7000-8000-000000000000", job_id="j1", workspace="default", agent="writer", job="digest",
    scheduled_at=AT, fire_at=AT, trigger=Trigger.SCHEDULE, triggered_by=None, state=RunState.RUNNING,
    reason=None, covers=1, missed=0, until_at=None, attempt=2, failed_attempts=1, worker="cluster-1",
    lane="cron", due_at=None, started_at=AT, finished_at=None, idempotency_key="key", replay_of=None,
    payload={"message": "hello"}, response_code=None, output=None, error=None, usage=None,
    dead=False, delivery=DeliveryState.NOT_REQUESTED, delivery_error=None, created_at=AT,
)  # fmt: skip


def template(**spec: object) -> dict[str, Any]:
    pod = {"containers": [{"name": "work", "image": "busybox"}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}, **spec}}


def test_the_name_is_the_same_for_the_same_attempt_only():
    assert job_name(RUN) == job_name(replace(RUN, worker="another", output="x"))
    others = [replace(RUN, attempt=3), replace(RUN, idempotency_key="other"), replace(RUN, id="replay")]
    assert len({job_name(run) for run in [RUN, *others]}) == 4
    assert len(job_name(replace(RUN, attempt=10**6))) <= 52  # the name of a pod has a suffix


def test_the_template_is_not_changed():
    own = template()
    before = copy.deepcopy(own)
    job_manifest(own, RUN, "cluster-1")
    assert own == before


def test_a_job_runs_one_pod_once_whatever_its_template_says():
    own = template(backoffLimit=6, completions=5, parallelism=5, manualSelector=True, selector={})
    own["metadata"] = {"generateName": "x-", "namespace": "other", "labels": {"team": "a"}, "uid": "1"}
    own["status"] = {"active": 1}
    job = job_manifest(own, RUN, "cluster-1")
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (0, 1, 1)
    assert {"selector", "manualSelector"} & spec.keys() == set()
    assert job["metadata"].keys() == {"name", "labels", "annotations"}
    labels = {"wakeful/executor": "cluster-1", "wakeful/run-id": RUN.id, "wakeful/attempt": "2"}
    assert job["metadata"]["labels"] == {"team": "a", **labels}
    assert spec["template"]["metadata"]["labels"] == labels
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert "status" not in job


INDEXED = st.fixed_dictionaries(
    {"completionMode": st.just("Indexed"), "completions": st.just(5), "parallelism": st.integers(0, 5)},
    optional={
        "backoffLimitPerIndex": st.just(1),
        "successPolicy": st.sampled_from(
            [{"rules": [{"succeededIndexes": "0-4"}]}, {"rules": [{"succeededCount": 3}]}]
        ),
    },
)
ANY_MODE = st.fixed_dictionaries(
    {},
    optional={
        "backoffLimit": st.integers(0, 6),
        "activeDeadlineSeconds": st.integers(1, 60),
        "suspend": st.booleans(),
        "podReplacementPolicy": st.just("Failed"),
        "managedBy": st.just("example.com/manager"),
        "podFailurePolicy": st.sampled_from(
            [
                {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]}
                for action in ("FailJob", "Ignore", "Count", "FailIndex")
            ]
        ),
    },
)


@given(INDEXED | st.just({}), ANY_MODE, st.sampled_from(["OnFailure", "Never"]), st.booleans())
def test_the_api_server_accepts_the_job_of_a_template_that_it_accepts(
    indexed: dict[str, Any], fields: dict[str, Any], restart: str, exported: bool
):
    own = copy.deepcopy(template(**fields, **indexed))
    own["metadata"] = {"name": "own"}
    own["spec"]["template"]["spec"]["restartPolicy"] = restart
    if "backoffLimitPerIndex" in own["spec"]:
        own["spec"]["maxFailedIndexes"] = 3
    try:
        accepted = new_job(own, "1")
    except ApiError:
        return
    job = job_manifest(accepted if exported else own, RUN, "cluster-1")
    made = new_job(decoded(job, strict=True)[0], "2")["spec"]
    assert (made["backoffLimit"], made["completions"], made["parallelism"]) == (0, 1, 1)
    for kept in ("completionMode", "suspend"):
        assert made[kept] == accepted["spec"][kept]


def test_jobs_match_the_schemas_of_kubernetes():
    validator = tool_module("kubernetes_validate")
    indexed: Any = {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1}
    indexed |= {"successPolicy": {"rules": [{"succeededCount": 1}]}, "suspend": True}
    whole = replace(RUN, timeout=timedelta(seconds=90), context={"output": "x"}, traceparent="00-1-2-01")
    for own in (template(), template(**indexed)):
        for run in (RUN, whole):
            validator.validate(job_manifest(own, run, "cluster-1"), validator.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("own", "timeout_s", "deadline"),
    [(None, None, None), (None, 90, 90), (60, 90, 60), (120, 90, 90), (120, None, 120), (None, 0.2, 1)],
)
def test_the_deadline_is_the_shorter_of_the_timeouts(
    own: int | None, timeout_s: float | None, deadline: int | None
):
    fields = {} if own is None else {"activeDeadlineSeconds": own}
    run = replace(RUN, timeout=None if timeout_s is None else timedelta(seconds=timeout_s))
    assert job_manifest(template(**fields), run, "x")["spec"].get("activeDeadlineSeconds") == deadline


def test_the_time_to_live_is_that_of_the_template_if_it_has_one():
    assert job_manifest(template(), RUN, "x")["spec"]["ttlSecondsAfterFinished"] == 3_600
    job = job_manifest(template(ttlSecondsAfterFinished=5), RUN, "x")
    assert job["spec"]["ttlSecondsAfterFinished"] == 5


def test_every_container_gets_the_variables_of_the_run():
    own = template()
    pod = own["spec"]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "MODE", "value": "a"}, {"name": "JOB_PAYLOAD", "value": "own"}]
    pod["initContainers"] = [{"name": "prepare", "image": "busybox"}]
    run = replace(RUN, payload={"message": "$(SECRET) é"}, traceparent="00-1-2-01", context={"output": "x"})
    made = job_manifest(own, run, "x")["spec"]["template"]["spec"]
    env = {each["name"]: each["value"] for each in made["containers"][0]["env"]}
    assert env == {
        "MODE": "a",
        "JOB_PAYLOAD": '{"message":"$$(SECRET) é"}',
        "JOB_CONTEXT": '{"output":"x"}',
        "WAKEFUL_RUN_ID": RUN.id,
        "WAKEFUL_ATTEMPT": "2",
        "WAKEFUL_IDEMPOTENCY_KEY": "key",
        "WAKEFUL_WORKSPACE": "default",
        "WAKEFUL_AGENT": "writer",
        "WAKEFUL_JOB": "digest",
        "WAKEFUL_TRIGGER": "schedule",
        "WAKEFUL_SCHEDULED_AT": "2027-01-01T09:00:00Z",
        "TRACEPARENT": "00-1-2-01",
    }
    assert len(made["containers"][0]["env"]) == len(env)
    assert "JOB_PAYLOAD" in {each["name"] for each in made["initContainers"][0]["env"]}


def test_a_payload_that_is_too_large_fails_for_good():
    fits = replace(RUN, payload="x" * (MAX_VARIABLE - 2))
    job_manifest(template(), fits, "x")
    with pytest.raises(Permanent, match="the payload has 100,001 bytes"):
        job_manifest(template(), replace(RUN, payload="x" * (MAX_VARIABLE - 1)), "x")


def test_a_payload_chooses_a_template_only_by_its_name():
    templates = {"default": template(), "gpu": template(suspend=True)}
    assert choose_template(templates, RUN) is templates["default"]
    assert choose_template(templates, replace(RUN, payload="text")) is templates["default"]
    gpu = replace(RUN, payload={"kubernetesTemplate": "gpu"})
    assert choose_template(templates, gpu) is templates["gpu"]
    others: list[Json] = ["tpu", {"kind": "Job"}, ["gpu"]]
    for other in others:
        with pytest.raises(Permanent, match="known: default, gpu"):
            choose_template(templates, replace(RUN, payload={"kubernetesTemplate": other}))
    with pytest.raises(Permanent, match="must name a template"):
        choose_template({"gpu": template()}, RUN)


@pytest.mark.parametrize(
    "document",
    [
        None,
        "text",
        {"kind": "Pod"},
        {"kind": "Job"},
        {"kind": "Job", "apiVersion": "v1"},
        {"kind": "Job", "spec": {"template": {"spec": {"containers": []}}}},
        {"kind": "Job", "spec": {"template": {"spec": {"containers": ["work"]}}}},
        {"kind": "Job", "spec": {"template": {"spec": {"containers": [{"name": "work"}]}}}},
        {**template(), "metadata": {"labels": ["a"]}},
    ],
)
def test_a_template_that_is_no_job_is_refused(document: object):
    with pytest.raises(InvalidArgument, match="template 'default'"):
        check_template("default", document)


def test_templates_have_different_names():
    assert template_names(["a=b=c.yaml", "./x=y.yaml"]) == {"a": "b=c.yaml", "default": "./x=y.yaml"}
    for options in (["a.yaml", "b.yaml"], ["a=1", "a=2"], []):
        with pytest.raises(InvalidArgument, match="--template"):
            template_names(options)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a" * 64, "é"])
def test_the_name_of_an_executor_is_the_value_of_a_label(name: str):
    with pytest.raises(InvalidArgument, match="--name"):
        check_executor_name(name)


def test_the_output_is_the_log_of_the_annotated_container():
    pod: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{"name": "proxy"}, {"name": "work"}]}}
    assert main_container(pod) == "proxy"
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "work"}
    assert main_container(pod) == "work"
