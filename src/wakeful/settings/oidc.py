"""The operator's settings of sign-in by OpenID Connect: which group of the issuer has which role.

WAKEFUL_OIDC_GROUPS={"platform": {"*": "admin"}, "sales": {"crm": "member"}}

By group, the roles by workspace; `*` is all workspaces. The group `*` is everyone whom the issuer signs in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from wakeful.errors import InvalidArgument

#: By workspace, or `*`: the role there.
Grants = Mapping[str, Literal["admin", "member"]]

GROUPS: Final = "oidc_groups"
ANY: Final = "*"
_EXAMPLE: Final = '{"platform": {"*": "admin"}, "sales": {"crm": "member"}}'
_WORKSPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?|\*")
_LONGEST_ISSUER: Final = 500


def read_groups(name: str, value: object) -> dict[str, Grants]:
    """Read the roles of groups: JSON, or a table of the file.

    >>> read_groups("WAKEFUL_OIDC_GROUPS", '{"sales": {"crm": "member"}}')
    {'sales': {'crm': 'member'}}
    >>> read_groups("WAKEFUL_OIDC_GROUPS", '{"sales": {"crm": "owner"}}')
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: WAKEFUL_OIDC_GROUPS: sales: crm: 'owner' is not a role of people; write \
admin or member
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"{name}: it is not JSON ({error}); write {_EXAMPLE}") from error
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{name}: it is not an object; write {_EXAMPLE}")
    return {str(group): _grants(f"{name}: {group}", roles) for group, roles in value.items()}


def _grants(name: str, roles: object) -> Grants:
    if not isinstance(roles, Mapping) or not roles:
        raise InvalidArgument(f'{name}: write its roles by workspace, such as {{"crm": "member"}}')
    found: dict[str, Literal["admin", "member"]] = {}
    for workspace, role in roles.items():
        if not _WORKSPACE.fullmatch(str(workspace)):
            raise InvalidArgument(f"{name}: '{str(workspace)[:64]}' is not the name of a workspace, nor *")
        if role == "admin":
            found[str(workspace)] = "admin"
        elif role == "member":
            found[str(workspace)] = "member"
        else:
            what = f"{name}: {workspace}: '{str(role)[:64]}'"
            raise InvalidArgument(f"{what} is not a role of people; write admin or member")
    return found


def check_oidc(issuer: str | None, client_id: str | None, groups: Mapping[str, Grants]) -> None:
    """Raise InvalidArgument if the settings of an issuer are not complete.

    >>> check_oidc("https://id.example.com", None, {})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: WAKEFUL_OIDC_CLIENT_ID: the issuer in WAKEFUL_OIDC_ISSUER needs it; ...
    """
    if issuer is None:
        return
    url = urlsplit(issuer)
    if (
        url.scheme not in ("https", "http")
        or not url.netloc
        or url.query
        or url.fragment
        or "@" in url.netloc
    ):
        raise InvalidArgument(
            f"WAKEFUL_OIDC_ISSUER: '{issuer[:200]}' is not a URL such as https://id.example.com"
        )
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise InvalidArgument("WAKEFUL_OIDC_ISSUER: use https; http is only for an issuer on this machine")
    if len(issuer) > _LONGEST_ISSUER:
        raise InvalidArgument(f"WAKEFUL_OIDC_ISSUER: write at most {_LONGEST_ISSUER} characters")
    for name, value, hint in (
        ("CLIENT_ID", client_id, "register this server with the issuer, and set the id of the client"),
        ("GROUPS", groups, f"name the groups that may sign in, such as {_EXAMPLE}"),
    ):
        if not value:
            raise InvalidArgument(f"WAKEFUL_OIDC_{name}: the issuer in WAKEFUL_OIDC_ISSUER needs it; {hint}")
