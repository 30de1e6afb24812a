"""Authentication with keys and tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from socket import SO_LINGER, SOL_SOCKET
from struct import pack

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.integration.conftest import NewApp
from tests.support.waiting import PATIENCE, eventually
from wakeful.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated, Unavailable
from wakeful.service.auth import jwt_auth
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.auth.jwt_auth import JwtTokens
from wakeful.service.services import Services

SECRET = "a secret of more than thirty-two bytes, and for some of more than sixty-four"


def b64(value: object) -> str:
    """Encode a part of a token: text as it is, other values as JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.fixture
async def services(new_app: NewApp) -> AsyncIterator[Services]:
    async with new_app() as app:
        yield app.services


async def test_the_first_key_is_created_once_and_valid_for_every_workspace(services: Services):
    key = await services.auth.keys.first_key()
    assert key is not None
    assert key.startswith("wk_")
    assert await services.auth.keys.first_key() is None
    who = await services.auth.keys.authenticate(key, "192.0.2.1")
    assert (who.role, who.workspace, who.agent, who.address) == ("admin", None, None, "192.0.2.1")


async def test_a_key_is_stored_as_a_hash(services: Services):
    row, key = await services.auth.keys.create(LOCAL, "default", {"name": "ci", "role": "member"})
    assert key.encode() not in row.hash
    (kept,) = await services.auth.keys.list(LOCAL, "default")
    assert (kept.id, kept.name, kept.role, kept.workspace) == (row.id, "ci", "member", "default")
    who = await services.auth.keys.authenticate(key)
    assert who == Principal(f"key:{row.id}", "member", "default")


async def test_the_last_use_of_a_key_is_recorded(services: Services):
    row, key = await services.auth.keys.create(LOCAL, "default", {"role": "member"})
    assert row.last_used_ms is None
    await services.auth.keys.authenticate(key)

    async def used() -> bool:
        return (await services.auth.keys.list(LOCAL, "default"))[0].last_used_ms is not None

    await eventually(used)


async def test_a_revoked_key_is_invalid_and_cannot_be_revoked_again(services: Services):
    row, key = await services.auth.keys.create(LOCAL, "default", {"role": "admin"})
    await services.auth.keys.authenticate(key)
    await services.auth.keys.revoke(LOCAL, "default", row.id)
    with pytest.raises(Unauthenticated, match="revoked"):
        await services.auth.keys.authenticate(key)
    with pytest.raises(NotFound):
        await services.auth.keys.revoke(LOCAL, "default", row.id)


async def test_an_expired_key_is_invalid(services: Services, monkeypatch: pytest.MonkeyPatch):
    expires_ms = services.store.clock.now_ms() + 3_600_000
    _, key = await services.auth.keys.create(LOCAL, "default", {"role": "admin", "expiresAt": expires_ms})
    await services.auth.keys.authenticate(key)
    monkeypatch.setattr(services.store.clock, "now_ms", lambda: expires_ms)
    with pytest.raises(Unauthenticated, match="expired"):
        await services.auth.keys.authenticate(key)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"role": "owner"}, "admin, member, agent"),
        ({"role": "agent"}, "name it"),
        ({"role": "agent", "agent": "No Slug"}, "agent"),
        ({"role": "member", "agent": "ada"}, "leave it out"),
        ({"role": "member", "expiresAt": "yesterday"}, "expiresAt"),
        ({"role": "member", "expiresAt": "2001-01-01T00:00:00Z"}, "expiresAt"),
        ({"role": "member", "color": "red"}, "color"),
        ({"role": "member", "name": 5}, "name"),
    ],
)
async def test_an_invalid_key_document_is_refused(services: Services, document, says: str):
    with pytest.raises(InvalidArgument, match=says):
        await services.auth.keys.create(LOCAL, "default", document)


async def test_a_key_cannot_create_a_key_with_more_permissions(services: Services):
    _, key = await services.auth.keys.create(LOCAL, "default", {"role": "admin"})
    admin = await services.auth.keys.authenticate(key)
    with pytest.raises(PermissionDenied):
        await services.auth.keys.create(admin, None, {"role": "admin"})
    with pytest.raises(NotFound):
        await services.auth.keys.create(admin, "other", {"role": "member"})
    _, key = await services.auth.keys.create(LOCAL, "default", {"role": "member"})
    member = await services.auth.keys.authenticate(key)
    with pytest.raises(PermissionDenied, match="admin"):
        await services.auth.keys.create(member, "default", {"role": "member"})


async def test_an_admin_of_one_workspace_cannot_revoke_a_key_for_all_workspaces(services: Services):
    key = await services.auth.keys.first_key()
    assert key is not None
    operator = await services.auth.keys.authenticate(key)
    _, own = await services.auth.keys.create(operator, "default", {"role": "admin"})
    admin = await services.auth.keys.authenticate(own)
    with pytest.raises(NotFound):
        await services.auth.keys.revoke(admin, "default", operator.actor.removeprefix("key:"))
    await services.auth.keys.authenticate(key)


