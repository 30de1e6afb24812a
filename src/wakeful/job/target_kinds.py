"""The kinds of targets. A kind is one declaration here and a launcher; every list of kinds follows."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Final, Literal, NamedTuple

from wakeful.values.json_value import Json


class TargetField(NamedTuple):
    """A field of targets of one kind, as the form of the dashboard shows it."""

    name: str
    label: str
    form: Literal["line", "text", "number", "choice", "json", "lines", "pairs", "headers"] = "line"
    hint: str = ""
    placeholder: str = ""
    #: of a choice
    words: tuple[str, ...] = ()


class CheckFields(NamedTuple):
    """The fields of a precheck, or of a check of the work, that targets of one kind make."""

    #: the first is required
    names: tuple[str, ...]
    #: what is required, with an example for a precheck and for a check of the work
    precheck: str
    verify: str
    #: whether what is required is text; its launcher validates other values
    is_text: bool = True


class TargetKind(NamedTuple):
    """A kind of target: where runs go. Its launcher validates the values of its fields."""

    name: str
    #: for people who choose one
    title: str
    #: its page in docs, as docs/reference links to it
    page: str
    #: its form in the dashboard; None: a target of this kind is edited as JSON
    fields: tuple[TargetField, ...] | None = None
    #: where it goes, in lists: its fields; left out if the first of them is not set
    shown: str = ""
    #: what an attempt is in a trace: a request, a message, or work in this process
    span: Literal["client", "producer", "internal"] = "internal"
    #: whether no code of users runs in the process of an attempt
    only_sends: bool = False
    #: whether the target reports the end of a run through a broker
    is_broker: bool = False
    #: whether its requests are signed with the secret of the job or the agent, and a test sends one
    is_signed: bool = False
    #: whether its runs continue a conversation: a message is added to the payload
    converses: bool = False
    #: whether jobs of an agent's key may always have it
    is_harmless: bool = False
    #: what it checks before or after runs; None: it cannot be used as a check
    check: CheckFields | None = None
    #: what a test says that launches nothing
    test_text: str = "its fields are valid; a test does not launch it"


_HEADERS: Final = TargetField(
    "headers", "Headers", "headers", "One per line, as in x-team: news.", "x-team: news"
)

TARGET_KINDS: Final = {
    kind.name: kind
    for kind in (
        TargetKind(
            "webhook",
            "Webhook: a signed request to a URL",
            "../how-to/webhook.md",
            (
                TargetField("url", "URL", placeholder="https://example.com/hook"),
                _HEADERS,
                TargetField(
                    "completion",
                    "Completion",
                    "choice",
                    "callback: the run stays running until a request completes it.",
                    words=("response", "callback"),
                ),
            ),
            "{url}",
            "client",
            only_sends=True,
            is_signed=True,
            check=CheckFields(
                ("url", "headers"),
                "a url, such as 'https://example.com/any'",
                "a url, such as 'https://example.com/is-published'",
            ),
        ),
        TargetKind(
            "function",
            "Function: Python code in a process",
            "../how-to/function.md",
            (TargetField("name", "Function", placeholder="digest"),),
            "{name}",
            check=CheckFields(("name",), "a name, such as 'anything-new'", "a name, such as 'is-published'"),
        ),
        TargetKind(
            "agent",
            "Agent: a signal to an agent class",
            "python.md#agent-classes",
            (
                TargetField("instance", "Instance", placeholder="default"),
                TargetField("signal", "Signal", placeholder="wakeful.job"),
            ),
            "{signal} → {instance}",
            is_harmless=True,
        ),
        TargetKind(
            "command",
            "Command: a program on the server",
            "../how-to/command.md",
            (
                TargetField(
                    "argv",
                    "Program and arguments",
                    "lines",
                    "One per line. There is no shell.",
                    "/usr/local/bin/report\n--daily",
                ),
                TargetField("env", "Environment", "pairs", "One variable per line, as in NAME=value."),
                TargetField("cwd", "Directory", placeholder="/srv"),
            ),
            "{argv}",
            check=CheckFields(
                ("argv", "env", "cwd"),
                'an argv, such as ["/usr/local/bin/any-mail"]',
                'an argv, such as ["/usr/local/bin/is-published"]',
                is_text=False,
            ),
            test_text="the operator allows this command; a test does not run it",
        ),
        TargetKind(
            "chat",
            "Chat: a turn of a model",
            "../how-to/chat.md",
            (
                TargetField("url", "Endpoint", placeholder="https://api.openai.com/v1"),
                TargetField("model", "Model", placeholder="gpt-5-mini"),
                TargetField(
                    "key",
                    "Key",
                    hint="The name of an API key of the operator, as in WAKEFUL_CHAT_KEY_OPENAI; never the "
                    "key.",
                    placeholder="openai",
                ),
                TargetField("system", "Instructions", "text"),
                TargetField("continuity", "Continuity", "choice", words=("output", "session", "none")),
                TargetField("temperature", "Temperature", "number"),
                TargetField("maxTokens", "Max tokens", "number"),
                TargetField("contextWindow", "Context window", "number"),
                TargetField("maxSteps", "Max rounds of tool calls", "number", placeholder="8"),
                TargetField("tools", "May schedule work", "choice", words=("true", "false")),
                TargetField("options", "Further fields of the request", "json", placeholder='{"top_p": 0.9}'),
            ),
            "{model} at {url}",
            "client",
            converses=True,
            test_text="the endpoint, the model and the key are configured, and the key may be sent to this "
            "endpoint; a test does not call the model",
        ),
        TargetKind(
            "queue",
            "Queue: a message in NATS JetStream",
            "../how-to/queue.md",
            (
                TargetField(
                    "subject",
                    "Subject",
                    hint="The operator allows subjects. Empty: that of the workspace, for wakeful worker "
                    "--nats.",
                    placeholder="reports.daily",
                ),
                TargetField("function", "Function", hint="Empty: that of the name of the job."),
                TargetField("stream", "Stream", hint="Empty: the stream that has the subject."),
                _HEADERS,
            ),
            "{subject}",
            "producer",
            only_sends=True,
            is_broker=True,
        ),
        TargetKind(
            "celery",
            "Celery: a task of a Celery app",
            "../how-to/celery.md",
            (
                TargetField("task", "Task", placeholder="app.tasks.add"),
                TargetField("args", "Arguments", "json", placeholder="[1, 2]"),
                TargetField("kwargs", "Keyword arguments", "json", placeholder='{"to": "me"}'),
                TargetField("queue", "Queue", placeholder="celery"),
                TargetField("options", "Further options", "json", placeholder='{"priority": 5}'),
                TargetField(
                    "app", "App", hint="Empty: any Celery app of a running process.", placeholder="shop"
                ),
            ),
            "{task}",
            "producer",
            only_sends=True,
            is_broker=True,
        ),
        TargetKind(
            "workflow",
            "Workflow: a stored DAG",
            "../how-to/workflow.md",
            (
                TargetField("workflowId", "Workflow"),
                TargetField("version", "Version", "number"),
                TargetField("userId", "User"),
                TargetField(
                    "to", "Target of the DAG", "json", placeholder='{"kind": "webhook", "url": "https://…"}'
                ),
            ),
            "{workflowId}",
        ),
        TargetKind(
            "echo",
            "Echo: succeeds at once, to try out schedules",
            "../how-to/echo.md",
            (),
            only_sends=True,
            is_harmless=True,
            test_text="each run succeeds at once, with its message or payload as output",
        ),
        TargetKind(
            "pull",
            "Pull: an executor claims the runs",
            "../how-to/pull.md",
            (TargetField("claimTimeoutMs", "Claim timeout in ms", "number", placeholder="3600000"),),
            span="producer",
            is_harmless=True,
        ),
    )
}
#: The internal kind of the jobs that deliver MCP events.
EVENT: Final = "event"
#: The kinds whose runs end when a broker reports it.
BROKER_KINDS: Final = tuple(name for name, kind in TARGET_KINDS.items() if kind.is_broker)
#: The kinds that checks before and after runs can have.
CHECK_KINDS: Final = {name: kind.check for name, kind in TARGET_KINDS.items() if kind.check is not None}
_LINKS: Final = [f"[`{kind.name}`]({kind.page})" for kind in TARGET_KINDS.values()]
#: All kinds in a sentence, with links to their pages.
LINKED_KINDS: Final = f"{', '.join(_LINKS[:-1])} or {_LINKS[-1]}"


def find_kind(target: Mapping[str, Json] | None) -> TargetKind | None:
    """Return the kind of a target; None: there is no target, or its kind is internal."""
    return None if target is None else TARGET_KINDS.get(str(target.get("kind")))


def describe_target(target: Mapping[str, Json]) -> str:
    """Return a target in a few words: its kind, and where it goes.

    >>> describe_target({"kind": "command", "argv": ["/usr/local/bin/report", "--daily"]})
    'command /usr/local/bin/report'
    >>> describe_target({"kind": "agent", "signal": "report.due"}), describe_target({"kind": "pull"})
    ('agent report.due → default', 'pull')
    """
    kind = find_kind(target)
    where = ""
    if kind is not None and kind.shown:
        defaults = {each.name: each.placeholder for each in kind.fields or ()}
        names = [name for _, name, _, _ in Formatter().parse(kind.shown) if name]
        if target.get(names[0]):
            where = kind.shown.format_map({name: _text(target.get(name) or defaults[name]) for name in names})
    return f"{target.get('kind')} {where}".rstrip()


def _text(value: Json) -> str:
    return str(value[0] if isinstance(value, list) else value)
