"""The log of a container, by the rules of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.kubernetes_status import Cause, Object, bad_request, invalid


def log_of(pod: Object, written: bytes, query: Mapping[str, str]) -> bytes:
    """Return the log that a request asks for: the last `tailLines`, of those the first `limitBytes`."""
    name = pod["metadata"]["name"]
    containers = [each["name"] for each in pod["spec"]["containers"]]
    container = query.get("container", "")
    if not container and len(containers) > 1:
        chosen = " ".join(containers)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{chosen}]")
    container = container or containers[0]
    if container not in containers:
        raise bad_request(f"container {container} is not valid for pod {name}")
    lines, size = _limit(name, query, "tailLines", 0), _limit(name, query, "limitBytes", 1)
    if "nodeName" not in pod["spec"]:
        raise bad_request(f"pod {name} does not have a host assigned")
    state = _state(pod, container)
    if query.get("previous") == "true" and not state.get("lastState"):
        raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    waiting = state.get("state", {}).get("waiting")
    if waiting is not None and not state.get("lastState"):
        why = waiting["reason"]
        if why in ("ImagePullBackOff", "ErrImagePull"):
            text = "trying and failing to pull image"
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {text}')
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {why}')
    if lines is not None:
        written = b"".join(written.splitlines(keepends=True)[-lines:]) if lines else b""
    return written if size is None else written[:size]


def _state(pod: Object, container: str) -> Object:
    for each in pod["status"].get("containerStatuses", ()):
        if each["name"] == container:
            return dict(each)
    return {}


def _limit(pod: str, query: Mapping[str, str], name: str, least: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if value < least:
        bound = "greater than 0" if least else "greater than or equal to 0"
        raise invalid(
            "pods", pod, [Cause(name, "FieldValueInvalid", f"Invalid value: {value}: must be {bound}")]
        )
    return value