@pytest.mark.parametrize("bearer", [None, "", "wk_short", "wk_" + "x" * 43, "a.b.c", "Basic abc"])
async def test_an_unknown_or_malformed_key_is_unauthenticated(services: Services, bearer: str | None):
    with pytest.raises(Unauthenticated):
        await services.auth.keys.authenticate(bearer)


# --- tokens --------------------------------------------------------------------------------------------


def claims(**more: object) -> dict[str, object]:
    return {"sub": "ada", "role": "member", "workspace": "acme", "exp": int(time.time()) + 60, **more}


async def test_a_token_signed_with_the_secret_is_authenticated():
    tokens = JwtTokens(secret=SECRET)
    who = await tokens.principal(jwt.encode(claims(), SECRET, "HS256"))
    assert who == Principal("jwt:ada", "member", "acme")
    agent = jwt.encode(claims(role="agent", agent="bot"), SECRET, "HS256")
    assert await tokens.principal(agent) == Principal("jwt:ada", "agent", "acme", "bot")
    everywhere = jwt.encode(claims(role="admin", workspace="*"), SECRET, "HS256")
    assert await tokens.principal(everywhere) == Principal("jwt:ada", "admin", None)


_NOBODY = base64.urlsafe_b64encode(b"{}").decode()
WRONG: dict[str, Callable[[], str]] = {
    "expired": lambda: jwt.encode(claims(exp=int(time.time()) - 60), SECRET, "HS256"),
    "another secret": lambda: jwt.encode(claims(), SECRET + "another", "HS256"),
    "another algorithm": lambda: jwt.encode(claims(), SECRET, "HS512"),
    "no such role": lambda: jwt.encode(claims(role="owner"), SECRET, "HS256"),
    "an agent without a name": lambda: jwt.encode(claims(role="agent"), SECRET, "HS256"),
    "an agent everywhere": lambda: jwt.encode(
        claims(role="agent", agent="bot", workspace="*"), SECRET, "HS256"
    ),
    "no such workspace": lambda: jwt.encode(claims(workspace="No Slug"), SECRET, "HS256"),
    "for ever": lambda: jwt.encode({"sub": "ada", "role": "member", "workspace": "acme"}, SECRET, "HS256"),
    "cut off": lambda: jwt.encode(claims(), SECRET, "HS256")[:-2],
    "empty": lambda: f"{_NOBODY}.{_NOBODY}.",
    "not signed": lambda: jwt.encode(claims(), "", "none"),
    "no token": lambda: "a.b.c",
}


@pytest.mark.parametrize("what", WRONG)
async def test_an_invalid_token_is_unauthenticated(what: str):
    with pytest.raises(Unauthenticated):
        await JwtTokens(secret=SECRET).principal(WRONG[what]())


async def test_a_token_for_another_audience_or_of_another_issuer_is_unauthenticated():
    tokens = JwtTokens(secret=SECRET, audience="wakeful", issuer="https://id.example")
    right = claims(aud="wakeful", iss="https://id.example")
    assert (await tokens.principal(jwt.encode(right, SECRET, "HS256"))).actor == "jwt:ada"
    for wrong in ({**right, "aud": "other"}, {**right, "iss": "other"}, claims()):
        with pytest.raises(Unauthenticated):
            await tokens.principal(jwt.encode(wrong, SECRET, "HS256"))


def test_a_short_secret_is_refused_at_the_start():
    with pytest.raises(InvalidArgument, match="JWT_SECRET"):
        JwtTokens(secret="short")


