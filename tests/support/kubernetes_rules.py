"""The rules of the Kubernetes API for the fields of a Job: types, names, labels, defaults, and changes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes_asyncio.client import models

from tests.support.kubernetes_status import Cause, Object, bad_request, invalid

_LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
#: Fields of type Quantity: text or a number.
_QUANTITIES = {"limits", "requests", "sizeLimit", "divisor"}
_ANNOTATION_BYTES = 256 * 1024
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
CONTROLLER_UID, JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


def _wrong(field: str, value: object, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def _required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value{': ' + why if why else ''}")


def _unsupported(field: str, value: str, *known: str) -> Cause:
    values = ", ".join(f'"{each}"' for each in known)
    return Cause(field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {values}')


# --- types ----------------------------------------------------------------------------------------------


def decoded(body: object, strict: bool) -> tuple[Object, list[str]]:
    """Return a Job without its unknown fields, and a warning for each of those.

    A value of a wrong type is refused. With `strict` (`fieldValidation=Strict`), so is an unknown field.
    """
    if not isinstance(body, dict):
        raise bad_request("couldn't get version/kind; json parse error")
    for field, expected, name in (("apiVersion", "batch/v1", "API version"), ("kind", "Job", "kind")):
        if body.get(field, expected) != expected:
            raise bad_request(
                f"the {name} in the data ({body[field]}) does not match the expected {name} ({expected})"
            )
    unknown: list[str] = []
    known: Object = _typed(body, "V1Job", "", unknown)
    known.update(apiVersion="batch/v1", kind="Job")
    warnings = [f'unknown field "{path}"' for path in unknown]
    if strict and warnings:
        raise bad_request(f"strict decoding error: {', '.join(warnings)}")
    return known, warnings


def _typed(value: Any, kind: str, path: str, unknown: list[str]) -> Any:
    """Return a value with the known fields of its type. `kind` is a type of the client's models."""
    if value is None:
        return None
    if match := re.fullmatch(r"list\[(.*)\]", kind):
        _expect(isinstance(value, list), value, path, "[]")
        return [_typed(each, match[1], f"{path}[{number}]", unknown) for number, each in enumerate(value)]
    if match := re.fullmatch(r"dict\(str, (.*)\)", kind):
        _expect(isinstance(value, dict), value, path, "map")
        return {key: _typed(each, match[1], f"{path}.{key}", unknown) for key, each in value.items()}
    if kind in _PLAIN:
        quantity = _QUANTITIES & set(path.split(".")) and isinstance(value, int | float)
        _expect(bool(quantity) or _PLAIN[kind](value), value, path, kind)
        return str(value) if quantity and kind == "str" else value
    model = getattr(models, kind)
    _expect(isinstance(value, dict), value, path, kind)
    fields = {key: model.openapi_types[name] for name, key in model.attribute_map.items()}
    result = {}
    for key, each in value.items():
        place = f"{path}.{key}" if path else key
        if key not in fields:
            unknown.append(place)
        elif each is not None:
            result[key] = _typed(each, fields[key], place, unknown)
    return result


_PLAIN: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "datetime": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: True,
}


def _expect(holds: bool, value: object, path: str, kind: str) -> None:
    if not holds:
        found = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
        raise bad_request(
            'Job in version "v1" cannot be handled as a Job: json: cannot unmarshal '
            f"{found.get(type(value), 'object')} into Go struct field .{path} of type {kind}"
        )


# --- a new Job ------------------------------------------------------------------------------------------


_JOB_DEFAULTS: Object = {
    "parallelism": 1,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
}
_POD_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}


def new_job(body: Object, uid: str) -> Object:
    """Return a Job with the defaults of the server, or raise what is invalid. Its name is final."""
    job = copy.deepcopy(body)
    job.pop("status", None)
    metadata, spec = job["metadata"], job.setdefault("spec", {})
    name = metadata["name"]
    causes = list(_metadata_causes(metadata))
    template = spec.setdefault("template", {})
    pod = template.setdefault("spec", {})
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    if not metadata.get("labels") and labels:
        metadata["labels"] = dict(labels)
    generated = {CONTROLLER_UID: uid, "controller-uid": uid, JOB_NAME: name, "job-name": name}
    for key, value in generated.items():
        if labels.setdefault(key, value) != value:
            field = f"spec.template.metadata.labels[{key}]"
            causes.append(_wrong(field, labels[key], f"must be '{value}'"))
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    if not spec.get("manualSelector") and not selected.items() <= generated.items():
        causes.append(_wrong("spec.selector", selected, "`selector` not auto-generated"))
    if not selected.items() <= labels.items():
        why = "`selector` does not match template `labels`"
        causes.append(_wrong("spec.template.metadata.labels", labels, why))
    spec["selector"] = {"matchLabels": {**selected, CONTROLLER_UID: uid}}
    job["spec"] = spec = {**_JOB_DEFAULTS, **_dependent_defaults(spec), **spec}
    template["spec"] = {**_POD_DEFAULTS, **pod}
    causes += _spec_causes(spec)
    if causes:
        raise invalid("jobs", name, causes)
    return job


