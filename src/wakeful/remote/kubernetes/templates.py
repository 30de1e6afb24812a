"""The Job of a run: the template of the operator, with the ids and the payload of the run as variables. Pure.

The template decides image, command, resources and service account. A run chooses among named templates only.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from wakeful.errors import InvalidArgument, Permanent
from wakeful.model import Run

Manifest = dict[str, Any]

#: The labels of Jobs and pods, by which an executor finds its own.
EXECUTOR: Final = "wakeful/executor"
RUN_ID: Final = "wakeful/run-id"
ATTEMPT: Final = "wakeful/attempt"
#: The field of a payload that names a template.
TEMPLATE_FIELD: Final = "kubernetesTemplate"
#: The name of the template for runs that name none.
DEFAULT: Final = "default"
#: How long a finished Job stays, in seconds, unless its template sets it.
TTL_S: Final = 3_600
#: The most bytes of a payload, and of a context. Linux limits one environment variable to 128 KB.
MAX_VARIABLE: Final = 100_000

#: What the API server refuses in a Job with one pod, or sets itself.
_NOT_OF_ONE_POD: Final = (
    "selector", "manualSelector", "backoffLimitPerIndex", "maxFailedIndexes", "successPolicy",
)  # fmt: skip
#: What the API server sets at the pod, such as in a template that was exported from a cluster.
_LABELS_OF_CONTROLLER: Final = (
    "controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
)  # fmt: skip
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def job_name(run: Run) -> str:
    """Return the name of the Job of an attempt. The API server refuses a second Job of this name.

    A replay has the idempotency key of the run that it replays, and its attempts start at 1. So the id of the
    run is a part of the name too.
    """
    digest = hashlib.sha256(f"{run.idempotency_key}\n{run.id}".encode()).hexdigest()
    return f"wakeful-{digest[:24]}-{run.attempt}"


def check_executor_name(name: str) -> str:
    """Return the name of an executor, which is the value of a label; InvalidArgument if it cannot be one.

    >>> check_executor_name("gpu-pool")
    'gpu-pool'
    """
    if not _LABEL.fullmatch(name):
        raise InvalidArgument(
            f"--name: '{name[:64]}' is not a label value of Kubernetes: write up to 63 letters, digits, - _ ."
        )
    return name


def split_option(option: str) -> tuple[str, str]:
    """Return the name and the file of a `--template` option.

    >>> split_option("job.yaml"), split_option("gpu=templates/gpu.yaml")
    (('default', 'job.yaml'), ('gpu', 'templates/gpu.yaml'))
    """
    name, equals, file = option.partition("=")
    return (name, file) if equals and _NAME.fullmatch(name) else (DEFAULT, option)


def check_template(name: str, document: object) -> Manifest:
    """Return the template of that name, or raise InvalidArgument.

    >>> pod = {"containers": [{"name": "work", "image": "busybox"}]}
    >>> check_template("default", {"kind": "Job", "spec": {"template": {"spec": pod}}})["kind"]
    'Job'
    """
    if not isinstance(document, dict) or document.get("kind") != "Job":
        raise InvalidArgument(f"template '{name}': write a manifest with `kind: Job`")
    if document.get("apiVersion", "batch/v1") != "batch/v1":
        raise InvalidArgument(f"template '{name}': apiVersion must be batch/v1")
    pod = _at(document, "spec", "template", "spec")
    for kind in ("containers", "initContainers"):
        containers = pod.get(kind) or []
        if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
            raise InvalidArgument(
                f"template '{name}': spec.template.spec.{kind} must be a list of containers"
            )
        if kind == "containers" and not containers:
            raise InvalidArgument(f"template '{name}': spec.template.spec.containers is missing")
        for container in containers:
            if not container.get("name") or not container.get("image"):
                raise InvalidArgument(f"template '{name}': each container needs a name and an image")
    for part, path in ((document, ("metadata",)), (document, ("spec", "template", "metadata"))):
        labels = _at(part, *path).get("labels") or {}
        if not isinstance(labels, dict):
            raise InvalidArgument(f"template '{name}': {'.'.join(path)}.labels must be a mapping")
    return document


def choose_template(templates: Mapping[str, Manifest], run: Run) -> Manifest:
    """Return the template that the payload of a run names, or the default one. Permanent: there is none."""
    named = run.payload.get(TEMPLATE_FIELD) if isinstance(run.payload, dict) else None
    name = DEFAULT if named is None else named
    if isinstance(name, str) and name in templates:
        return templates[name]
    known = ", ".join(sorted(templates))
    if named is None:
        raise Permanent(f"the payload must name a template in '{TEMPLATE_FIELD}'; known: {known}")
    raise Permanent(f"{TEMPLATE_FIELD}: there is no template {named!r:.70}; known: {known}")


def job_manifest(template: Manifest, run: Run, executor: str) -> Manifest:
    """Return the Job of an attempt. Permanent: its payload is too large."""
    variables = run_variables(run)
    job = copy.deepcopy(template)
    labels = {EXECUTOR: executor, RUN_ID: run.id, ATTEMPT: str(run.attempt)}
    own = job.get("metadata") or {}
    job["metadata"] = {
        "name": job_name(run),
        "labels": {**(own.get("labels") or {}), **labels},
        "annotations": {**(own.get("annotations") or {}), "wakeful/job": f"{run.agent}/{run.job or ''}"},
    }
    job.update({"apiVersion": "batch/v1", "kind": "Job"})
    job.pop("status", None)
    spec = job["spec"]
    for name in _NOT_OF_ONE_POD:
        spec.pop(name, None)
    # Wakeful retries by the policy of the job, so Kubernetes runs one pod only.
    spec.update({"backoffLimit": 0, "completions": 1, "parallelism": 1})
    for rule in _failure_rules(spec):
        if rule.get("action") == "FailIndex":  # it needs backoffLimitPerIndex; there is one index
            rule["action"] = "FailJob"
    spec.setdefault("ttlSecondsAfterFinished", TTL_S)
    if run.timeout is not None:
        seconds = max(1, round(run.timeout.total_seconds()))
        spec["activeDeadlineSeconds"] = min(seconds, spec.get("activeDeadlineSeconds") or seconds)
    pod = spec["template"]
    pod_metadata = pod.get("metadata") or {}
    pod_labels = {**(pod_metadata.get("labels") or {}), **labels}
    for name in _LABELS_OF_CONTROLLER:
        pod_labels.pop(name, None)
    pod["metadata"] = {**pod_metadata, "labels": pod_labels}
    pod["spec"]["restartPolicy"] = "Never"
    for container in [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]:
        container["env"] = _with_variables(container.get("env") or (), variables)
    return job


def run_variables(run: Run) -> dict[str, str]:
    """Return the environment variables of a run. Permanent: its payload or its context is too large."""
    variables = {
        "WAKEFUL_RUN_ID": run.id,
        "WAKEFUL_ATTEMPT": str(run.attempt),
        "WAKEFUL_IDEMPOTENCY_KEY": run.idempotency_key,
        "WAKEFUL_WORKSPACE": run.workspace,
        "WAKEFUL_AGENT": run.agent,
        "WAKEFUL_JOB": run.job or "",
        "WAKEFUL_TRIGGER": str(run.trigger),
        "WAKEFUL_SCHEDULED_AT": run.scheduled_at.isoformat().replace("+00:00", "Z"),
        "JOB_PAYLOAD": _json_text("payload", run.payload),
    }
    if run.context is not None:
        variables["JOB_CONTEXT"] = _json_text("context", run.context)
    if run.traceparent:
        variables["TRACEPARENT"] = run.traceparent
    return variables


def main_container(pod: Mapping[str, Any]) -> str:
    """Return the name of the container whose log is the output: the annotated one, else the first.

    >>> main_container({"metadata": {}, "spec": {"containers": [{"name": "work"}, {"name": "proxy"}]}})
    'work'
    """
    names = [str(each["name"]) for each in pod["spec"]["containers"]]
    annotations = pod["metadata"].get("annotations") or {}
    named = str(annotations.get("kubectl.kubernetes.io/default-container"))
    return named if named in names else names[0]


def _failure_rules(spec: Manifest) -> list[Manifest]:
    """Return the rules of the failure policy of a Job. What is no rule is for the API server to refuse."""
    policy = spec.get("podFailurePolicy")
    rules = policy.get("rules") if isinstance(policy, dict) else None
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def _with_variables(own: Iterable[Any], variables: Mapping[str, str]) -> list[Any]:
    """Add variables; those of the run replace those of the template.

    Kubernetes replaces `$(NAME)` in values by other variables, such as secrets: `$$` prevents it.
    """
    kept = [each for each in own if not (isinstance(each, dict) and each.get("name") in variables)]
    added = [{"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()]
    return [*kept, *added]


def _json_text(what: str, value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_VARIABLE:
        raise Permanent(
            f"the {what} has {size:,} bytes, but an environment variable of a pod may have {MAX_VARIABLE:,}; "
            "store the data elsewhere and send its address"
        )
    return text


def _at(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        found = document.get(name)
        document = found if isinstance(found, dict) else {}
    return document


def template_names(options: Sequence[str]) -> dict[str, str]:
    """Return the files of `--template` options by name; InvalidArgument if a name appears twice.

    >>> template_names(["job.yaml", "gpu=gpu.yaml"])
    {'default': 'job.yaml', 'gpu': 'gpu.yaml'}
    """
    files: dict[str, str] = {}
    for name, file in map(split_option, options):
        if name in files:
            raise InvalidArgument(f"--template: there are two templates '{name}'; write NAME=FILE")
        files[name] = file
    if not files:
        raise InvalidArgument("--template: give the file of a Job, such as --template job.yaml")
    return files
