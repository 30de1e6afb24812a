"""What a turn needs of the rest of Wakeful: tools, and what was said before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from wakeful.job.job import Json
from wakeful.launch.port import Launch


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that is offered to the model."""

    name: str
    description: str
    #: the JSON schema of its arguments
    parameters: Mapping[str, Json]


class ChatTools(Protocol):
    """The tools of the agent of a run."""

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return what the model may call."""
        ...

    async def call(self, run: Launch, name: str, arguments: Mapping[str, object], key: str) -> str:
        """Perform a call with the rights of the agent of the run. Returns the result, or the error, as text.

        A call with this key is performed once in this run, so that the next attempt changes nothing twice.
        """
        ...


class Said(NamedTuple):
    """An entry of a conversation."""

    role: Literal["user", "assistant"]
    content: str
    #: of an answer that a job added to the conversation: the job
    job: str | None = None


class PreviousAnswer(NamedTuple):
    """What the previous successful run of a job answered."""

    text: str
    scheduled_ms: int


class Conversations(Protocol):
    """What was said before, and the time zone of an agent."""

    async def zone(self, run: Launch) -> str:
        """Return the time zone of the agent of the run."""
        ...

    async def previous_answer(self, run: Launch) -> PreviousAnswer | None:
        """Return the last answer of earlier runs of the job that was not suppressed."""
        ...

    async def history(self, run: Launch, session: str) -> Sequence[Said]:
        """Return the history of a session of the agent, oldest first."""
        ...
