"""The kinds of targets. Every list of kinds follows from here."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class TargetKind(NamedTuple):
    """A kind of target: where runs go. Its launcher validates its other fields and launches its runs."""

    name: str
    #: for people who choose one
    title: str
    #: its page in docs, as docs/reference links to it
    page: str
    #: what an attempt is in a trace: a request, a message, or work in this process
    span: Literal["client", "producer", "internal"] = "internal"
    #: whether no code of users runs in the process of an attempt
    only_sends: bool = False
    #: whether the target reports the end of a run through a broker
    is_broker: bool = False


TARGET_KINDS: Final = {
    kind.name: kind
    for kind in (
        TargetKind(
            "webhook", "Webhook: a signed request to a URL", "../how-to/webhook.md", "client", only_sends=True
        ),
        TargetKind("function", "Function: Python code in a process", "../how-to/function.md"),
        TargetKind("agent", "Agent: a signal to an agent class", "python.md#agent-classes"),
        TargetKind("command", "Command: a program on the server", "../how-to/command.md"),
        TargetKind("chat", "Chat: a turn of a model", "../how-to/chat.md", "client"),
        TargetKind(
            "queue",
            "Queue: a message in NATS JetStream",
            "../how-to/queue.md",
            "producer",
            only_sends=True,
            is_broker=True,
        ),
        TargetKind(
            "celery",
            "Celery: a task of a Celery app",
            "../how-to/celery.md",
            "producer",
            only_sends=True,
            is_broker=True,
        ),
        TargetKind("workflow", "Workflow: a stored DAG", "../how-to/workflow.md"),
        TargetKind(
            "echo", "Echo: succeeds at once, to try out schedules", "../how-to/echo.md", only_sends=True
        ),
        TargetKind("pull", "Pull: an executor claims the runs", "../how-to/pull.md", "producer"),
    )
}
#: The kinds whose runs end when a broker reports it.
BROKER_KINDS: Final = tuple(name for name, kind in TARGET_KINDS.items() if kind.is_broker)
_LINKS: Final = [f"[`{kind.name}`]({kind.page})" for kind in TARGET_KINDS.values()]
#: All kinds in a sentence, with links to their pages.
LINKED_KINDS: Final = f"{', '.join(_LINKS[:-1])} or {_LINKS[-1]}"
