"""The errors of the Kubernetes API: `Status` objects, as the real server writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

_GROUPS = {"jobs": "batch", "pods": "", "namespaces": ""}
_KINDS = {"jobs": "Job", "pods": "Pod"}


@dataclass(frozen=True)
class Cause:
    """One invalid field: its path, a reason such as `FieldValueInvalid`, and a message."""

    field: str
    reason: str
    message: str


class ApiError(Exception):
    """An answer other than success."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Object | None = None,
        metadata: Object | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata or {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({"details": details} if details else {}),
            "code": code,
        }


def qualified(resource: str) -> str:
    """Return the resource with its group, such as `jobs.batch`."""
    group = _GROUPS[resource]
    return f"{resource}.{group}" if group else resource


def details_of(resource: str, name: str, **more: object) -> Object:
    """Return the details of a status about one object."""
    group = _GROUPS[resource]
    return {"name": name, **({"group": group} if group else {}), "kind": resource, **more}


def not_found(resource: str, name: str) -> ApiError:
    """Return the error for an object that does not exist."""
    message = f'{qualified(resource)} "{name}" not found'
    return ApiError(404, "NotFound", message, details_of(resource, name))


def already_exists(resource: str, name: str, deleting: bool = False) -> ApiError:
    """Return the error for a name that is taken."""
    message = (
        f'{"object is being deleted: " if deleting else ""}{qualified(resource)} "{name}" already exists'
    )
    return ApiError(409, "AlreadyExists", message, details_of(resource, name))


def conflict(resource: str, name: str, why: str) -> ApiError:
    """Return the error for a precondition that does not hold."""
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(resource, name))


def invalid(resource: str, name: str, causes: Iterable[Cause]) -> ApiError:
    """Return the error for an object with invalid fields."""
    found = list(causes)
    texts = [f"{cause.field}: {cause.message}" for cause in found]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    group = _GROUPS[resource]
    kind = f"{_KINDS[resource]}.{group}" if group else _KINDS[resource]
    details = {
        **details_of(resource, name, kind=_KINDS[resource]),
        "causes": [{"reason": each.reason, "message": each.message, "field": each.field} for each in found],
    }
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> ApiError:
    """Return the error for a request that cannot be read."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """Return the error for a missing or wrong token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(user: str, verb: str, resource: str, namespace: str, name: str = "") -> ApiError:
    """Return the error for a verb that no role of the user permits."""
    plain, _, _ = resource.partition("/")
    group = _GROUPS[plain]
    shown = qualified(plain) + (f' "{name}"' if name else "")
    message = (
        f'{shown} is forbidden: User "{user}" cannot {verb} resource "{resource}" '
        f'in API group "{group}" in the namespace "{namespace}"'
    )
    return ApiError(403, "Forbidden", message, details_of(plain, name))


def exceeded_quota(resource: str, name: str, limit: int) -> ApiError:
    """Return the error for an object that a quota of the namespace does not permit."""
    counted = f"count/{qualified(resource)}"
    message = (
        f'{qualified(resource)} "{name}" is forbidden: exceeded quota: objects, requested: {counted}=1, '
        f"used: {counted}={limit}, limited: {counted}={limit}"
    )
    return ApiError(403, "Forbidden", message, details_of(resource, name))


def gone(asked: int, oldest: int) -> ApiError:
    """Return the error for a version that was compacted."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def deleted(resource: str, name: str, uid: str) -> Object:
    """Return the answer to a deletion that is complete."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details_of(resource, name, uid=uid),
    }
