"""The objects of a test API server, with every version of them: what etcd does for Kubernetes."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.support.kubernetes_status import ApiError, Object, bad_request, gone

Key = tuple[str, str, str]
Selector = Callable[[Object], bool]

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


def now() -> str:
    """Return the time as Kubernetes writes it, in seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Change:
    """A version: the object before and after it; None where it did not exist."""

    version: int
    key: Key
    before: Object | None
    after: Object | None

    def event(self, chosen: Selector) -> Object | None:
        """Return the event of a watch with this selector; None if the watch does not show the change."""
        was = self.before is not None and chosen(self.before)
        is_now = self.after is not None and chosen(self.after)
        if is_now:
            return {"type": "MODIFIED" if was else "ADDED", "object": self.after}
        if was:
            # The last state, with the version of the deletion.
            return {"type": "DELETED", "object": versioned(self.before or {}, self.version)}
        return None


@dataclass(frozen=True)
class Page:
    """A part of a list, the version it shows, and the token for the next part."""

    items: list[Object]
    version: int
    token: str = ""
    remaining: int | None = None


class ObjectStore:
    """Objects by resource, namespace and name. Each write has a version, which only grows."""

    def __init__(self) -> None:
        self.version = 1000
        self._compacted = 0
        self._objects: dict[Key, Object] = {}
        self._history: list[Change] = []
        self._changed = asyncio.Event()

    def get(self, key: Key) -> Object | None:
        """Return a copy of an object."""
        return copy.deepcopy(self._objects.get(key))

    def put(self, key: Key, item: Object) -> Object:
        """Store an object with the next version, and return a copy of it. An equal one is not written."""
        before = self._objects.get(key)
        if before is not None and versioned(item, 0) == versioned(before, 0):
            return copy.deepcopy(before)
        self.version += 1
        stored = versioned(item, self.version)
        self._objects[key] = stored
        self._record(Change(self.version, key, before, stored))
        return copy.deepcopy(stored)

    def remove(self, key: Key) -> None:
        """Delete an object."""
        before = self._objects.pop(key)
        self.version += 1
        self._record(Change(self.version, key, before, None))

    def all(self, resource: str, namespace: str) -> list[Object]:
        """Return copies of the objects of a namespace, by name."""
        return _within(copy.deepcopy(self._objects), resource, namespace)

    def compact(self) -> None:
        """Forget all versions before the present one."""
        self._compacted = self.version

    def page(self, resource: str, namespace: str, chosen: Selector, limit: int, token: str) -> Page:
        """Return up to `limit` objects (0: all), continued after those of an earlier page.

        All pages of a list show the version of the first one.
        """
        version, after = (self.version, "") if not token else _read(token)
        if version == -1:  # the client accepts an inconsistent list
            version = self.version
        elif version < self._compacted:
            raise ApiError(410, "Expired", _EXPIRED, metadata={"continue": _token(-1, after)})
        objects = _within(self._at(version), resource, namespace)
        left = [each for each in objects if each["metadata"]["name"] > after and chosen(each)]
        items = copy.deepcopy(left[:limit] if limit else left)
        if len(items) == len(left):
            return Page(items, version)
        return Page(items, version, _token(version, items[-1]["metadata"]["name"]), len(left) - len(items))

    def changes_after(self, version: int, resource: str, namespace: str) -> list[Change]:
        """Return the changes after a version; raises 410 if they were compacted."""
        if version < self._compacted:
            raise gone(version, self._compacted)
        # The versions in the history have no gaps.
        first = max(0, len(self._history) - (self.version - version))
        return [each for each in self._history[first:] if each.key[:2] == (resource, namespace)]

    def next_write(self) -> asyncio.Event:
        """Return the event of the next write."""
        return self._changed

    def _record(self, change: Change) -> None:
        self._history.append(change)
        self._changed.set()
        self._changed = asyncio.Event()

    def _at(self, version: int) -> dict[Key, Object]:
        """Return the objects as they were at a version."""
        objects = dict(self._objects)
        for change in reversed(self._history):
            if change.version <= version:
                break
            if change.before is None:
                del objects[change.key]
            else:
                objects[change.key] = change.before
        return objects


def versioned(item: Object, version: int) -> Object:
    """Return a copy of an object with this version."""
    result = copy.deepcopy(item)
    result["metadata"]["resourceVersion"] = str(version)
    return result


def _within(objects: dict[Key, Object], resource: str, namespace: str) -> list[Object]:
    return [objects[key] for key in sorted(objects) if key[:2] == (resource, namespace)]


def _token(version: int, after: str) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": after})
    return base64.urlsafe_b64encode(text.encode()).decode()


def _read(token: str) -> tuple[int, str]:
    try:
        read = json.loads(base64.urlsafe_b64decode(token))
        return int(read["rv"]), str(read["start"])
    except (ValueError, KeyError, TypeError):
        raise bad_request("continue key is not valid") from None
