"""The request of an attempt, reconstructed from the run and its job. Pure.

Credentials are masked and signatures are left out, because the secret signs every later request too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from json import dumps
from typing import Final, NamedTuple

from wakeful.document import payload_to_text
from wakeful.job.job import Json, Work
from wakeful.launch.trace_context import launch_ids
from wakeful.run.prechecks import with_context
from wakeful.service.auth.masking import masked_document
from wakeful.store.rows import AttemptView, RunView
from wakeful.values.instants import iso_utc

_SIGNATURES: Final = ("x-wakeful-signature", "webhook-signature")
_COMPUTED: Final = "(computed from the secret of the job)"
#: The commands that compute the signature of the body in a shell.
_SIGNED: Final = (
    "SECRET='whsec_…'  # the secret of the job, which is shown when it is created or rotated\n"
    'KEY=$(printf %s "${SECRET#whsec_}" | base64 -d | od -An -v -tx1 | tr -d " \\n")\n'
    'SIGNATURE=$(printf %s "$BODY" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$KEY" -r'
    ' | cut -d" " -f1)\n'
)


class AttemptRequest(NamedTuple):
    """What an attempt sends to its target."""

    #: the kind of the target
    kind: str
    #: of a webhook: the address
    url: str | None
    headers: tuple[tuple[str, str], ...]
    #: of a webhook the body, of others the payload; None: there is none
    body: str | None
    #: the target, without credentials
    target: Mapping[str, Json]
    #: of a webhook: commands that send it again
    curl: str | None


def payload_of(run: RunView, work: Work | None, job_payload: str | None) -> str | None:
    """Return the payload that a run carries, as JSON: its own or that of its job, with its context."""
    payload = run.payload
    if payload is None:
        payload = job_payload if job_payload is not None or work is None else payload_to_text(work.body)
    return payload if run.context is None else with_context(payload, run.context)


def attempt_request(
    run: RunView, attempt: AttemptView, target: Mapping[str, Json], payload: str | None
) -> AttemptRequest:
    """Return the request of an attempt. The target is that of the job as it is now."""
    shown = masked_document({"name": run.job_name, "target": dict(target)})["target"]
    assert isinstance(shown, dict)
    kind = str(target.get("kind", "pull"))
    url = shown.get("url")
    if kind != "webhook" or not isinstance(url, str):
        return AttemptRequest(kind, None, (), payload, shown, None)
    body = f'{{"job":{dumps(run.job_name)},"payload":{payload or "null"}}}'
    headers = {
        "content-type": "application/json",
        "webhook-id": run.idempotency_key,
        "x-wakeful-run-id": run.id,
        "x-wakeful-attempt": str(attempt.attempt),
        "x-wakeful-scheduled-at": iso_utc(run.scheduled_ms),
        "x-wakeful-trigger": run.trigger,
        "x-wakeful-missed": str(run.missed),
        "traceparent": launch_ids(run.idempotency_key, attempt.attempt).traceparent(),
    }
    own = shown.get("headers")
    if isinstance(own, dict):
        headers.update({name.lower(): str(value) for name, value in own.items()})
    signed = (*headers.items(), *((name, _COMPUTED) for name in _SIGNATURES))
    return AttemptRequest(kind, url, signed, body, shown, _curl(url, headers, body))


def _curl(url: str, headers: Mapping[str, str], body: str) -> str:
    lines = [f"curl -sS -X POST {shlex.quote(url)} \\"]
    lines += [f"  -H {shlex.quote(f'{name}: {value}')} \\" for name, value in headers.items()]
    lines += ['  -H "x-wakeful-signature: $SIGNATURE" \\', '  --data-raw "$BODY"']
    return f"BODY={shlex.quote(body)}\n{_SIGNED}" + "\n".join(lines) + "\n"
