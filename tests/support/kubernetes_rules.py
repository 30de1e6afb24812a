"""The rules of the Kubernetes API for the fields of a Job: types, names, labels, defaults, and changes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes_asyncio.client import models

from tests.support.kubernetes_status import ApiError, Cause, Object, bad_request, invalid

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
    "completions": 1,
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
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
    if "selector" in spec and not spec.get("manualSelector"):
        causes.append(_wrong("spec.selector", spec["selector"], "`selector` not auto-generated"))
    labels |= {CONTROLLER_UID: uid, "controller-uid": uid, JOB_NAME: name, "job-name": name}
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}
    job["spec"] = spec = {**_JOB_DEFAULTS, **spec}
    template["spec"] = {**_POD_DEFAULTS, **pod}
    causes += _spec_causes(spec)
    if causes:
        raise invalid("jobs", name, causes)
    return job


def _metadata_causes(metadata: Object) -> Iterator[Cause]:
    name = metadata["name"]
    if len(name) > 253:
        yield _wrong("metadata.name", name, "must be no more than 253 bytes")
    if not _SUBDOMAIN.fullmatch(name):
        yield _wrong("metadata.name", name, _SUBDOMAIN_TEXT)
    yield from label_causes(metadata.get("labels") or {}, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _key_causes(key.lower(), "metadata.annotations")
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
        yield from _key_causes(key, field)
        if len(value) > 63:
            yield _wrong(field, value, "must be no more than 63 bytes")
        if value and not _LABEL_NAME.fullmatch(value):
            yield _wrong(field, value, _LABEL_TEXT)


def _key_causes(key: str, field: str) -> Iterator[Cause]:
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
    ):  # fmt: skip
        if spec.get(field, 0) < 0:
            yield _wrong(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    template = spec["template"]
    yield from label_causes(template["metadata"]["labels"], "spec.template.labels")
    pod, at = template["spec"], "spec.template.spec"
    if pod["restartPolicy"] not in ("OnFailure", "Never"):
        message = f'Unsupported value: "{pod["restartPolicy"]}": supported values: "OnFailure", "Never"'
        yield Cause(f"{at}.restartPolicy", "FieldValueNotSupported", message)
    volumes = {volume.get("name") for volume in pod.get("volumes") or ()}
    if not pod.get("containers"):
        yield _required(f"{at}.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(field) or ()):
            yield from _container_causes(container, f"{at}.{field}[{number}]", volumes, seen)


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
    "completions", "selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy",
)  # fmt: skip


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
    # A template may change while the Job is suspended and has not started.
    free = old["spec"]["suspend"] and not old.get("status", {}).get("startTime")
    for field in (*_IMMUTABLE_SPEC, *(() if free else ("template",))):
        if spec.get(field) != old["spec"].get(field):
            causes.append(_wrong(f"spec.{field}", spec.get(field), "field is immutable"))
    if not causes:
        causes += _spec_causes(spec)
    if causes:
        raise invalid("jobs", name, causes)
    generation = old["metadata"]["generation"] + (spec != old["spec"])
    return {**new, "metadata": {**metadata, "generation": generation}, "status": old.get("status", {})}


# --- selectors ------------------------------------------------------------------------------------------

_REQUIREMENT = re.compile(
    r"\s*(?:!\s*(?P<absent>[^\s,=!()]+)"
    r"|(?P<key>[^\s,=!()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,=!()]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)


def label_selector(text: str) -> Callable[[Object], bool]:
    """Return the condition that a label selector states for an object.

    >>> chosen = label_selector("app=web,tier in (a, b),!old")
    >>> chosen({"metadata": {"labels": {"app": "web", "tier": "b"}}})
    True
    >>> chosen({"metadata": {"labels": {"app": "web", "tier": "b", "old": ""}}})
    False
    """
    conditions: list[Callable[[Object], bool]] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: found '{text[position:]}'")
        position = match.end()
        conditions.append(_condition(match))
    return lambda item: all(holds(item["metadata"].get("labels") or {}) for holds in conditions)


def _condition(match: re.Match[str]) -> Callable[[Object], bool]:
    key = match["absent"] or match["key"]
    values = {match["value"] or ""}
    if match["set"]:
        values = {each.strip() for each in match["values"].split(",")}
    causes = [
        *_key_causes(key, "key"),
        *(each for value in values for each in label_causes({"a": value}, "v")),
    ]
    if causes:
        raise bad_request(f"unable to parse requirement: {causes[0].field}: {causes[0].message}")
    if match["absent"]:
        return lambda labels: key not in labels
    if match["op"] in ("=", "==") or match["set"] == "in":
        return lambda labels: labels.get(key) in values
    if match["op"] == "!=" or match["set"] == "notin":
        return lambda labels: labels.get(key) not in values
    return lambda labels: key in labels


def field_selector(text: str, resource: str) -> Callable[[Object], bool]:
    """Return the condition that a field selector states: `metadata.name=a`, `status.phase!=Failed`."""
    allowed = {"metadata.name", "metadata.namespace"}
    allowed |= {"status.phase", "spec.nodeName"} if resource == "pods" else set()
    conditions: list[tuple[str, str, bool]] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        if match[1] not in allowed:
            raise ApiError(400, "BadRequest", f"field label not supported: {match[1]}")
        conditions.append((match[1], match[3], match[2] != "!="))

    def holds(item: Object) -> bool:
        for path, value, equal in conditions:
            outer, _, inner = path.partition(".")
            if (item.get(outer, {}).get(inner, "") == value) is not equal:
                return False
        return True

    return holds
