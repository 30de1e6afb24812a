"""The names of actors: who made, changed or started something, in words that a person knows.

An actor is text such as `key:<id>`, `jwt:<subject>` or `python`; the creator of a job has its role before it.
A resource that shows one declares a second field, `Form(name_of=…)`, and its JSON has the name (`RowCodec`).
The names of stored actors, such as keys, are kept in memory: a service reads those that it returns with one
statement, and only the first time. A key keeps its name when it is revoked. An agent that acts in a run is
`run:<id>`; its name is that of the agent, as long as the run is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from wakeful.service.auth.access import ROLES
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB, BoundedCache

NamesReader = Callable[[Sequence[str]], Awaitable[dict[str, str]]]

#: The names of stored actors by actor. An id is unique in all databases, so that all share them.
_known: Final[BoundedCache[str, str]] = BoundedCache(8 * MB)
_WEIGHT: Final = 400
#: The names of actors that are not stored, and of kinds of actors whose id says nothing.
_FIXED: Final = {"python": "Python program", "wakeful": "Wakeful", "system": "Wakeful", "hook": "trigger URL"}
#: The kinds of actors whose id is the name.
_NAMED: Final = frozenset({"jwt", "user", "setting", "agent", "event"})


class ActorNames:
    """Reads the names of stored actors."""

    def __init__(self, store: Store) -> None:
        self._readers: dict[str, NamesReader] = {
            "key": store.key_names,
            "person": store.person_names,
            "run": store.run_agents,  # an agent that called its tool in a run
        }
        #: actors that this database does not have: they are not looked up again
        self._unknown: BoundedCache[str, bool] = BoundedCache(MB)

    async def load(self, actors: Iterable[str | None]) -> None:
        """Read the names of these actors that are not known yet, so that `actor_name` returns them."""
        wanted: dict[str, set[str]] = {}
        for actor in actors:
            if not actor:
                continue
            plain = without_role(actor)
            kind, _, id = plain.partition(":")
            if id and kind in self._readers and _known.get(plain) is None and not self._unknown.get(plain):
                wanted.setdefault(kind, set()).add(id)
        for kind, ids in wanted.items():
            found = await self._readers[kind](sorted(ids))
            for id in ids:
                actor = f"{kind}:{id}"
                if id in found:
                    remember_name(actor, found[id])
                else:
                    self._unknown.put(actor, True, _WEIGHT)


def remember_name(actor: str, name: str) -> None:
    """Keep the name of an actor that was just read or made."""
    _known.put(actor, name, _WEIGHT + len(name))


def without_role(actor: str) -> str:
    """Return the actor of a creator.

    >>> without_role("admin:key:1f"), without_role("key:1f"), without_role("agent:default")
    ('key:1f', 'key:1f', 'agent:default')
    """
    role, _, rest = actor.partition(":")
    return rest if role in ROLES and (":" in rest or rest in _FIXED) else actor


def actor_key(actor: str | None) -> str | None:
    """Return the id of the key that an actor is; None: it is no key.

    >>> actor_key("admin:key:1f"), actor_key("jwt:ada")
    ('1f', None)
    """
    kind, _, id = without_role(actor or "").partition(":")
    return id if kind == "key" and id else None


def actor_name(actor: str | None) -> str | None:
    """Return the name of an actor; None: it has none, or it was not loaded.

    >>> actor_name("admin:python"), actor_name("jwt:ada"), actor_name("hook:4Zk"), actor_name("key:no")
    ('Python program', 'ada', 'trigger URL', None)
    """
    if not actor:
        return None
    plain = without_role(actor)
    kind, _, id = plain.partition(":")
    if kind in _FIXED:
        return _FIXED[kind]
    return id if id and kind in _NAMED else _known.get(plain)


def subject_actor(action: str, subject: str) -> str:
    """Return the subject of an audit entry as an actor: a key or person, or what has no name.

    >>> subject_actor("key.create", "1f"), subject_actor("person.sign-in", "person:2e")
    ('key:1f', 'person:2e')
    """
    return f"key:{subject}" if action.startswith("key.") else subject


def subject_name(action: str, subject: str) -> str | None:
    """Return the name of the subject of an audit entry; None: it is no key or person."""
    actor = subject_actor(action, subject)
    return actor_name(actor) if actor.startswith(("key:", "person:")) else None