async def test_a_token_signed_by_a_key_of_the_key_set_is_authenticated():
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    curve = ec.generate_private_key(ec.SECP256R1())
    on_curve = jwt.algorithms.ECAlgorithm.to_jwk(curve.public_key(), as_dict=True)
    edwards = ed25519.Ed25519PrivateKey.generate()
    on_edwards = jwt.algorithms.OKPAlgorithm.to_jwk(edwards.public_key(), as_dict=True)
    shared = {"kty": "oct", "k": b64(SECRET)}

    fetched = 0

    async def key_set(request: web.Request) -> web.Response:
        nonlocal fetched
        fetched += 1
        one = {**public, "kid": "one", "use": "sig", "alg": "RS256"}
        others = [{**on_curve, "kid": "curve"}, {**on_edwards, "kid": "edwards"}, {**shared, "kid": "shared"}]
        return web.json_response({"keys": [one, {**public, "kid": "any"}, *others]})

    app = web.Application()
    app.router.add_get("/jwks.json", key_set)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        tokens = JwtTokens(jwks_url=f"http://127.0.0.1:{port}/jwks.json")
        token = jwt.encode(claims(), private, "RS256", {"kid": "one"})
        assert (await tokens.principal(token)).actor == "jwt:ada"
        for key, algorithm, kid in (
            (private, "RS512", "any"),
            (private, "PS256", "any"),
            (curve, "ES256", "curve"),
            (edwards, "EdDSA", "edwards"),
        ):
            token = jwt.encode(claims(), key, algorithm, {"kid": kid})
            assert (await tokens.principal(token)).actor == "jwt:ada", algorithm
        mismatches = [
            jwt.encode(claims(), key, algorithm, {"kid": kid})
            for key, algorithm in ((private, "RS256"), (curve, "ES256"), (edwards, "EdDSA"))
            for kid in ("any", "curve", "edwards", "shared")
        ]
        right = {0, 5, 10}
        for wrong in (
            *(token for place, token in enumerate(mismatches) if place not in right),
            jwt.encode(claims(), ec.generate_private_key(ec.SECP384R1()), "ES384", {"kid": "curve"}),
            f"{b64({'alg': 'RS256', 'kid': 7})}.{b64(claims())}.AAAA",
            f"{b64({'alg': ['RS256']})}.{b64(claims())}.AAAA",
            f"{b64(['RS256'])}.{b64(claims())}.AAAA",
            f"{b64({'alg': 'RS256', 'kid': 'one'})}.{b64([1])}.AAAA",
            jwt.encode(claims(), other, "RS256", {"kid": "one"}),
            jwt.encode(claims(), private, "RS256", {"kid": "two"}),
            jwt.encode(claims(), SECRET, "HS256", {"kid": "one"}),
        ):
            with pytest.raises(Unauthenticated):
                await tokens.principal(wrong)
        fetched = 0
        unknown = [jwt.encode(claims(), private, "RS256", {"kid": f"unknown-{n}"}) for n in range(20)]
        for error in await asyncio.gather(*map(tokens.principal, unknown), return_exceptions=True):
            assert isinstance(error, Unauthenticated)
        assert fetched <= 2, "anybody can send such tokens"
    finally:
        await runner.cleanup()


async def test_a_key_set_that_does_not_respond_is_unavailable_and_holds_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
):
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    released, hangs, asked = asyncio.Event(), False, 0

    async def key_set(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if hangs:
            await released.wait()
        return web.json_response({"keys": [{**public, "kid": "one"}]})

    async def cut_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "1000"})
        await response.prepare(request)
        await response.write(b'{"keys": [')
        assert request.transport is not None
        request.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
        request.transport.abort()
        return response

    app = web.Application()
    app.router.add_get("/jwks.json", key_set)
    app.router.add_get("/cut.json", cut_off)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        known, unknown = (jwt.encode(claims(), private, "RS256", {"kid": kid}) for kid in ("one", "two"))
        for path in ("missing", "cut.json"):
            with pytest.raises(Unavailable, match="JWKS_URL"):
                await JwtTokens(jwks_url=f"{address}/{path}").principal(known)
        tokens = JwtTokens(jwks_url=f"{address}/jwks.json")
        await tokens.principal(known)
        hangs = True
        monkeypatch.setattr(jwt_auth, "_FETCH_S", PATIENCE)
        fresh = JwtTokens(jwks_url=f"{address}/jwks.json")
        waiting = [asyncio.create_task(fresh.principal(unknown)) for _ in range(50)]
        await asyncio.sleep(0.1)
        await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        await asyncio.gather(*(tokens.principal(known) for _ in range(10)))
        assert not any(each.done() for each in waiting)
        monkeypatch.setattr(jwt_auth, "_FETCH_S", 0.1)
        impatient, asked = JwtTokens(jwks_url=f"{address}/jwks.json"), 0
        refused = (impatient.principal(unknown) for _ in range(50))
        for error in await asyncio.gather(*refused, return_exceptions=True):
            assert isinstance(error, Unavailable)
        assert asked < 50, "not each of them waits for a response"
        released.set()
        async with asyncio.timeout(PATIENCE):
            for error in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(error, Unauthenticated)
    finally:
        await runner.cleanup()


async def test_keys_for_all_workspaces_are_listed_only_to_their_admins(services: Services):
    key = await services.auth.keys.first_key()
    assert key is not None
    operator = await services.auth.keys.authenticate(key)
    row, text = await services.auth.keys.create(operator, "default", {"role": "admin"})
    admin = await services.auth.keys.authenticate(text)
    assert {each.name for each in await services.auth.keys.list(operator, "default")} == {"first", "key"}
    assert [each.id for each in await services.auth.keys.list(admin, "default")] == [row.id]
