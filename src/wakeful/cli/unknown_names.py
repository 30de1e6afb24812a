"""Errors for unknown agents and jobs that name similar ones: "did you mean".

The names come from the server with the caller's own key, so they are only names that the key may see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from wakeful.client.rest import RestClient
from wakeful.errors import NotFound, WakefulError

#: A word may have one typing error per this many characters, and at most `_MAX_ERRORS`.
_CHARACTERS_PER_ERROR: Final = 3
_MAX_ERRORS: Final = 2
#: A shorter name is not looked for inside other names.
_MIN_PART: Final = 3
_NUMBER: Final = re.compile(r"-?[0-9]+")
#: How many jobs are compared with an unknown name.
_MAX_JOBS: Final = 1_000


def suggestions(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return the known names that resemble `name`, the most similar first; else those that contain it.

    >>> suggestions("digset", ["digest", "daily-digest", "backup"])
    ['digest']
    >>> suggestions("digest", ["daily-digest", "backup"])
    ['daily-digest']
    >>> suggestions("worker-3", ["worker-1", "worker-2"])
    []
    """
    others = sorted(set(known) - {name})
    similar = [other for other in others if resembles(name, other)]
    if not similar and len(name) >= _MIN_PART:
        similar = [other for other in others if name in other and not _differ_in_digits(name, other)]
    return sorted(similar, key=lambda other: (edit_distance(name, other), other))[:limit]


def resembles(name: str, other: str) -> bool:
    """Return whether one name can be a typing error of the other.

    Names that differ only in digits do not resemble each other. Names with as many words are compared word
    by word, so that a short word such as `eu` is not taken for `us`.

    >>> resembles("wirter", "writer"), resembles("dailyreport", "daily-report")
    (True, True)
    >>> resembles("worker-1", "worker-2"), resembles("sales-eu", "sales-us"), resembles("writer", "backup")
    (False, False, False)
    """
    if name == other or _differ_in_digits(name, other):
        return False
    words, others = name.split("-"), other.split("-")
    if len(words) == len(others):
        return all(map(_similar, words, others))
    return _similar(name, other)


def did_you_mean(names: Sequence[str]) -> str:
    """Return the question that offers these names.

    >>> did_you_mean(["digest", "writer/digest"])
    "did you mean 'digest' or 'writer/digest'?"
    """
    return f"did you mean {' or '.join(repr(name) for name in names)}?"


def edit_distance(one: str, other: str) -> int:
    """Return how many insertions, deletions, replacements and swaps of neighbours lead from one to the other.

    >>> edit_distance("digset", "digest"), edit_distance("report", "reports"), edit_distance("a", "")
    (1, 1, 1)
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, char in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, other_char in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != other_char))
            if i > 1 and j > 1 and char == other[j - 2] and one[i - 2] == other_char:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _similar(word: str, other: str) -> bool:
    allowed = min(max(len(word), len(other)) // _CHARACTERS_PER_ERROR, _MAX_ERRORS)
    if abs(len(word) - len(other)) > allowed:
        return False
    return edit_distance(word, other) <= allowed


def _differ_in_digits(name: str, other: str) -> bool:
    return _NUMBER.sub("", name).strip("-") == _NUMBER.sub("", other).strip("-")


class NamedObject(NamedTuple):
    """An agent, or a job of it, that a command names."""

    agent: str
    job: str | None = None


class UnknownName(NotFound):
    """An error that names the similar objects already."""


async def add_suggestion(client: RestClient, error: NotFound, named: Iterable[NamedObject]) -> NotFound:
    """Return the error with the similar names, if it is about one of these objects; else as it is."""
    if isinstance(error, UnknownName):
        return error
    try:
        for each in named:
            if any(f"'{name}'" in error.message for name in each if name):
                sentence = await _sentence(client, each)
                if sentence is not None:
                    return UnknownName(sentence)
    except WakefulError:  # the first error is the one to report
        pass
    return error


async def check_new_agents(client: RestClient, agents: Iterable[str], *, create: bool = False) -> None:
    """Raise UnknownName if one of the agents does not exist and resembles one that does, unless `create`."""
    for agent in sorted(set(agents) - {"default"}):
        if create or await _exists(client, agent):
            continue
        similar = [name for name in suggestions(agent, await _agents(client)) if resembles(agent, name)]
        if similar:
            raise UnknownName(
                f"no agent '{agent}'; {did_you_mean(similar)} To create the agent '{agent}', "
                "add --create-agent"
            )


async def _sentence(client: RestClient, named: NamedObject) -> str | None:
    agents = await _agents(client)
    if named.agent not in agents:
        similar = suggestions(named.agent, agents)
        if not similar and named.job is None:
            return None
        offer = did_you_mean(similar) if similar else "`wakeful agents list` shows all agents"
        return f"no agent '{named.agent}'; {offer}"
    if named.job is None:
        return None
    own = [job["name"] for job in await client.list_every_job(named.agent, at_most=_MAX_JOBS)]
    found = suggestions(named.job, own)
    if not found:
        jobs = await client.list_every_job(at_most=_MAX_JOBS)
        of_others = [job for job in jobs if job["agentId"] != named.agent]
        names = suggestions(named.job, [job["name"] for job in of_others])
        wanted = [named.job] if any(job["name"] == named.job for job in of_others) else names
        found = _full_names(wanted, [(job["agentId"], job["name"]) for job in of_others])
    return f"no job '{named.job}' of the agent '{named.agent}'; {did_you_mean(found)}" if found else None


def _full_names(names: Sequence[str], jobs: Sequence[tuple[str, str]], limit: int = 3) -> list[str]:
    return [f"{agent}/{name}" for wanted in names for agent, name in jobs if name == wanted][:limit]


async def _exists(client: RestClient, agent: str) -> bool:
    try:
        await client.get_agent(agent)
    except NotFound:
        return False
    return True


async def _agents(client: RestClient) -> list[str]:
    return [agent["name"] for agent in await client.list_agents()]
