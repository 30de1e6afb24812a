"""What errors of endpoints mean for an attempt."""

from __future__ import annotations

import pytest

from wakeful.launch.chat.endpoint import choose_dialect, is_overflow, read_failure
from wakeful.launch.chat.request import ChatDialect
from wakeful.launch.chat.response import EndpointError


@pytest.mark.parametrize(
    "error",
    [
        EndpointError(400, "whatever", "context_length_exceeded invalid_request_error"),
        EndpointError(
            400, "request (9000 tokens) exceeds the available context size", "exceed_context_size_error"
        ),
        EndpointError(
            400, "This model's maximum context length is 16384 tokens. However, you requested 122946"
        ),
        EndpointError(400, "Input tokens exceed the configured limit of 272000 tokens."),
        EndpointError(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        EndpointError(413, "The input is longer than the maximum number of tokens"),
        EndpointError(400, "Please reduce the length of the messages or completion."),
        EndpointError(None, "maximum context length is 4096 tokens"),
        EndpointError(500, "the request exceeds the available context size"),
    ],
)
def test_an_overflow_is_recognised_at_each_endpoint(error: EndpointError):
    assert is_overflow(error)
    outcome = read_failure(error, key=None)
    assert (outcome.permanent, outcome.reason) == (True, "context_length")


@pytest.mark.parametrize(
    "error",
    [
        EndpointError(429, "Rate limit reached: tokens exceeded"),
        EndpointError(413, "Request too large: tokens per minute (TPM) exceeded, reduce the length"),
        EndpointError(400, "max_tokens is too large: 20000"),
        EndpointError(401, "invalid key for this context window"),
    ],
)
def test_other_errors_are_no_overflow(error: EndpointError):
    assert not is_overflow(error)


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        (301, True), (400, True), (401, True), (402, True), (403, True), (404, True), (410, True),
        (413, True), (422, True), (408, False), (409, False), (429, False), (500, False), (502, False),
        (503, False), (529, False), (None, False),
    ],
)  # fmt: skip
def test_only_what_a_retry_cannot_change_is_permanent(status: int | None, permanent: bool):
    outcome = read_failure(EndpointError(status, "no"), key=None, retry_after_ms=1_000)
    assert (outcome.permanent, outcome.pause_job, outcome.counted) == (permanent, False, True)
    assert outcome.response_code == status
    if status is not None:
        assert outcome.retry_after_ms == 1_000


def test_an_error_says_what_to_do():
    assert read_failure(EndpointError(401, "bad key"), key="my-llm").error == (
        "HTTP 401 Unauthorized: bad key; check WAKEFUL_CHAT_KEY_MY_LLM"
    )
    assert "the target has no `key`" in read_failure(EndpointError(401, "no key"), key=None).error
    assert "check the url and the model" in read_failure(EndpointError(404, "no model"), key=None).error
    assert "redirects are not followed" in read_failure(EndpointError(307, ""), key=None).error


@pytest.mark.parametrize(
    "message",
    [
        "registry.ollama.ai/library/gemma:2b does not support tools",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "No endpoints found that support tool use",
        "tool calling is not supported for this model",
        "Unsupported parameter: 'tools' is not supported with this model",
    ],
)
def test_a_model_without_tools_is_asked_without_them(message: str):
    error = EndpointError(400, message)
    assert choose_dialect(ChatDialect(), error, tools=True) == ChatDialect(tools=False)
    assert choose_dialect(ChatDialect(), error, tools=False) is None
    assert choose_dialect(ChatDialect(tools=False), error, tools=True) is None


def test_another_error_changes_no_dialect():
    assert (
        choose_dialect(ChatDialect(), EndpointError(400, "max_tokens is too large: 20000"), tools=True)
        is None
    )
    assert choose_dialect(ChatDialect(), EndpointError(401, "tools are not supported"), tools=True) is None
    renamed = ChatDialect("max_completion_tokens")
    error = EndpointError(400, "Unsupported parameter: 'max_tokens'", param="max_tokens")
    assert choose_dialect(renamed, error, tools=False) is None
