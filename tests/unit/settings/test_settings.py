"""Settings: environment over file over defaults; what is wrong stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakeful.errors import InvalidArgument
from wakeful.settings import Settings, read_settings
from wakeful.values.process_share import usable_cores


def test_every_setting_has_its_default():
    assert read_settings({}) == Settings()


def test_the_environment_overrides_the_file(tmp_path: Path):
    file = tmp_path / "wakeful.toml"
    file.write_text('tick_ms = 200\nport = 1\ntz_allowlist = ["UTC", "Europe/Berlin"]\n')
    settings = read_settings({"WAKEFUL_PORT": "2"}, file)
    assert (settings.tick_ms, settings.port) == (200, 2)
    assert settings.tz_allowlist == ("UTC", "Europe/Berlin")


def test_the_number_of_processes_is_a_number_or_that_of_the_usable_cores():
    assert read_settings({"WAKEFUL_PROCESSES": "4"}).processes == 4
    assert read_settings({"WAKEFUL_PROCESSES": "auto"}).processes == usable_cores()
    for wrong, reason in (("0", "the minimum is 1"), ("many", "not a whole number or auto")):
        with pytest.raises(InvalidArgument, match=reason):
            read_settings({"WAKEFUL_PROCESSES": wrong})


def test_commands_are_comma_separated(tmp_path: Path):
    file = tmp_path / "wakeful.toml"
    file.write_text('commands = ["rsync", "/opt/jobs/*"]\n')
    assert read_settings({}, file).commands == ("rsync", "/opt/jobs/*")
    assert read_settings({"WAKEFUL_COMMANDS": "*, /bin/sh ,"}, file).commands == ("*", "/bin/sh")


def test_a_lane_is_added_by_its_variable(tmp_path: Path):
    file = tmp_path / "wakeful.toml"
    file.write_text("lane_reports = 3\nlane_cron = 5\n")
    settings = read_settings({"WAKEFUL_LANE_NIGHT_SHIFT": "7"}, file)
    assert settings.lane_cron == 5
    assert settings.lanes == {"reports": 3, "night-shift": 7}


def test_a_channel_is_added_by_its_variable(tmp_path: Path):
    file = tmp_path / "wakeful.toml"
    file.write_text('channel_mail = "mailto://a:b@example.com"\nchannel_team_ops = "json://file"\n')
    settings = read_settings({"WAKEFUL_CHANNEL_TEAM_OPS": " json://environment "}, file)
    assert settings.channels == {"mail": "mailto://a:b@example.com", "team-ops": "json://environment"}


def test_no_setting_with_a_credential_is_shown():
    names = ("DB", "SECRET_KEY", "JWT_SECRET", "JWKS_URL", "METRICS_KEY", "PING_URL", "OIDC_CLIENT_SECRET")
    settings = read_settings({f"WAKEFUL_{name}": "s3cret" for name in (*names, "CELERY_BROKER")})
    assert settings.secret_key == settings.db == "s3cret"
    assert "s3cret" not in repr(settings)


def test_the_url_of_a_channel_is_not_shown(tmp_path: Path):
    file = tmp_path / "wakeful.toml"
    assert "s3cret" not in repr(read_settings({"WAKEFUL_CHANNEL_OPS": "json://s3cret"}))
    for text in (
        'channel__ops = "json://s3cret"',
        'channel_ops = ["json://s3cret"]',
        "channel_ops = {s3cret=1}",
    ):
        file.write_text(text)
        with pytest.raises(InvalidArgument, match=r"wakeful\.toml: channel_") as error:
            read_settings({}, file)
        assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"WAKEFUL_PORT": "http"}, "WAKEFUL_PORT: 'http' is not a whole number"),
        ({"WAKEFUL_PORT": "70000"}, "WAKEFUL_PORT"),
        ({"WAKEFUL_TICK_MS": "0"}, "WAKEFUL_TICK_MS: 0 is too small"),
        ({"WAKEFUL_MAX_CATCHUP_PER_TICK": "0"}, "WAKEFUL_MAX_CATCHUP_PER_TICK"),
        ({"WAKEFUL_DEFAULT_OVERLAP_POLICY": "maybe"}, "is not one of allow, skip"),
        ({"WAKEFUL_ALLOW_PRIVATE_TARGETS": "perhaps"}, "is not true or false"),
        ({"WAKEFUL_LANE_NIGHT": "0"}, "WAKEFUL_LANE_NIGHT"),
        ({"WAKEFUL_CHANNEL_OPS": ""}, "WAKEFUL_CHANNEL_OPS: set the Apprise URL"),
        ({"WAKEFUL_CHANNEL_": "json://a"}, "WAKEFUL_CHANNEL_: '' is not a channel name"),
    ],
)
def test_a_bad_value_is_named(environment: dict[str, str], says: str):
    with pytest.raises(InvalidArgument, match=says):
        read_settings(environment)


def test_an_unknown_setting_in_the_file_is_refused(tmp_path: Path):
    file = tmp_path / "wakeful.toml"
    file.write_text("tickms = 5\n")
    with pytest.raises(InvalidArgument, match="unknown setting: tickms"):
        read_settings({}, file)
    file.write_text("tick_ms = = 5\n")
    with pytest.raises(InvalidArgument, match="not valid TOML"):
        read_settings({}, file)


def test_event_servers_have_an_address_a_token_and_agents():
    settings = read_settings(
        {
            "WAKEFUL_EVENT_SERVER_MY_CRM": "https://crm.example.com/mcp",
            "WAKEFUL_EVENT_KEY_MY_CRM": "token",
            "WAKEFUL_EVENT_AGENTS_MY_CRM": "support, acme/*",
        }
    )
    server = settings.event_servers["my-crm"]
    assert (server.url, server.key, server.agents) == (
        "https://crm.example.com/mcp", "token", ("support", "acme/*"),
    )  # fmt: skip
    assert "token" not in repr(settings)
    assert server.admits("default", "support")
    assert not server.admits("default", "sales")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WAKEFUL_EVENT_SERVER_CRM", "crm.example.com", "set the URL of an MCP server"),
        ("WAKEFUL_EVENT_SERVER_CRM", "https://me:secret@crm.example.com", "set the URL of an MCP server"),
        ("WAKEFUL_EVENT_KEY_CRM", "token", "WAKEFUL_EVENT_SERVER_CRM: set the address"),
        ("WAKEFUL_EVENT_AGENTS_CRM", "a b", "'a b' is not an agent"),
        ("WAKEFUL_EVENT_AGENTS_CRM", "", "name at least one agent"),
    ],
)
def test_a_wrong_event_server_is_refused(name: str, value: str, said: str):
    with pytest.raises(InvalidArgument, match=said) as refused:
        read_settings({name: value})
    assert "secret" not in str(refused.value)


def test_the_groups_of_an_issuer_come_from_the_environment_or_the_file(tmp_path: Path) -> None:
    own = {"WAKEFUL_OIDC_ISSUER": "https://id.example.com", "WAKEFUL_OIDC_CLIENT_ID": "w"}
    file = tmp_path / "wakeful.toml"
    file.write_text('[oidc_groups.platform]\n"*" = "admin"\n')
    assert read_settings(own, file).oidc_groups == {"platform": {"*": "admin"}}
    said = {**own, "WAKEFUL_OIDC_GROUPS": '{"sales": {"crm": "member"}}', "WAKEFUL_OIDC_DOMAINS": "a.b, c.d"}
    settings = read_settings(said, file)
    assert (settings.oidc_groups, settings.oidc_domains) == ({"sales": {"crm": "member"}}, ("a.b", "c.d"))
    with pytest.raises(
        InvalidArgument, match="WAKEFUL_OIDC_GROUPS: the issuer in WAKEFUL_OIDC_ISSUER needs it"
    ):
        read_settings(own)
