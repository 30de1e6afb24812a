"""The target of a job document: where its runs go, however it is written.

A target is an object with a `kind`; what else is in it, its launcher judges, all but the address of a
webhook and the workflow to load, which are too often wrong to be found out at the first run. Beside it a
document may spell out the common ones: `webhookUrl` is `{"kind": "webhook", "url": …}`, and `workflowId`,
`version` and `userId` are those of `{"kind": "workflow", …}`. A workflow hands its DAG to another target,
its `to`: so a document with a `workflowId` and a webhook is a workflow that goes *to* that webhook.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from wakeful.document.fields import MAX_MESSAGE
from wakeful.document.reading import Given, Problems
from wakeful.document.values import Reader, camel_keys, json_object, one_of, refuse, shown, text, whole
from wakeful.errors import InvalidArgument
from wakeful.job import Json

Target = Mapping[str, Json]

KINDS: Final = ("webhook", "function", "command", "chat", "queue", "celery", "workflow", "pull")
MAX_URL: Final = 2048
WORKFLOW: Final[dict[str, Reader]] = {
    "workflowId": text(255),
    "version": whole(1, 2**31 - 1),
    "userId": text(255),
}
TARGET_FIELDS: Final = ("target", "webhookUrl", *WORKFLOW)
_NEEDED: Final = {"workflowId": "such as 'invoices'", "version": "such as 3"}
_UNSPACED: Final = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]+")


def fold_target(given: Mapping[str, Given], old: Target | None, problems: Problems) -> Target | None:
    """The target that a document spells, in whichever of its fields; the old one, where it spells none.

    A null takes away what it names. What a document says twice must agree.

    >>> fold_target({"webhookUrl": Given("webhookUrl", "https://a.example")}, None, Problems())
    {'kind': 'webhook', 'url': 'https://a.example'}
    """
    target = old
    if "target" in given:
        target = None
        with problems.of("target"):
            target = read_target(given["target"].value)
        if "target" in problems:  # what stands beside it can be judged when it is right
            return None
    said = target if "target" in given else None
    workflow, executor = _apart(target)
    if "webhookUrl" in given:
        with problems.of("webhookUrl"):
            executor = _with_url(executor, given["webhookUrl"].value, said)
    workflow = _with_workflow(workflow, given, said, problems)
    if workflow is None:
        return executor
    for name, example in _NEEDED.items():
        if name not in workflow and name not in problems:
            problems.add(name, f"it is missing; a workflow needs it, {example}")
    return {"kind": "workflow", **workflow, **({} if executor is None else {"to": dict(executor)})}


def workflow_fields(target: Target | None) -> dict[str, Json]:
    """What a document of a workflow job says beside its target; nothing for any other.

    >>> workflow_fields({"kind": "workflow", "workflowId": "invoices", "version": 3})
    {'workflowId': 'invoices', 'version': 3, 'userId': None}
    """
    workflow, _ = _apart(target)
    return {} if workflow is None else {name: workflow.get(name) for name in WORKFLOW}


def read_target(value: object) -> Target | None:
    """A target as it is written in one object, or null."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        refuse(f'{shown(value)} is not an object; write {{"kind": "webhook", "url": "https://…"}}')
    target: dict[str, Json] = json_object(MAX_MESSAGE)(value)
    kind = target.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        what = "it has no kind" if kind is None else f"the kind {shown(kind)} is not known"
        if kind == "channel":
            what = "a channel is where alerts go, and no target of a job"
        refuse(f"{what}; it is {one_of(KINDS)}")
    if kind == "webhook":
        check_url(target.get("url"))
    return _read_workflow(target) if kind == "workflow" else target


def _read_workflow(target: dict[str, Json]) -> Target:
    workflow = camel_keys(target)
    for name, read in WORKFLOW.items():
        if name in workflow:
            try:
                workflow[name] = read(workflow[name])
            except InvalidArgument as error:
                refuse(f"{name}: {error.message}")
    if "to" in workflow:
        to = read_target(workflow["to"])
        if to is not None and to["kind"] == "workflow":
            refuse("a workflow cannot go to another workflow; as 'to', give what runs its DAG")
    return workflow


def _apart(target: Target | None) -> tuple[dict[str, Json] | None, Target | None]:
    """A target as the workflow that it loads, if it does, and the target that is handed the work."""
    if target is None or target["kind"] != "workflow":
        return None, target
    to = target.get("to")
    workflow = {key: item for key, item in target.items() if key not in ("kind", "to")}
    return workflow, to if isinstance(to, dict) else None


def _with_url(executor: Target | None, url: object, said: Target | None) -> Target | None:
    webhook = dict(executor) if executor is not None and executor["kind"] == "webhook" else None
    if url is None:
        return executor if webhook is None else None
    address = check_url(url)
    if said is not None and executor is not None and (webhook or {}).get("url") != address:
        refuse("there is a target too, and it is another one; give one of the two")
    return {**(webhook or {}), "kind": "webhook", "url": address}


def _with_workflow(
    workflow: dict[str, Json] | None, given: Mapping[str, Given], said: Target | None, problems: Problems
) -> dict[str, Json] | None:
    if "workflowId" in given and given["workflowId"].value is None:
        workflow = None
    for name, read in WORKFLOW.items():
        value = given[name].value if name in given else None
        if value is not None:
            workflow = {} if workflow is None else workflow
            with problems.of(name):
                item = read(value)
                if said is not None and workflow.get(name, item) != item:
                    refuse(f"{shown(value)} is not what the target says, {shown(workflow[name])}; give one")
                workflow[name] = item
        elif name in given and workflow is not None:
            workflow.pop(name, None)
    return workflow


def check_url(url: object) -> str:
    """The address of a webhook, if it can be one. Where it may lead is judged when it is connected to."""
    example = "give one such as 'https://example.com/hook'"
    if not isinstance(url, str) or not url:
        refuse(f"{'there is no url' if url is None else f'{shown(url)} is no url'}; {example}")
    if len(url) > MAX_URL:
        refuse(f"the url has {len(url)} characters; at most {MAX_URL}")
    if not _UNSPACED.fullmatch(url):
        refuse(f"{shown(url)} has a space or a control character in it; {example}")
    try:
        parts = urlsplit(url)
        found = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        found = False
    if not found:
        refuse(f"{shown(url)} is no http or https address; {example}")
    return url
