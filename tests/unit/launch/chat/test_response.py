"""Answers and errors of endpoints, in the forms that endpoints use."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.launch.chat.endpoint import MAX_RESPONSE, choose_dialect, read_failure
from wakeful.launch.chat.request import ChatDialect
from wakeful.launch.chat.response import Answer, EndpointError, Spending, TokenUsage, read_response
from wakeful.settings.chat import ChatModel

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def answer(message: dict[str, Any], **fields: Any) -> Answer:
    body = {"choices": [{"message": message, "finish_reason": "stop"}], **fields}
    found = read_response(200, json.dumps(body))
    assert isinstance(found, Answer)
    return found


def error(status: int, body: object) -> EndpointError:
    found = read_response(status, body if isinstance(body, str) else json.dumps(body))
    assert isinstance(found, EndpointError)
    return found


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        (None, ""),
        ([{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}], "hello"),
        (["hel", "lo"], "hello"),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], ""),
        ("<think>Let me see.\nYes.</think>\n\nhello", "hello"),
        ("Let me see.\nYes.</think>\n\nhello", "hello"),
        ("hello <think>is a tag</think>", "hello <think>is a tag</think>"),
        ({"text": "hello"}, ""),
    ],
)
def test_content_is_read_in_each_form(content: object, text: str):
    assert answer({"content": content}).text == text


@pytest.mark.parametrize("part", ["<think>", "<think> ", "</think", " ", "\n", "tool ", "exceeds the max "])
def test_no_response_takes_long_to_read(part: str):
    text = "<think>" + part * (MAX_RESPONSE // len(part))
    began = time.thread_time()
    assert answer({"content": text}).text == text
    refused = error(400, {"error": {"message": part * 100_000, "code": part * 100_000}})
    choose_dialect(ChatDialect(), refused, tools=True)
    read_failure(refused, key=None)
    read_failure(error(502, part * 100_000), key=None)
    assert time.thread_time() - began < 5.0


@pytest.mark.parametrize("part", ["[],", "{},", "1,", '{"function":{"name":"cron"}},'])
def test_a_response_of_a_million_values_is_not_parsed(part: str):
    parts = part * (MAX_RESPONSE // len(part))
    for text in (f"[{parts}1]", f'{{"choices":[{{"message":{{"content":"a","tool_calls":[{parts}1]}}}}]}}'):
        began = time.thread_time()
        refused = error(200, text)
        assert time.thread_time() - began < 0.3
        assert refused.message == "the response has more than 250000 values"


def test_only_the_first_tool_calls_are_read_and_go_back():
    found = answer({"content": None, "tool_calls": [{"function": {"name": "cron"}}] * 1_000})
    assert len(found.calls) == len(found.message["tool_calls"]) == 128  # type: ignore[arg-type]


def test_reasoning_is_not_the_answer_and_goes_back_to_the_endpoint():
    found = answer({"content": "4", "reasoning_content": "2 + 2", "annotations": [], "audio": None})
    assert found.text == "4"
    assert found.message == {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}


@pytest.mark.parametrize(
    ("arguments", "read", "returned"),
    [
        ('{"action": "list"}', {"action": "list"}, '{"action": "list"}'),
        ({"action": "list"}, {"action": "list"}, '{"action": "list"}'),
        ('"{\\"action\\": \\"list\\"}"', {"action": "list"}, '"{\\"action\\": \\"list\\"}"'),
        ("", {}, "{}"),
        (None, {}, "{}"),
    ],
)
def test_arguments_are_read_in_each_form(arguments: object, read: object, returned: str):
    call = {"id": "1", "function": {"name": "cron", "arguments": arguments}}
    found = answer({"content": None, "tool_calls": [call]})
    assert (found.calls[0].arguments, found.calls[0].problem) == (read, None)
    assert found.message["tool_calls"] == [
        {"id": "1", "type": "function", "function": {"name": "cron", "arguments": returned}}
    ]


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "3", '"text"'])
def test_arguments_that_cannot_be_read_are_a_problem_that_the_model_can_correct(arguments: str):
    call = {"id": "1", "function": {"name": "cron", "arguments": arguments}}
    found = answer({"tool_calls": [call]})
    assert found.calls[0].problem is not None
    assert found.message["tool_calls"][0]["function"]["arguments"] == "{}"  # type: ignore[index, call-overload]


def test_ids_that_are_missing_or_repeated_are_replaced():
    function = {"name": "cron", "arguments": "{}"}
    calls = [{"id": "a", "function": function}, {"id": "", "function": function}, {"function": function}]
    found = answer({"tool_calls": [*calls, {"id": "a", "function": function}, "junk"]})
    ids = [call.id for call in found.calls]
    assert (ids[0], len(set(ids)), len(ids)) == ("a", 4, 4)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}, TokenUsage(10, 2)),
        ({"input_tokens": 10, "output_tokens": 2}, TokenUsage(10, 2)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 30}, TokenUsage(10, 20)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 8}}, TokenUsage(10, 0, 8)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 99}, TokenUsage(10, 0, 10)),
        ({"prompt_tokens": 10, "prompt_tokens_details": None, "cost": 0.5}, TokenUsage(10, 0, 0, 0.5)),
        ({"prompt_tokens": 10.0, "completion_tokens": -1, "cost": "much"}, TokenUsage(10, 0)),
        ({"total_tokens": None, "prompt_tokens": 900, "completion_tokens": 100}, TokenUsage(900, 100)),
        ({"cost": 0.5}, TokenUsage(0, 0, 0, 0.5)),
        ({"prompt_tokens": True}, None),
        ({}, None),
        (None, None),
        ("much", None),
    ],
)
def test_usage_is_read_in_each_form(usage: object, read: TokenUsage | None):
    assert answer({"content": "hello"}, usage=usage).usage == read


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"choices": []}),
        (200, {"choices": [{"error": {"message": "provider failed", "code": 502}}]}),
        (200, {"error": {"message": "provider failed", "code": 502}}),
        (500, {"error": "overloaded"}),
    ],
)
def test_the_usage_of_an_error_is_read(status: int, body: dict[str, object]):
    found = read_response(status, json.dumps({**body, "usage": {"prompt_tokens": 10}}))
    assert isinstance(found, EndpointError)
    assert found.usage == TokenUsage(10, 0)


def test_a_stated_cost_is_kept_when_the_tokens_are_estimated():
    spending = Spending(ChatModel(), 1_000)
    spending.add({"messages": []}, answer({"content": "hello"}, usage={"cost": 0.5}))
    report = json.loads(spending.report() or "")
    assert (report["cost"], report["estimated"], report["tokens"] > 0) == (0.5, True, True)


@pytest.mark.parametrize(
    ("status", "body", "read"),
    [
        (
            400,
            {"error": {"message": "no", "type": "invalid", "code": "bad", "param": "n"}},
            EndpointError(400, "no", "bad invalid", "n"),
        ),
        (200, {"error": {"message": "Rate limited", "code": 429}}, EndpointError(429, "Rate limited")),
        (
            200,
            {"error": {"message": "slow", "code": "503"}, "choices": []},
            EndpointError(503, "slow", "503"),
        ),
        (200, {"error": "model failed"}, EndpointError(None, "model failed")),
        (400, {"error": "json: cannot unmarshal"}, EndpointError(400, "json: cannot unmarshal")),
        (422, {"detail": "Extra inputs"}, EndpointError(422, "Extra inputs")),
        (400, {"object": "error", "message": "too long", "code": 40303}, EndpointError(400, "too long")),
        (200, {"object": "error", "message": "too long"}, EndpointError(None, "too long")),
        (
            400,
            [{"error": {"message": "API key not valid", "status": "X"}}],
            EndpointError(400, "API key not valid"),
        ),
        (
            200,
            {"choices": [{"error": {"message": "upstream", "code": 502}, "finish_reason": "error"}]},
            EndpointError(502, "upstream"),
        ),
        (
            502,
            {"error": {"message": "Provider error", "metadata": {"raw": "out of memory"}}},
            EndpointError(502, "Provider error (out of memory)"),
        ),
        (500, "Internal Server Error", EndpointError(500, "Internal Server Error", "not_json")),
        (200, "", EndpointError(None, "the response is empty", "not_json")),
        (200, '{"choices": [', EndpointError(None, 'the response is not JSON: {"choices": [', "not_json")),
        (200, "[]", EndpointError(None, "the response is not an object", "not_json")),
        (200, {"choices": []}, EndpointError(None, "the response has no choices", "no_choices")),
        (200, {"choices": None}, EndpointError(None, "the response has no choices", "no_choices")),
        (
            200,
            {"choices": [{}]},
            EndpointError(None, "the choice in the response has no message", "no_choices"),
        ),
    ],
)
def test_errors_are_read_in_each_form(status: int, body: object, read: EndpointError):
    assert error(status, body) == read


def test_a_page_and_a_stream_are_named():
    assert "HTML" in error(200, "<!doctype html><html></html>").message
    assert "stream" in error(200, 'data: {"choices": []}').message


@given(st.sampled_from([200, 400, 500]), JSON)
def test_any_json_is_an_answer_or_an_error(status: int, body: object):
    read_response(status, json.dumps(body))


@settings(derandomize=True)
@given(
    st.sampled_from([200, 400, 500]),
    st.dictionaries(
        st.sampled_from(["code", "type", "message", "param", "metadata"]),
        JSON | st.sampled_from([float("inf"), float("nan"), "²", "9" * 5_000, "\ud800", "503"]),
    ),
)
def test_any_error_of_an_endpoint_is_a_failed_attempt(status: int, facts: dict[str, object]):
    found = read_response(status, json.dumps({"error": {"type": "error", **facts}}))
    assert isinstance(found, EndpointError)
    assert read_failure(found, key=None).error


@given(st.dictionaries(st.sampled_from(["content", "tool_calls", "refusal", "reasoning"]), JSON), JSON, JSON)
def test_any_message_is_an_answer_or_an_error(message: dict[str, object], finish: object, usage: object):
    choice = {"message": message, "finish_reason": finish}
    found = read_response(200, json.dumps({"choices": [choice], "usage": usage}))
    assert isinstance(found, Answer)
    json.dumps(found.message)


@given(st.text())
def test_any_text_is_an_answer_or_an_error(text: str):
    read_response(200, text)
