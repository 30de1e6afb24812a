"""People who sign in at an OpenID Connect issuer: who they are, and what they may do.

The issuer says who a person is and in which groups; the operator says which group has which role
(`settings.oidc`). Both are read at each sign-in, and all sessions of the person follow the last one. A person
acts in one workspace at a time, the one that a request names.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

from wakeful.errors import NotFound, PermissionDenied, Unauthenticated
from wakeful.service.auth.access import Principal, Role, permit
from wakeful.service.auth.accounts import Accounts
from wakeful.settings.oidc import ANY, Grants
from wakeful.store.port import Store
from wakeful.store.sql.people import PERSON
from wakeful.store.sql.people import PersonRow as PersonRow
from wakeful.values.stored_text import clean_text, is_storable

_MOST: Final = 1_000
_LONGEST: Final = 200
_LONGEST_SUBJECT: Final = 255
#: Control characters, and those that change the direction of the text around them.
_HIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_NAMES: Final = ("name", "preferred_username", "email")


class NoGrant(PermissionDenied):
    """The issuer has signed a person in who may do nothing here."""

    #: the person, without grants
    person: PersonRow | None = None


def read_person(
    issuer: str, claims: Mapping[str, object], groups_claim: str, roles: Mapping[str, Grants],
    domains: Iterable[str], now_ms: int,
) -> PersonRow:  # fmt: skip
    """Return the person of verified claims, or raise NoGrant or Unauthenticated."""
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT or not is_storable(subject):
        raise Unauthenticated("the issuer does not say who you are: the claim sub is not valid")
    email = clean_name(claims.get("email")) or None
    name = next((name for each in _NAMES if (name := clean_name(claims.get(each)))), "") or clean_name(
        subject
    )
    id = hashlib.sha256(json.dumps([issuer, subject]).encode()).hexdigest()[:32]
    groups = find_groups(claims, groups_claim)
    grants = find_grants(groups, roles)
    person = PersonRow(
        id, issuer, subject, name or "person", email, grants, created_ms=now_ms, signed_in_ms=now_ms
    )
    try:
        check_domain(email, claims.get("email_verified"), domains)
        if not grants:
            raise NoGrant(
                f"{person.name}: you are signed in at the issuer, but none of your groups may use this "
                f"installation; ask its operator. The issuer names {len(groups)} groups"
            )
    except NoGrant as error:
        error.person = person._replace(grants={})
        raise
    return person


def clean_name(value: object) -> str:
    """Return text of the issuer as a name: composed (NFC), without control characters, and short.

    >>> clean_name("  Ada\\u202e \\n Lovelace"), clean_name("Zoe\\u0308"), clean_name(7)
    ('Ada Lovelace', 'Zoë', '')
    """
    if not isinstance(value, str):
        return ""
    text = _HIDDEN.sub(" ", clean_text(value[: 10 * _LONGEST]))
    return " ".join(unicodedata.normalize("NFC", text).split())[:_LONGEST].strip()


def check_domain(email: str | None, verified: object, domains: Iterable[str]) -> None:
    """Raise NoGrant if only some domains may sign in, and this address is not a verified one of them.

    >>> check_domain("ada@acme.example", True, ["acme.example"])
    >>> check_domain("ada@evil.example", True, ["acme.example"])
    Traceback (most recent call last):
    wakeful.service.auth.people.NoGrant: only verified addresses of acme.example may sign in here, ...
    """
    allowed = [domain.lower().removeprefix("@") for domain in domains]
    name, _, domain = (email or "").rpartition("@")
    if allowed and (verified is not True or not name or domain.lower() not in allowed):
        who = f"and yours is {email}" if email and verified is True else "and the issuer names none of yours"
        raise NoGrant(f"only verified addresses of {', '.join(allowed)} may sign in here, {who}")


def find_groups(claims: Mapping[str, object], claim: str) -> frozenset[str]:
    """Return the groups in the claims; `realm_access.roles` is a claim inside of another.

    >>> sorted(find_groups({"groups": ["a", 7, "b"]}, "groups")), sorted(find_groups({"g": "a"}, "g"))
    (['a', 'b'], ['a'])
    >>> find_groups({"realm": {"roles": ["a"]}}, "realm.roles"), find_groups({"realm": 7}, "realm.roles")
    (frozenset({'a'}), frozenset())
    """
    value: object = claims.get(claim)
    if value is None:
        value = claims
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return frozenset({value})
    return (
        frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()
    )


def find_grants(groups: Iterable[str], roles: Mapping[str, Grants]) -> dict[str, str]:
    """Return the roles by workspace of a person with these groups: of several, `admin`.

    >>> roles = {"*": {"demo": "member"}, "ops": {"*": "admin"}, "crm": {"crm": "member", "demo": "admin"}}
    >>> find_grants(["crm", "x"], roles), find_grants([], roles)
    ({'demo': 'admin', 'crm': 'member'}, {'demo': 'member'})
    """
    found: dict[str, str] = {}
    for group in (ANY, *sorted(set(groups) - {ANY})):
        for workspace, role in roles.get(group, {}).items():
            found[workspace] = role if found.get(workspace) != "admin" else "admin"
    return found


def person_principal(person: PersonRow, address: str | None, workspace: str | None = None) -> Principal:
    """Return the principal of a person in the workspace of a request; None: the request names none.

    >>> from functools import partial
    >>> ada = partial(PersonRow, "7", "i", "s", "Ada", None, created_ms=0, signed_in_ms=0)
    >>> here = person_principal(ada(grants={"*": "member", "crm": "admin"}), None, "crm")
    >>> here.role, here.workspace
    ('admin', 'crm')
    >>> person_principal(ada(grants={"crm": "admin", "demo": "member"}), None, "other").workspace
    'crm'
    """
    grants: list[tuple[str, Role]] = [
        (place, "admin" if role == "admin" else "member") for place, role in sorted(person.grants.items())
    ]
    first = Principal(person.actor, "member", "", address=address, grants=tuple(grants)).at(grants[0][0])
    return first if workspace is None else first.at(workspace)


class PeopleService:
    """Lists and removes people: for those who may manage keys."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def list(self, principal: Principal, workspace: str) -> list[PersonRow]:
        """List the people who may use the workspace, the last signed in first."""
        await self._accounts.authorize(principal, "key", workspace)
        found = await self._store.people(workspace, _MOST)
        return [
            each._replace(grants={key: each.grants[key] for key in (ANY, workspace) if key in each.grants})
            for each in found
        ]

    async def remove(self, principal: Principal, workspace: str, person_id: str) -> None:
        """Remove a person: sessions end, and the person's keys are revoked. History keeps the name.

        It takes a principal of all workspaces. The person can sign in again while the issuer and the groups
        allow it.
        """
        permit(principal, "operate", workspace)
        entry = principal.entry(workspace, "person.remove", PERSON + person_id[:64])
        if not await self._store.remove_person(person_id, self._store.clock.now_ms(), [entry]):
            raise NotFound(f"no person '{person_id[:64]}'; list the people to see their ids")
