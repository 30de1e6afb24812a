"""Errors for unknown agents and jobs that name similar ones.

The names come from the server with the caller's own key, so they are only names that the key may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from wakeful.cli.suggestions import did_you_mean, resembles, suggestions
from wakeful.client.rest import RestClient
from wakeful.errors import NotFound, WakefulError

#: How many jobs are compared with an unknown name.
_MAX_JOBS: Final = 1_000


class NamedObject(NamedTuple):
    """An agent, or a job of it, that a command names."""

    agent: str
    job: str | None = None


class UnknownName(NotFound):
    """An error that names the similar objects already."""


async def with_suggestion(client: RestClient, error: NotFound, named: Iterable[NamedObject]) -> NotFound:
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
    own = [job["name"] for job in await client.jobs.of(named.agent).list(at_most=_MAX_JOBS)]
    found = suggestions(named.job, own)
    if not found:
        jobs = await client.jobs.list(all_agents=True, at_most=_MAX_JOBS)
        of_others = [job for job in jobs if job["agentId"] != named.agent]
        names = suggestions(named.job, [job["name"] for job in of_others])
        wanted = [named.job] if any(job["name"] == named.job for job in of_others) else names
        found = _qualified(wanted, [(job["agentId"], job["name"]) for job in of_others])
    return f"no job '{named.job}' of the agent '{named.agent}'; {did_you_mean(found)}" if found else None


def _qualified(names: Sequence[str], jobs: Sequence[tuple[str, str]], limit: int = 3) -> list[str]:
    return [f"{agent}/{name}" for wanted in names for agent, name in jobs if name == wanted][:limit]


async def _exists(client: RestClient, agent: str) -> bool:
    try:
        await client.agents.get(agent)
    except NotFound:
        return False
    return True


async def _agents(client: RestClient) -> list[str]:
    return [agent["name"] for agent in await client.agents.list()]
