"""The answer of a precheck: whether to launch, and the context, state and `once` that it returns. Pure.

`context` is added to what the run carries. `state` is kept for the next precheck of the job: it is written in
the transaction that writes the outcome, if the run succeeds or is skipped. `once` disables the job when the
run succeeds. Both are dropped if the job was edited, or got another state, after the check began
(`Checked.revision`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json, compact, json_text, quote

#: The largest context and the largest state that a precheck may return, in bytes of JSON.
MAX_BYTES: Final = 16 * 1024
#: Why a job is disabled whose precheck returned `once`.
ONCE: Final = "once"
#: The field of a context with the run that a follow-up run comes after.
_UPSTREAM: Final = "upstream"


class PrecheckAnswer(NamedTuple):
    """What a precheck answered."""

    #: whether to launch the run; else it is skipped, for this reason
    run: bool
    reason: str = ""
    #: compact JSON that is added to what the run carries
    context: str | None = None
    #: compact JSON for the next precheck; None: there is no state any more
    state: str | None = None
    #: whether the answer has a state; else the stored one stays
    sets_state: bool = False
    #: disable the job when this run succeeds
    once: bool = False


class Checked(NamedTuple):
    """What the outcome of a checked run changes at its job."""

    #: the revision of the job when the check began; at another one, nothing is changed
    revision: int
    #: the new state, if `sets_state`
    state: str | None = None
    sets_state: bool = False
    #: disable the job if the run succeeds
    once: bool = False

    @property
    def changes(self) -> bool:
        """Whether there is anything to change."""
        return self.sets_state or self.once


class Watch(NamedTuple):
    """What a run and its job hold of prechecks, as a launch gets it."""

    #: compact JSON of the context of the run
    context: str | None = None
    #: compact JSON of the state that the last precheck left, and the revision of the job
    state: str | None = None
    revision: int = 0
    #: what the precheck of this run decided
    checked: Checked | None = None


def read_answer(value: Mapping[str, object]) -> PrecheckAnswer:
    """Return the answer of a precheck. Raises InvalidArgument that says which field is wrong.

    >>> read_answer({"run": True, "context": {"price": 90}, "state": 90})
    PrecheckAnswer(run=True, reason='', context='{"price":90}', state='90', sets_state=True, once=False)
    >>> read_answer({"run": "yes"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: run: 'yes' is not true or false
    """
    run, reason, once = value.get("run"), value.get("reason"), value.get("once")
    if not isinstance(run, bool):
        what = "it is missing; write true or false" if run is None else f"{quote(run)} is not true or false"
        raise InvalidArgument(f"run: {what}")
    if once is not None and not isinstance(once, bool):
        raise InvalidArgument(f"once: {quote(once)} is not true or false")
    return PrecheckAnswer(
        run,
        reason if isinstance(reason, str) else "",
        _json(value, "context"),
        _json(value, "state"),
        "state" in value,
        once is True,
    )


def _json(value: Mapping[str, object], name: str) -> str | None:
    """Return a field as compact JSON; None if it is absent or null."""
    if value.get(name) is None:
        return None
    try:
        return json_text(value[name], MAX_BYTES)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error.message}") from error


def apply_answer(answer: PrecheckAnswer, watch: Watch) -> Checked:
    """Return what the outcome changes. A state that is equal to the stored one is not written again.

    >>> apply_answer(PrecheckAnswer(True, state="90", sets_state=True), Watch(state="90", revision=5))
    Checked(revision=5, state=None, sets_state=False, once=False)
    """
    if answer.sets_state and answer.state != watch.state:
        return Checked(watch.revision, answer.state, True, answer.once)
    return Checked(watch.revision, once=answer.once)


def check_to_text(checked: Checked) -> str:
    """Return what a check decided as stored text.

    >>> check_to_text(Checked(5, '{"a":1}', True)), check_to_text(Checked(5))
    ('{"revision":5,"state":{"a":1}}', '{"revision":5}')
    """
    state = f',"state":{checked.state or "null"}' if checked.sets_state else ""
    once = ',"once":true' if checked.once else ""
    return f'{{"revision":{checked.revision}{state}{once}}}'


def check_from_text(text: str) -> Checked:
    """Return what `check_to_text` wrote.

    >>> check_from_text('{"revision":5,"state":null,"once":true}')
    Checked(revision=5, state=None, sets_state=True, once=True)
    """
    value = json.loads(text)
    state = value.get("state")
    return Checked(
        value["revision"],
        None if state is None else compact(state),
        "state" in value,
        value.get("once", False),
    )


def merge_contexts(old: str | None, new: str | None) -> str | None:
    """Return both contexts as one. The newer wins; a text or a list beside an object is its `precheck`.

    >>> merge_contexts('{"upstream":{"job":"a"}}', '{"price":90}')
    '{"upstream":{"job":"a"},"price":90}'
    >>> merge_contexts('{"upstream":{"job":"a"}}', '"3 new mails"')
    '{"upstream":{"job":"a"},"precheck":"3 new mails"}'
    """
    if old is None or new is None:
        return old if new is None else new
    before, after = json.loads(old), json.loads(new)
    if not isinstance(before, dict):
        return new
    return compact({**before, **(after if isinstance(after, dict) else {"precheck": after})})


def context_before(context: str | None) -> str | None:
    """Return the context that a run had before its precheck: the run that it follows (`after.output`).

    >>> context_before('{"upstream":{"job":"a"},"price":90}'), context_before('{"price":90}')
    ('{"upstream":{"job":"a"}}', None)
    """
    value: Json = None if context is None else json.loads(context)
    if not isinstance(value, dict) or _UPSTREAM not in value:
        return None
    return compact({_UPSTREAM: value[_UPSTREAM]})


def with_context(payload: str | None, context: str) -> str:
    """Return the payload of a run that has a context, as compact JSON.

    >>> with_context('{"to":"me"}', '{"price":90}'), with_context(None, '{"price":90}')
    ('{"to":"me","context":{"price":90}}', '{"context":{"price":90}}')
    >>> with_context("[1]", '"new"')
    '{"payload":[1],"context":"new"}'
    """
    value: Json = None if payload is None else json.loads(payload)
    if value is None or value == {}:
        return f'{{"context":{context}}}'
    if not isinstance(value, dict):
        return f'{{"payload":{payload},"context":{context}}}'
    if "context" in value:
        return compact({**value, "context": json.loads(context)})
    return f'{str(payload)[:-1]},"context":{context}}}'  # the rest stays byte for byte
