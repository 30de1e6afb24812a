"""The target of a job document: where its runs go, in each of its forms.

A target is an object with a `kind`. Its launcher validates the rest, except for the URL of a webhook, the
fields of a workflow, and those of an agent class, which are validated here. A document can also use
short forms: `webhookUrl` is `{"kind": "webhook", "url": …}`, and `workflowId`, `version` and `userId` are
fields of `{"kind": "workflow", …}`. A workflow passes its DAG to another target, its `to`: a document with a
`workflowId` and a webhook is a workflow that goes *to* that webhook.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from wakeful.document import fields
from wakeful.document.fields import MAX_MESSAGE, MAX_URL
from wakeful.document.reading import NamedValue, Problems
from wakeful.errors import InvalidArgument
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.signal.signals import check_type
from wakeful.values.instance_names import check_instance
from wakeful.values.json_value import Json, camel_keys, json_object, list_choices, quote, refuse

Target = Mapping[str, Json]

#: The kind of target that is an instance of the class of the job's agent.
AGENT_KIND: Final = "agent"
_AGENT_FIELDS: Final = ("kind", "instance", "signal")
_WORKFLOW: Final = {field.name: field.kind for field in fields.WORKFLOW}
TARGET_FIELDS: Final = ("target", "webhookUrl", *_WORKFLOW)
_REQUIRED: Final = {"workflowId": "such as 'invoices'", "version": "such as 3"}
_UNSPACED: Final = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]+")


def read_targets(values: Mapping[str, NamedValue], old: Target | None, problems: Problems) -> Target | None:
    """Return the target from the fields that can define it; the old one if the document has none of them.

    A null removes what its field defines. Two fields that define the same thing must agree.

    >>> read_targets({"webhookUrl": NamedValue("webhookUrl", "https://a.example")}, None, Problems())
    {'kind': 'webhook', 'url': 'https://a.example'}
    """
    target = old
    if "target" in values:
        target = None
        with problems.of("target"):
            target = read_target(values["target"].value)
        if "target" in problems:  # the short forms cannot be compared with an invalid target
            return None
    stated = target if "target" in values else None
    workflow, executor = _split(target)
    if "webhookUrl" in values:
        with problems.of("webhookUrl"):
            executor = _with_url(executor, values["webhookUrl"].value, stated)
    workflow = _with_workflow(workflow, values, stated, problems)
    if workflow is None:
        return executor
    for name, example in _REQUIRED.items():
        if name not in workflow and name not in problems:
            problems.add(name, f"it is missing; a workflow needs it, {example}")
    return {"kind": "workflow", **workflow, **({} if executor is None else {"to": dict(executor)})}


def workflow_fields(target: Target | None) -> dict[str, Json]:
    """Return the short forms of a workflow target; empty for other targets.

    >>> workflow_fields({"kind": "workflow", "workflowId": "invoices", "version": 3})
    {'workflowId': 'invoices', 'version': 3, 'userId': None}
    """
    workflow, _ = _split(target)
    return {} if workflow is None else {name: workflow.get(name) for name in _WORKFLOW}


def read_target(value: object) -> Target | None:
    """Return a target from one object, or None for null."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        refuse(f'{quote(value)} is not an object; write {{"kind": "webhook", "url": "https://…"}}')
    target = json_object(value, MAX_MESSAGE)
    kind = target.get("kind")
    if not isinstance(kind, str) or kind not in TARGET_KINDS:
        what = "it has no kind" if kind is None else f"the kind {quote(kind)} is not known"
        if kind == "channel":
            what = "a channel receives alerts and deliveries, and cannot be the target of a job"
        refuse(f"{what}; it is {list_choices(TARGET_KINDS)}")
    if kind == "webhook":
        check_url(target.get("url"))
    if kind == AGENT_KIND:
        _check_agent(target)
    if kind == "chat":
        return _read_chat(target)
    return _read_workflow(target) if kind == "workflow" else target


