"""The patches of the Kubernetes API: JSON patch, merge patch, and strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

from tests.support.kubernetes_status import ApiError, Object, bad_request

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def applied(item: Object, patch: Any, content_type: str) -> Object:
    """Return an object with a patch applied."""
    match content_type:
        case "application/json-patch+json":
            return _json_patch(copy.deepcopy(item), patch)
        case "application/merge-patch+json":
            result = merged(item, patch)
        case "application/strategic-merge-patch+json":
            result = merged(item, patch, strategic=True)
        case _:
            raise ApiError(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/strategic-merge-patch+json",
            )
    if not isinstance(result, dict):
        raise bad_request("the patch is not an object")
    return result


def merged(item: Any, patch: Any, strategic: bool = False) -> Any:
    """Return a value with a merge patch applied: null removes a field.

    A strategic one also merges lists of objects by `name`, and adds to lists of finalizers.

    >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": None, "d": 4}})
    {'a': 1, 'b': {'d': 4}}
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(item) if isinstance(item, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif strategic and isinstance(value, list) and isinstance(result.get(key), list):
            result[key] = _merged_lists(key, result[key], value)
        else:
            result[key] = merged(result.get(key), value, strategic)
    return result


def _merged_lists(key: str, old: list[Any], new: list[Any]) -> list[Any]:
    if key == "finalizers":
        return [*old, *(each for each in new if each not in old)]
    if all(isinstance(each, dict) and "name" in each for each in (*old, *new)):
        by_name = {each["name"]: each for each in old}
        for each in new:
            by_name[each["name"]] = merged(by_name.get(each["name"]), each, strategic=True)
        return list(by_name.values())
    return copy.deepcopy(new)


def _json_patch(item: Object, operations: Any) -> Object:
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for each in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in each["path"].removeprefix("/").split("/")
        ]
        try:
            place: Any = item
            for part in parents:
                place = place[int(part)] if isinstance(place, list) else place[part]
            _operate(place, last, each)
        except (KeyError, IndexError, ValueError, TypeError):
            message = (
                f"the server rejected our request due to an error in our request: {each['op']} {each['path']}"
            )
            raise ApiError(422, "Invalid", message) from None
    return item


def _operate(place: Any, last: str, operation: Object) -> None:
    is_list = isinstance(place, list)
    index: Any = len(place) if last == "-" and is_list else int(last) if is_list else last
    match operation["op"]:
        case "add" if is_list:
            place.insert(index, operation["value"])
        case "add":
            place[index] = operation["value"]
        case "replace":
            _ = place[index]
            place[index] = operation["value"]
        case "remove":
            del place[index]
        case "test":
            if place[index] != operation["value"]:
                raise ValueError
        case _:
            raise ValueError
