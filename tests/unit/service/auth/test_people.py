"""Who a person is and what the person may do, by what an issuer says and what the operator allows."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import InvalidArgument
from wakeful.errors import Unauthenticated
from wakeful.service.auth.people import NoGrant, clean_name, person_principal, read_person
from wakeful.settings.oidc import Grants, check_oidc, read_groups
from wakeful.store.sql.people import PersonRow

ISSUER = "https://id.example"
PLACES = st.sampled_from(["*", "crm", "demo", "hr"])
ROLES = st.dictionaries(PLACES, st.sampled_from(["admin", "member"]), min_size=1)
SETTINGS = st.dictionaries(st.sampled_from(["*", "a", "b", "c"]), ROLES, max_size=4)
RANK = {"member": 1, "admin": 2}


def _read(settings: dict[str, Any], **claims: object) -> PersonRow:
    return read_person(ISSUER, {"sub": "s1", **claims}, "groups", settings, (), 1_000)


@given(SETTINGS, st.sets(st.sampled_from(["a", "b", "c", "x"])), PLACES.filter(lambda place: place != "*"))
def test_a_person_has_the_highest_role_of_the_groups_in_each_workspace_and_no_other(
    settings: dict[str, Grants], groups: set[str], workspace: str
) -> None:
    own = [settings[group] for group in {*groups, "*"} & settings.keys()]
    here = [RANK[roles[place]] for roles in own for place in (workspace, "*") if place in roles]
    if not own:
        with pytest.raises(NoGrant, match="none of your groups"):
            _read(settings, groups=list(groups))
        return
    found = person_principal(_read(settings, groups=list(groups)), "192.0.2.1", workspace)
    assert found.actor.startswith("person:")
    assert found.agent is None
    if here:
        assert found.workspace in (None, workspace)
        assert RANK[found.role] == max(here)
    else:
        assert found.workspace not in (None, workspace), "a workspace without a grant stays closed"
    if found.workspace is None:
        assert RANK[found.role] <= max(RANK[roles["*"]] for roles in own if "*" in roles)


@given(st.text(max_size=400))
def test_a_name_is_one_line_that_changes_nothing_around_it(text: str) -> None:
    name = clean_name(text)
    assert len(name) <= 200
    assert name == name.strip()
    assert not any(unicodedata.category(each) in ("Cc", "Cs") for each in name)
    assert not set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200f") & set(name)
    assert unicodedata.normalize("NFC", name) == name or len(name) == 200


@given(st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.text(), st.lists), max_size=4))
def test_no_claim_of_an_issuer_makes_an_error_of_another_kind(claims: dict[str, object]) -> None:
    person = _read({"*": {"demo": "member"}}, **{**claims, "sub": "s"})
    assert person.name
    assert person.grants == {"demo": "member"}


def test_a_person_is_the_same_at_each_sign_in_and_another_at_another_issuer() -> None:
    roles: dict[str, Any] = {"*": {"demo": "member"}}
    ada = _read(roles, name="Ada", email="ada@example.com")
    assert _read(roles, name="Ada Lovelace").id == ada.id
    assert read_person("https://b.example", {"sub": "s1"}, "groups", roles, (), 1).id != ada.id
    assert read_person("https://a", {"sub": "b\nc"}, "groups", roles, (), 1).id != (
        read_person("https://a\nb", {"sub": "c"}, "groups", roles, (), 1).id
    )
    for subject in ("", 7, None, "a\x00", "\ud800", "a" * 256):
        with pytest.raises(Unauthenticated, match="sub is not valid"):
            _read(roles, sub=subject)
    assert (ada.name, ada.email) == ("Ada", "ada@example.com")
    assert _read(roles, preferred_username="al", email="x@y").name == "al"
    assert _read(roles).name == "s1"


def test_only_verified_addresses_of_the_domains_sign_in() -> None:
    def read(**claims: object) -> PersonRow:
        return read_person(
            ISSUER, {"sub": "1", **claims}, "g", {"*": {"demo": "member"}}, ("acme.example", "@b.example"), 1
        )

    assert read(email="ada@ACME.example", email_verified=True).email == "ada@ACME.example"
    for claims in (
        {},
        {"email": "ada@acme.example"},
        {"email": "ada@acme.example", "email_verified": "true"},
        {"email": "ada@acme.example.evil", "email_verified": True},
        {"email": "acme.example", "email_verified": True, "name": "ada@acme.example"},
        {"email": "ada@sub.acme.example", "email_verified": True},
    ):
        with pytest.raises(NoGrant, match=r"only verified addresses of acme\.example, b\.example"):
            read(**claims)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not an object"),
        ('{"a": {}}', "write its roles by workspace"),
        ('{"a": "admin"}', "write its roles by workspace"),
        ('{"a": {"crm": "agent"}}', "'agent' is not a role of people"),
        ('{"a": {"CRM!": "admin"}}', "not the name of a workspace"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_a_setting_of_groups_that_is_wrong_says_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"OIDC_GROUPS: .*{problem}"):
        read_groups("OIDC_GROUPS", text)


@pytest.mark.parametrize(
    ("issuer", "client", "groups", "problem"),
    [
        ("id.example.com", "w", {"a": {}}, "is not a URL"),
        ("https://u:p@id.example.com", "w", {"a": {}}, "is not a URL"),
        ("https://id.example.com?x=1", "w", {"a": {}}, "is not a URL"),
        ("http://id.example.com", "w", {"a": {}}, "use https"),
        ("https://id.example.com/" + "a" * 500, "w", {"a": {}}, "at most 500"),
        ("https://id.example.com", "w", {}, "OIDC_GROUPS: .*name the groups"),
    ],
)
def test_an_issuer_is_complete_and_encrypted(issuer: str, client: str, groups: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        check_oidc(issuer, client, groups)
    check_oidc(None, None, {})
    check_oidc("http://127.0.0.1:9400", "w", {"a": {"*": "admin"}})
