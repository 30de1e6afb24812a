"""The label and field selectors of a test API server of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.support.kubernetes_rules import key_causes, label_causes
from tests.support.kubernetes_status import ApiError, Object, bad_request

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
        *key_causes(key, "key"),
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
