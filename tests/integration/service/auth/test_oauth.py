"""Grants of assistants: codes, tokens and rights, against a model, with a clock that only the test moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.databases import Database, SqliteDatabase, postgres
from tests.support.factories import DAY, SECOND
from wakeful.document import Defaults
from wakeful.errors import NotFound, PermissionDenied, Unauthenticated
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.keys import KeyService
from wakeful.service.auth.oauth import ACCESS_MS, CODE_MS, GRACE_MS, REFRESH_MS, Approval, OAuthService
from wakeful.service.auth.people import person_principal
from wakeful.store.port import Store
from wakeful.store.sql.people import PersonRow
from wakeful.store.sql.web_sessions import WebSessionRow

MCP = "https://wakeful.example/mcp"
#: What moves the clock: at least a second, so that a replica that is not notified reads again.
STEPS = {
    SECOND: 4,
    GRACE_MS - 2 * SECOND: 3,
    GRACE_MS: 4,
    CODE_MS: 1,
    ACCESS_MS: 2,
    REFRESH_MS - DAY: 1,
    REFRESH_MS: 1,
}


class Replica:
    """The services of one process."""

    def __init__(self, store: Store) -> None:
        accounts = Accounts(store, Defaults())
        self.store = store
        self.keys = KeyService(store, accounts, None)
        self.oauth = OAuthService(store, accounts, self.keys)


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made: Database = SqliteDatabase(tmp_path / "wakeful.db") if request.param == "sqlite" else postgres()
    yield made
    await made.close()


@pytest.fixture
async def replicas(database: Database) -> AsyncIterator[list[Replica]]:
    made = [Replica(await database.connect()) for _ in range(2)]
    yield made
    for each in made:
        await each.keys.close()


async def _person(replica: Replica, **document: object) -> Principal:
    """Return the principal of a new key."""
    _, text = await replica.keys.create(LOCAL, "default", {"role": "admin", **document})
    return await replica.keys.authenticate(text, "192.0.2.1")


def _approval(**fields: object) -> Approval:
    given = {
        "redirect_uri": "https://claude.ai/cb",
        "redirect_uri_given": True,
        "code_challenge": "x",
        "resource": MCP,
        "name": "Claude",
        "host": "claude.ai",
        "workspace": "default",
        "role": "member",
        **fields,
    }
    return Approval(**given)  # type: ignore[arg-type]


@dataclass
class Grant:
    """What the model knows of an approval."""

    code: str
    code_ms: int
    owner: Principal
    key_id: str | None = None
    revoked: bool = False
    refreshed_ms: int = 0
    #: the instant of creation, and of the first use, by token
    access: dict[str, int] = field(default_factory=dict)
    refresh: dict[str, list[int | None]] = field(default_factory=dict)


class Model:
    """Performs random actions on two replicas, and compares each result with what is expected."""

    def __init__(self, database: Database, replicas: list[Replica], seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = database.clock
        self.replicas = replicas
        self.grants: list[Grant] = []
        self.owners: dict[str, bool] = {}

    @property
    def replica(self) -> Replica:
        return self.random.choice(self.replicas)

    def is_alive(self, grant: Grant) -> bool:
        return (
            not grant.revoked
            and self.owners[grant.owner.actor]
            and self.clock.ms < grant.refreshed_ms + REFRESH_MS
        )

    async def approve(self) -> None:
        owner = await _person(self.replica)
        self.owners[owner.actor] = True
        code = await self.replica.oauth.approve(owner, "client", "{}", _approval())
        self.grants.append(Grant(code, self.clock.ms, owner))

    async def exchange_code(self, grant: Grant) -> None:
        oauth, expected = self.replica.oauth, grant.key_id is None and self.clock.ms < grant.code_ms + CODE_MS
        assert await oauth.find_approval(grant.code, "another client") is None
        approval = await oauth.find_approval(grant.code, "client")
        assert (approval is not None) == expected
        if approval is None:
            grant.revoked = grant.revoked or grant.key_id is not None
            return
        tokens = await oauth.exchange_code(grant.code, "client", approval)
        assert (tokens is not None) == self.owners[grant.owner.actor]
        assert await oauth.exchange_code(grant.code, "client", approval) is None
        if tokens is None:
            grant.key_id, grant.revoked = "revoked", True
            return
        principal = await oauth.authenticate(tokens.access, MCP)
        assert principal.person == grant.owner.actor
        grant.key_id = principal.actor.removeprefix("key:")
        self._add(grant, *tokens)

    async def refresh(self, grant: Grant) -> None:
        if not grant.refresh:
            return
        text = self.random.choice(list(grant.refresh))
        made_ms, used_ms = grant.refresh[text]
        assert made_ms is not None
        valid = self.is_alive(grant) and self.clock.ms < made_ms + REFRESH_MS
        again = used_ms is not None and self.clock.ms - used_ms >= GRACE_MS
        oauth = self.replica.oauth
        assert await oauth.find_token(text, "another client") is None
        row = await oauth.find_token(text, "client")
        assert (row is not None) == (valid and not again)
        if row is None:
            grant.revoked = grant.revoked or valid
            return
        tokens = await oauth.refresh(row)
        assert tokens is not None
        if used_ms is None:
            grant.refresh[text][1] = self.clock.ms
        self._add(grant, *tokens)

    async def revoke(self, grant: Grant) -> None:
        if grant.key_id is not None and self.random.random() < 0.5:
            if not grant.revoked:
                await self.replica.keys.revoke(LOCAL, "default", grant.key_id)
                grant.revoked = True
        elif self.owners[grant.owner.actor]:
            await self.replica.keys.revoke(LOCAL, "default", grant.owner.actor.removeprefix("key:"))
            self.owners[grant.owner.actor] = False
            grant.revoked = grant.revoked or grant.key_id is not None
            if grant.key_id is not None:  # it is shown as revoked, too
                rows = {row.id: row for row in await self.replica.store.keys("default")}
                assert grant.key_id == "revoked" or rows[grant.key_id].revoked_ms is not None

    async def wait(self, grant: Grant) -> None:
        del grant
        self.clock.ms += self.random.choices(list(STEPS), list(STEPS.values()))[0]

    async def check(self) -> None:
        """Call with every token of every grant."""
        for grant in self.grants:
            for text, made_ms in grant.access.items():
                expected = self.is_alive(grant) and self.clock.ms < made_ms + ACCESS_MS
                assert await self._is_accepted(text) == expected
            for text in grant.refresh:
                assert not await self._is_accepted(text)

    async def _is_accepted(self, text: str) -> bool:
        try:
            await self.replica.oauth.authenticate(text, MCP)
        except Unauthenticated:
            return False
        return True

    def _add(self, grant: Grant, access: str, refresh: str) -> None:
        grant.refreshed_ms = self.clock.ms
        grant.access[access] = self.clock.ms
        grant.refresh[refresh] = [self.clock.ms, None]


@pytest.mark.parametrize("seed", range(6))
async def test_tokens_and_grants_end_as_in_the_model(
    database: Database, replicas: list[Replica], seed: int
) -> None:
    model = Model(database, replicas, seed)
    await model.approve()
    steps = 150 if isinstance(database, SqliteDatabase) else 30
    actions = [model.exchange_code] * 3 + [model.refresh] * 8 + [model.wait] * 4 + [model.revoke]
    for _ in range(steps):
        if model.random.random() < 0.15:
            await model.approve()
        await model.random.choice(actions)(model.random.choice(model.grants))
        database.clock.ms += SECOND
        model.grants = model.grants[-4:]
        await model.check()


async def test_two_refreshes_at_once_on_two_replicas_both_succeed(replicas: list[Replica]) -> None:
    oauth = replicas[0].oauth
    code = await oauth.approve(await _person(replicas[0]), "client", "{}", _approval())
    approval = await oauth.find_approval(code, "client")
    assert approval is not None
    tokens = await oauth.exchange_code(code, "client", approval)
    assert tokens is not None
    rows = [await each.oauth.find_token(tokens.refresh, "client") for each in replicas]
    new = await asyncio.gather(
        *(each.oauth.refresh(row) for each, row in zip(replicas, rows, strict=True) if row)
    )
    for each in new:
        assert each is not None
        await replicas[0].oauth.authenticate(each.access, MCP)


@pytest.mark.parametrize(
    ("person", "wanted", "error"),
    [
        ({"role": "member"}, {"role": "admin"}, PermissionDenied),
        ({"role": "member"}, {"role": "agent", "agent": "writer"}, PermissionDenied),
        ({"role": "agent", "agent": "writer"}, {"role": "agent", "agent": "writer"}, PermissionDenied),
        ({"role": "admin"}, {"workspace": "acme"}, NotFound),
    ],
)
async def test_a_person_cannot_give_more_than_they_have(
    replicas: list[Replica],
    person: dict[str, object],
    wanted: dict[str, object],
    error: type[Exception],
) -> None:
    principal = await _person(replicas[0], **person)
    with pytest.raises(error):
        await replicas[0].oauth.approve(principal, "client", "{}", _approval(**wanted))


async def test_the_audit_names_the_assistant_and_the_person(replicas: list[Replica]) -> None:
    oauth, store = replicas[0].oauth, replicas[0].store
    owner = await _person(replicas[0])
    code = await oauth.approve(owner, "client", "{}", _approval(role="agent", agent="writer"))
    approval = await oauth.find_approval(code, "client")
    assert approval is not None
    tokens = await oauth.exchange_code(code, "client", approval)
    assert tokens is not None
    principal = await oauth.authenticate(tokens.access, MCP, "192.0.2.7")
    assert (principal.role, principal.agent, principal.workspace) == ("agent", "writer", "default")
    created = (await store.audit("default"))[-1]
    assert (created.actor, created.action) == (owner.actor, "key.create")
    entry = principal.entry("default", "job.create", "writer/digest")
    assert entry.details == f'{{"client":"claude.ai","person":"{owner.actor}"}}'
    with pytest.raises(PermissionDenied):
        await oauth.approve(principal, "client", "{}", _approval(role="agent", agent="writer"))
    with pytest.raises(Unauthenticated):
        await oauth.authenticate(tokens.access, "https://other.example/mcp")


async def test_the_grant_of_a_person_who_does_not_sign_in_any_more_ends(
    replicas: list[Replica], database: Database
) -> None:
    oauth, store, clock = replicas[0].oauth, replicas[0].store, database.clock
    ada = PersonRow("7", "i", "s", "Ada", None, {"default": "admin"}, clock.ms, clock.ms)
    session = WebSessionRow(b"1", ada.actor, clock.ms, clock.ms, clock.ms + DAY, None)
    await store.sign_in_person(ada, session)
    code = await oauth.approve(person_principal(ada, None, "default"), "client", "{}", _approval())
    approval = await oauth.find_approval(code, "client")
    assert approval is not None
    tokens = await oauth.exchange_code(code, "client", approval)
    for _ in range(2):  # the issuer has not let the person in for 40 days, but the assistant refreshes
        assert tokens is not None
        clock.ms += 20 * DAY
        row = await oauth.find_token(tokens.refresh, "client")
        tokens = None if row is None else await oauth.refresh(row)
    assert tokens is None
    await store.sign_in_person(ada._replace(signed_in_ms=clock.ms), session._replace(hash=b"2"))
    code = await oauth.approve(person_principal(ada, None, "default"), "client", "{}", _approval())
    approval = await oauth.find_approval(code, "client")
    assert approval is not None
    assert await oauth.exchange_code(code, "client", approval) is not None


async def test_the_grant_of_a_person_ends_with_the_roles_of_the_person(
    replicas: list[Replica], database: Database
) -> None:
    oauth, store, clock = replicas[0].oauth, replicas[0].store, database.clock

    async def sign_in(**grants: str) -> Principal:
        person = PersonRow("7", "i", "s", "Ada", None, grants, clock.ms, clock.ms)
        session = WebSessionRow(b"", "person:7", clock.ms, clock.ms, clock.ms + DAY, None)
        await store.sign_in_person(person, session._replace(hash=str(clock.ms).encode()))
        clock.ms += SECOND
        return person_principal(person, None, "default")

    async def is_accepted(access: str) -> bool:
        try:
            return (await oauth.authenticate(access, MCP)).person == "person:7"
        except Unauthenticated:
            return False

    ada = await sign_in(default="admin")
    tokens = {}
    for role in "admin", "member":
        code = await oauth.approve(ada, "client", "{}", _approval(role=role))
        approval = await oauth.find_approval(code, "client")
        assert approval is not None
        tokens[role] = await oauth.exchange_code(code, "client", approval)
    accesses = [each.access for each in tokens.values() if each is not None]
    assert [await is_accepted(each) for each in accesses] == [True, True]
    for grants, expected in (
        ({"default": "member"}, [False, True]),
        ({"*": "member", "default": "admin"}, [True, True]),
        ({"acme": "admin"}, [False, False]),
        ({"*": "admin"}, [True, True]),
    ):
        await sign_in(**grants)
        assert [await is_accepted(each) for each in accesses] == expected, grants
    with pytest.raises(PermissionDenied):
        await oauth.approve(await sign_in(default="member"), "client", "{}", _approval(role="admin"))
    await store.remove_person("7", clock.ms)
    clock.ms += SECOND
    assert [await is_accepted(each) for each in accesses] == [False, False]
    await sign_in(default="admin")
    assert [await is_accepted(each) for each in accesses] == [False, False]