def _dependent_defaults(spec: Object) -> Object:
    """Return the defaults that depend on other fields."""
    one = {} if "parallelism" in spec else {"completions": 1}
    limit = 2**31 - 1 if "backoffLimitPerIndex" in spec else 6
    replacement = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    return {**one, "backoffLimit": limit, "podReplacementPolicy": replacement}


def _metadata_causes(metadata: Object) -> Iterator[Cause]:
    name = metadata["name"]
    if len(name) > 253:
        yield _wrong("metadata.name", name, "must be no more than 253 bytes")
    if not _SUBDOMAIN.fullmatch(name):
        yield _wrong("metadata.name", name, _SUBDOMAIN_TEXT)
    yield from label_causes(metadata.get("labels") or {}, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from key_causes(key.lower(), "metadata.annotations")
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        message = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        yield Cause("metadata.annotations", "FieldValueTooLong", message)
    for finalizer in metadata.get("finalizers") or ():
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion"):
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield _wrong("metadata.finalizers", finalizer, why)


def label_causes(labels: Object, field: str) -> Iterator[Cause]:
    """Return what is wrong with labels."""
    for key, value in labels.items():
        yield from key_causes(key, field)
        if len(value) > 63:
            yield _wrong(field, value, "must be no more than 63 bytes")
        if value and not _LABEL_NAME.fullmatch(value):
            yield _wrong(field, value, _LABEL_TEXT)


def key_causes(key: str, field: str) -> Iterator[Cause]:
    """Return what is wrong with the key of a label or annotation."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253):
        yield _wrong(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if not name:
        yield _wrong(field, key, "name part must be non-empty")
    elif len(name) > 63:
        yield _wrong(field, key, "name part must be no more than 63 bytes")
    elif not _LABEL_NAME.fullmatch(name):
        yield _wrong(field, key, f"name part must match {_LABEL_NAME.pattern}")


def _spec_causes(spec: Object) -> Iterator[Cause]:
    for field in (
        "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished",
        "backoffLimitPerIndex", "maxFailedIndexes",
    ):  # fmt: skip
        if spec.get(field, 0) < 0:
            yield _wrong(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    yield from _mode_causes(spec)
    yield from _success_causes(spec)
    yield from _failure_causes(spec)
    template = spec["template"]
    yield from label_causes(template["metadata"]["labels"], "spec.template.labels")
    pod, at = template["spec"], "spec.template.spec"
    if pod["restartPolicy"] == "Always":
        yield _required(f"{at}.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif pod["restartPolicy"] not in ("OnFailure", "Never"):
        yield _unsupported(f"{at}.restartPolicy", pod["restartPolicy"], "OnFailure", "Never")
    elif "podFailurePolicy" in spec and pod["restartPolicy"] != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        yield _wrong(f"{at}.restartPolicy", pod["restartPolicy"], why)
    volumes = {volume.get("name") for volume in pod.get("volumes") or ()}
    if not pod.get("containers"):
        yield _required(f"{at}.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(field) or ()):
            yield from _container_causes(container, f"{at}.{field}[{number}]", volumes, seen)


def _mode_causes(spec: Object) -> Iterator[Cause]:
    """Return what is wrong with the fields of Jobs with several indexes."""
    mode = spec["completionMode"]
    if mode not in ("NonIndexed", "Indexed"):
        yield _unsupported("spec.completionMode", mode, "NonIndexed", "Indexed")
    if mode == "Indexed":
        if "completions" not in spec:
            yield _required("spec.completions", "when completion mode is Indexed")
        elif spec.get("maxFailedIndexes", 0) > spec["completions"]:
            why = "must be less than or equal to completions"
            yield _wrong("spec.maxFailedIndexes", spec["maxFailedIndexes"], why)
    for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if mode == "NonIndexed" and field in spec:
            yield _wrong(f"spec.{field}", spec[field], "requires indexed completion mode")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield _required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")


def _success_causes(spec: Object) -> Iterator[Cause]:
    if "successPolicy" not in spec:
        return
    at, rules = "spec.successPolicy", spec["successPolicy"].get("rules") or []
    if spec["completionMode"] != "Indexed":
        yield _wrong(at, spec["successPolicy"], "requires indexed completion mode")
        return
    if not rules:
        yield _required(
            f"{at}.rules", "at least one rules must be specified when the successPolicy is specified"
        )
    completions = spec.get("completions", 1)
    for number, rule in enumerate(rules):
        field = f"{at}.rules[{number}]"
        if "succeededCount" not in rule and "succeededIndexes" not in rule:
            why = "at least one of succeededCount or succeededIndexes must be specified"
            yield _required(field, why)
        if rule.get("succeededCount", 0) > completions:
            why = f"must be less than or equal to {completions} (the number of specified completions)"
            yield _wrong(f"{field}.succeededCount", rule["succeededCount"], why)
        indexes = re.findall(r"\d+", rule.get("succeededIndexes", ""))
        if any(int(index) >= completions for index in indexes):
            why = f'error parsing succeededIndexes: too large index: "{indexes[-1]}"'
            yield _wrong(f"{field}.succeededIndexes", rule["succeededIndexes"], why)


def _failure_causes(spec: Object) -> Iterator[Cause]:
    replacement, at = spec["podReplacementPolicy"], "spec.podFailurePolicy"
    if "podFailurePolicy" not in spec:
        if replacement not in ("Failed", "TerminatingOrFailed"):
            yield _unsupported("spec.podReplacementPolicy", replacement, "Failed", "TerminatingOrFailed")
        return
    if replacement != "Failed":
        yield _unsupported("spec.podReplacementPolicy", replacement, "Failed")
    for number, rule in enumerate(spec["podFailurePolicy"].get("rules") or ()):
        field = f"{at}.rules[{number}]"
        if rule.get("action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield _wrong(f"{field}.action", "FailIndex", "requires the backoffLimitPerIndex to be set")
        elif rule.get("action") not in ("FailIndex", "FailJob", "Ignore", "Count"):
            yield _unsupported(
                f"{field}.action", str(rule.get("action")), "Count", "FailIndex", "FailJob", "Ignore"
            )
        kinds = [kind for kind in ("onExitCodes", "onPodConditions") if rule.get(kind)]
        if len(kinds) != 1:
            few = "specifying one of OnExitCodes and OnPodConditions is required"
            many = "specifying both OnExitCodes and OnPodConditions is not supported"
            yield Cause(field, "FieldValueInvalid", f"Invalid value: {many if kinds else few}")


def _container_causes(
    container: Object, at: str, volumes: set[str | None], seen: set[str]
) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield _required(f"{at}.name")
    elif len(name) > 63 or not _DNS_LABEL.fullmatch(name):
        yield _wrong(f"{at}.name", name, "a lowercase RFC 1123 label must consist of lower case alphanumeric "
                     "characters or '-', and must start and end with an alphanumeric character")  # fmt: skip
    elif name in seen:
        yield Cause(f"{at}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
    seen.add(name)
    if not container.get("image"):
        yield _required(f"{at}.image")
    for number, variable in enumerate(container.get("env") or ()):
        field = f"{at}.env[{number}]"
        if not variable.get("name"):
            yield _required(f"{field}.name")
        elif not re.fullmatch(r"[ -<>-~]+", variable["name"]):
            why = (
                "a valid environment variable name must consist only of printable ASCII characters except '='"
            )
            yield _wrong(f"{field}.name", variable["name"], why)
        if variable.get("value") and variable.get("valueFrom"):
            yield _wrong(f"{field}.valueFrom", "", "may not be specified when `value` is not empty")
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            field = f"{at}.volumeMounts[{number}].name"
            yield Cause(field, "FieldValueNotFound", f'Not found: "{mount.get("name")}"')


# --- a changed Job --------------------------------------------------------------------------------------

_IMMUTABLE_METADATA = ("uid", "creationTimestamp", "deletionTimestamp")
_IMMUTABLE_SPEC = (
    "selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy",
)  # fmt: skip
#: The fields of a template that may change while its Job is suspended.
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def changed_job(old: Object, new: Object) -> Object:
    """Return a Job as it is stored after a change by a client, or raise what may not change."""
    name = old["metadata"]["name"]
    metadata, spec = new["metadata"], new["spec"]
    if metadata.get("name") != name:
        raise bad_request(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
        )
    causes = list(_metadata_causes(metadata))
    for field in _IMMUTABLE_METADATA:
        if metadata.get(field) != old["metadata"].get(field):
            causes.append(_wrong(f"metadata.{field}", metadata.get(field), "field is immutable"))
    for field in _IMMUTABLE_SPEC:
        if spec.get(field) != old["spec"].get(field):
            causes.append(_wrong(f"spec.{field}", spec.get(field), "field is immutable"))
    if spec.get("completions") != old["spec"].get("completions"):
        if spec["completionMode"] != "Indexed":
            causes.append(_wrong("spec.completions", spec.get("completions"), "field is immutable"))
        elif spec.get("completions") != spec["parallelism"]:
            why = "can only be modified in tandem with spec.parallelism"
            causes.append(_wrong("spec.completions", spec.get("completions"), why))
    # Where and how its pod is scheduled may change while the Job is suspended and has not started.
    free = old["spec"]["suspend"] and not old.get("status", {}).get("startTime")
    if _fixed_template(spec, free) != _fixed_template(old["spec"], free):
        causes.append(_wrong("spec.template", spec.get("template"), "field is immutable"))
    if not causes:
        causes += _spec_causes(spec)
    if causes:
        raise invalid("jobs", name, causes)
    generation = old["metadata"]["generation"] + (spec != old["spec"])
    return {**new, "metadata": {**metadata, "generation": generation}, "status": old.get("status", {})}


def _fixed_template(spec: Object, free: bool) -> Object:
    """Return the part of a template that may not change."""
    template: Object = spec["template"]
    if not free:
        return template
    pod = {key: value for key, value in template["spec"].items() if key not in _SCHEDULING}
    return {"spec": pod}