def _read_chat(target: dict[str, Json]) -> Target:
    """Return a chat target with the name of its API key in one form: `MY_KEY` is `my-key`."""
    chat = camel_keys(target)
    if "apiKey" in chat:
        if "key" in chat:
            refuse("key: it is given as apiKey too; give one of the two")
        chat["key"] = chat.pop("apiKey")
    key = chat.get("key")
    if isinstance(key, str):
        chat["key"] = key.lower().replace("_", "-")
    return chat


def _check_agent(target: dict[str, Json]) -> None:
    unknown = [name for name in target if name not in _AGENT_FIELDS]
    if unknown:
        refuse(f"an agent target has no {quote(unknown[0])}; it has instance and signal, both optional")
    instance, signal = target.get("instance"), target.get("signal")
    if instance is not None:
        if not isinstance(instance, str):
            refuse(f"instance: {quote(instance)} is not text; give the name of an instance, such as 'eu'")
        target["instance"] = check_instance(instance)
    if signal is not None:
        try:
            check_type(signal)
        except InvalidArgument as error:
            refuse(f"signal: {error.message.removeprefix('type: ')}")


def _read_workflow(target: dict[str, Json]) -> Target:
    workflow = camel_keys(target)
    for name, read in _WORKFLOW.items():
        if name in workflow:
            try:
                workflow[name] = read(workflow[name])
            except InvalidArgument as error:
                refuse(f"{name}: {error.message}")
    if "to" in workflow:
        to = read_target(workflow["to"])
        if to is not None and to["kind"] == "workflow":
            refuse("a workflow cannot go to another workflow; as 'to', give what runs its DAG")
        if to is not None and to["kind"] == AGENT_KIND:
            refuse("a workflow cannot go to an agent class; as 'to', give what runs its DAG")
    return workflow


def _split(target: Target | None) -> tuple[dict[str, Json] | None, Target | None]:
    """Return the workflow of a target, if it is one, and the target that executes the run."""
    if target is None or target["kind"] != "workflow":
        return None, target
    to = target.get("to")
    workflow = {key: item for key, item in target.items() if key not in ("kind", "to")}
    return workflow, to if isinstance(to, dict) else None


def _with_url(executor: Target | None, url: object, stated: Target | None) -> Target | None:
    webhook = dict(executor) if executor is not None and executor["kind"] == "webhook" else None
    if url is None:
        return executor if webhook is None else None
    address = check_url(url)
    if stated is not None and executor is not None and (webhook or {}).get("url") != address:
        refuse("the document has a different target too; give one of the two")
    return {**(webhook or {}), "kind": "webhook", "url": address}


def _with_workflow(
    workflow: dict[str, Json] | None,
    values: Mapping[str, NamedValue],
    stated: Target | None,
    problems: Problems,
) -> dict[str, Json] | None:
    if "workflowId" in values and values["workflowId"].value is None:
        workflow = None
    for name, read in _WORKFLOW.items():
        value = values[name].value if name in values else None
        if value is not None:
            workflow = {} if workflow is None else workflow
            with problems.of(name):
                item = read(value)
                if stated is not None and workflow.get(name, item) != item:
                    refuse(f"{quote(value)} is not what the target has, {quote(workflow[name])}; give one")
                workflow[name] = item
        elif name in values and workflow is not None:
            workflow.pop(name, None)
    return workflow


def check_url(url: object) -> str:
    """Return the URL of a webhook if it is valid. Its address is checked when a launch connects to it."""
    example = "give one such as 'https://example.com/hook'"
    if not isinstance(url, str) or not url:
        refuse(f"{'the url is missing' if url is None else f'{quote(url)} is not a url'}; {example}")
    if len(url) > MAX_URL:
        refuse(f"the url has {len(url)} characters; at most {MAX_URL}")
    if not _UNSPACED.fullmatch(url):
        refuse(f"{quote(url)} has a space or a control character in it; {example}")
    try:
        parts = urlsplit(url)
        found = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        found = False
    if not found:
        refuse(f"{quote(url)} is not an http or https address; {example}")
    return url
