"""Chat targets, API keys and the settings of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from wakeful import Chat, InvalidArgument
from wakeful.document.target import read_target
from wakeful.launch.chat.endpoint import ChatKeys
from wakeful.launch.chat.response import TokenUsage, compute_cost
from wakeful.launch.chat.target import read_chat_target
from wakeful.logs.redaction import setting_secrets
from wakeful.settings import read_settings
from wakeful.settings.chat import ChatModel

GOOD: dict[str, Any] = {"kind": "chat", "url": "https://api.openai.com/v1", "model": "m"}
SECRET = "sk-very-secret-42"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"url": None}, "a chat needs the url of an endpoint, such as"),
        ({"url": "api.openai.com"}, "'api.openai.com' is not an http or https URL"),
        ({"url": "https://me:pw@a.example"}, "the url has a user in it"),
        ({"url": "https://a.example/v 1"}, "has a space or a control character in it"),
        ({"url": "https://a.example/\x00"}, "has a space or a control character in it"),
        ({"url": "https://" + "a" * 3000}, "the url has 3008 characters; at most 2048"),
        ({"model": None}, "a chat needs a model"),
        ({"model": " "}, "model: write text"),
        ({"model": "m" * 300}, "model: it has 300 characters; at most 256"),
        ({"system": 3}, "system: write text"),
        ({"key": SECRET + "!"}, "an API key itself is never part of a job"),
        ({"temperature": 3}, "temperature: give a number from 0 to 2"),
        ({"maxTokens": 0}, "maxTokens: give a whole number from 1 to"),
        ({"maxSteps": 51}, "maxSteps: give a whole number from 0 to 50"),
        ({"contextWindow": 10}, "contextWindow: give a whole number from 512 to"),
        ({"continuity": "all"}, "continuity: it is output, session, none"),
        ({"tools": ["cron"]}, "tools: write true or false"),
        ({"options": {"messages": []}}, "options: a job cannot set 'messages' there"),
        ({"options": []}, "options: write an object"),
        ({"apiKey": SECRET}, "a chat target has no field 'apiKey'; it has url, model"),
    ],
)
def test_an_invalid_target_is_refused(fields: dict[str, Any], error: str):
    with pytest.raises(InvalidArgument) as refused:
        read_chat_target({**GOOD, **fields})
    assert error in refused.value.message
    assert SECRET not in refused.value.message


def test_a_target_in_python_is_that_of_a_document():
    chat = Chat(
        "http://localhost:11434/v1/", "m", system="s", key="k", temperature=0, max_tokens=1,
        context_window=512, continuity="session", max_steps=0, tools=False, options={"top_p": 1},
    )  # fmt: skip
    read = read_chat_target(chat.to_json())
    assert str(read.url) == "http://localhost:11434/v1/chat/completions"
    assert (read.temperature, read.max_steps, read.tools, read.context_window) == (0, 0, False, 512)


@pytest.mark.parametrize(
    ("host", "url", "allowed"),
    [
        ("api.openai.com", "https://api.openai.com/v1", True),
        ("api.openai.com", "https://API.OpenAI.com./v1", True),
        ("api.openai.com", "https://api.openai.com.evil.example/v1", False),
        ("api.openai.com", "https://evil.example/api.openai.com", False),
        ("*.azure.com", "https://me.azure.com", True),
        ("*.azure.com", "https://azure.com", False),
        ("*.azure.com", "https://evilazure.com", False),
        ("localhost:11434", "http://localhost:11434", True),
        ("localhost:11434", "http://localhost:11435", False),
        ("[::1]:11434", "http://[::1]:11434", True),
        ("[::1]", "http://[::1]:11434", True),
        ("[::1]:1", "http://[::1]:11434", False),
    ],
)
def test_a_key_goes_to_its_hosts_only(host: str, url: str, allowed: bool):
    keys = ChatKeys({"k": SECRET}, {"k": (host,)})
    if allowed:
        assert keys.headers("k", URL(url)) in ({"authorization": f"Bearer {SECRET}"}, {"api-key": SECRET})
    else:
        with pytest.raises(InvalidArgument, match="the key 'k' may not be sent to"):
            keys.headers("k", URL(url))


@pytest.mark.parametrize("fields", [{"apiKey": "my-key"}, {"api_key": "MY_KEY"}, {"key": "My_Key"}])
def test_the_name_of_a_key_is_read_in_each_spelling(fields: dict[str, str]):
    assert read_target({**GOOD, **fields}) == {**GOOD, "key": "my-key"}


def test_a_key_is_named_once():
    with pytest.raises(InvalidArgument, match="key: it is given as apiKey too; give one of the two"):
        read_target({**GOOD, "key": "a", "apiKey": "b"})


@pytest.mark.parametrize("secret", ["sk-abc-123", "gsk-0123456789-0123456789"])
def test_an_api_key_in_place_of_its_name_is_not_shown(secret: str):
    with pytest.raises(InvalidArgument, match="an API key itself is never part of a job") as error:
        ChatKeys({}, {}).check(secret, URL("https://a.example"))
    assert secret not in error.value.message


def test_short_keys_are_not_masked_in_answers():
    assert (
        ChatKeys({"local": "ollama", "openai": SECRET}, {}).redact(f"ollama has {SECRET}") == "ollama has ***"
    )


def test_a_key_without_hosts_needs_tls():
    plain = URL("http://a.example")
    with pytest.raises(InvalidArgument, match="over https only"):
        ChatKeys({"k": SECRET}, {}).check("k", plain)
    ChatKeys({"k": SECRET}, {}, plain_http=True).check("k", plain)
    ChatKeys({"k": SECRET}, {"k": ("a.example",)}).check("k", plain)
    ChatKeys({}, {}).check(None, plain)


def test_settings_are_read_from_the_environment_and_the_file(tmp_path: Path):
    file = tmp_path / "wakeful.toml"
    file.write_text(
        'chat_key_openai = "sk-of-the-file"\nchat_hosts_openai = ["api.openai.com", "*.azure.com"]\n'
        '[chat_models."gpt"]\ninput = 1\noutput = 2.5\ncachedInput = 0\ncontextWindow = 8000\n'
    )
    read = read_settings({"WAKEFUL_CHAT_KEY_MY_LLM": f" {SECRET} "}, file)
    assert read.chat_keys == {"openai": "sk-of-the-file", "my-llm": SECRET}
    assert read.chat_hosts == {"openai": ("api.openai.com", "*.azure.com")}
    assert read.chat_models == {"gpt": ChatModel(1, 2.5, 0, 8000)}
    assert SECRET not in repr(read)
    assert SECRET in setting_secrets(read)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("CHAT_KEY_A", "", "set the API key of the endpoint"),
        ("CHAT_KEY_A", "two words", "printable ASCII without spaces"),
        ("CHAT_KEY_", SECRET, "'' is not the name of a key"),
        ("CHAT_HOSTS_A", "api.openai.com", "there is no key of that name; set WAKEFUL_CHAT_KEY_A too"),
        ("CHAT_HOSTS_A", "https://api.openai.com", "is not a host; write api.openai.com"),
        ("CHAT_HOSTS_A", " , ", "name at least one host"),
        ("CHAT_MODELS", "gpt", "it is not JSON"),
        ("CHAT_MODELS", "[]", "it is not an object"),
        ("CHAT_MODELS", '{"m": 1}', "m: it is not an object"),
        ("CHAT_MODELS", '{"m": {"price": 1}}', "m: it has no 'price'; it has input, output, cachedInput"),
        ("CHAT_MODELS", '{"m": {"input": 1}}', "m: give both input and output"),
        ("CHAT_MODELS", '{"m": {"input": -1, "output": 1}}', "m: input: give a price from 0 to"),
        ("CHAT_MODELS", '{"m": {"input": NaN, "output": 1}}', "m: input: give a price in USD"),
        ("CHAT_MODELS", '{"m": {"contextWindow": 1.5}}', "m: contextWindow: give a number of tokens"),
    ],
)
def test_an_invalid_setting_is_named(name: str, value: str, error: str):
    with pytest.raises(InvalidArgument) as refused:
        read_settings({f"WAKEFUL_{name}": value})
    assert refused.value.message.startswith(f"WAKEFUL_{name}: ")
    assert error in refused.value.message
    assert SECRET not in refused.value.message


def test_cost_is_that_of_the_operator_else_that_of_the_endpoint():
    usage = TokenUsage(1_000_000, 1_000_000, cached=500_000, cost=9.0)
    assert compute_cost(usage, ChatModel()) == 9.0
    assert compute_cost(usage, ChatModel(1, 10)) == 11.0
    assert compute_cost(usage, ChatModel(1, 10, cached_input=0.5)) == 10.75
