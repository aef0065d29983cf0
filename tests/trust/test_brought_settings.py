"""What a repository's settings file may set, and what counts only when the user trusted it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.json_values import JsonObject
from workflowlookup.settings import ALWAYS, SETTINGS, Settings, read_settings

Read = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The settings for a clone whose file, and the user's, have this content."""
    clone, own = tmp_path / "clone", tmp_path / "config" / "workflowlookup"
    (clone / ".git").mkdir(parents=True)
    own.mkdir(parents=True)

    def read_both(brought: str, users: str = "", *, config: str | None = None, **environment: str) -> Settings:
        (clone / "workflowlookup.toml").write_text(brought)
        (own / "workflowlookup.toml").write_text(users)
        environment.setdefault("XDG_CONFIG_HOME", str(tmp_path / "config"))
        return read_settings({}, environment, directory=str(clone), config=config)

    return read_both


def names(settings: Settings) -> list[str]:
    return [entry.name for entry in settings.ignored]


HARMLESS: JsonObject = {
    "git_timeout_seconds": 30,
    "bundled": False,
    "user": False,
    "project": False,
    "require_tokens": True,
    "directories": ["flows"],
    "confirmation": "person",
    "person_confirmation": ["passkey"],
    "log_level": "info",
    "log_format": "json",
    "max_message_bytes": 4096,
    "workflow_tools": False,
    "hook_triggers": False,
    "include": ["id:a"],
    "exclude": ["id:b"],
    "tools_budget_bytes": 5000,
    "refresh_seconds": 0,
    "timeout_seconds": 10,
    "max_concurrent": 2,
    "max_concurrent_total": 4,
    "drain_seconds": 1,
    "stop_delay_seconds": 1,
}
"""A value that needs no trust, for each setting that has one."""


def toml(name: str, value: object) -> str:
    import json

    return f"{name} = {json.dumps(value)}\n"


def test_every_setting_has_a_harmless_value_here_or_always_needs_trust() -> None:
    """A new row decides: it needs trust, or its harmless value is written down above."""
    assert {setting.name for setting in SETTINGS if setting.needs_trust is not ALWAYS} == set(HARMLESS)


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_settings_need_no_trust(read: Read, name: str) -> None:
    settings = read(toml(name, HARMLESS[name]))

    assert (names(settings), settings.origins[name].endswith("clone/workflowlookup.toml")) == ([], True)


@pytest.mark.parametrize(
    ("brought", "users", "held"),
    [
        ('journal = "here.sqlite"', 'journal = "/mine.sqlite"', {"journal": "/mine.sqlite"}),
        ('confirmation = "agent"', "", {"confirmation": "auto"}),
        ('confirmation = "auto"', 'confirmation = "person"', {"confirmation": "person"}),
        ('person_confirmation = ["key", "form"]', "", {"person_confirmation": ("passkey", "key")}),
        ('log_level = "error"', "", {"log_level": "warning"}),
        ("user = true", "user = false", {"user": False}),
        ("project = true", "project = false", {"project": False}),
        ("workflow_tools = true", "workflow_tools = false", {"workflow_tools": False}),
        ('directories = ["flows", "/etc"]', "", {"directories": ()}),
        ('directories = ["../elsewhere"]', 'directories = ["/mine"]', {"directories": ("/mine",)}),
        ("include = []", 'include = ["id:safe"]', {"include": ("id:safe",)}),
        ('include = ["*"]', 'include = ["id:safe"]', {"include": ("id:safe",)}),
        ("exclude = []", 'exclude = ["id:risky"]', {"exclude": ("id:risky",)}),
        ("refresh_seconds = 0.01", "", {"refresh_seconds": 300.0}),
        ("refresh_seconds = 1", "refresh_seconds = 0", {"refresh_seconds": 0.0}),
        ('http = "0.0.0.0:80"', "", {"http": ""}),
        ('allowed_hosts = ["*"]', "", {"allowed_hosts": ()}),
        ("require_tokens = false", "require_tokens = true", {"require_tokens": True}),
        ('allowed_origins = ["*"]', "", {"allowed_origins": ()}),
        ('trusted_proxies = ["0.0.0.0/0"]', "", {"trusted_proxies": ()}),
        ("requests_per_minute = 0", "", {"requests_per_minute": 6000}),
        ("max_sessions = 100000", "", {"max_sessions": 1000}),
        ("idle_seconds = 86400", "", {"idle_seconds": 1800.0}),
    ],
)
def test_harmful_settings_leave_the_users_own_setting_in_force(
    read: Read, brought: str, users: str, held: JsonObject
) -> None:
    settings = read(brought, users)

    assert {name: getattr(settings, name) for name in held} == held
    assert names(settings) == [brought.partition(" ")[0]]


def test_the_oauth_settings_of_a_repository_are_one_entry(read: Read) -> None:
    settings = read(
        'oauth_issuer = "https://evil.example"\noauth_audience = "x"\noauth_jwks_url = "https://evil.example/keys"\n'
    )

    assert (settings.oauth_issuer, settings.oauth_jwks_url, names(settings)) == ("", "", ["oauth"])


def test_the_file_of_a_project_does_not_switch_off_that_of_the_user(read: Read) -> None:
    settings = read("bundled = false", 'confirmation = "person"\n[mcpServers.mine]\ncommand = "mine"\n')

    assert (settings.bundled, settings.confirmation, list(settings.servers)) == (False, "person", ["mine"])


def test_a_server_of_a_repository_does_not_replace_one_of_the_user(read: Read) -> None:
    settings = read('[mcpServers.same]\ncommand = "evil"\n', '[mcpServers.same]\ncommand = "mine"\n')

    assert (settings.servers["same"].command, names(settings)) == ("mine", ["same"])


def test_flags_and_the_environment_need_no_trust(read: Read) -> None:
    settings = read(
        'journal = "here.sqlite"', WORKFLOWLOOKUP_JOURNAL="/elsewhere/there.sqlite", WORKFLOWLOOKUP_HTTP="h:1"
    )

    assert (settings.journal, settings.http, names(settings)) == ("/elsewhere/there.sqlite", "h:1", [])


@pytest.mark.parametrize("name", ["other.toml", "../clone/other.toml", "../link.toml", "out.toml"])
def test_a_named_file_inside_the_project_is_the_projects(read: Read, tmp_path: Path, name: str) -> None:
    (tmp_path / "clone" / "other.toml").write_text('[mcpServers.x]\ncommand = "evil"\n')
    (tmp_path / "elsewhere.toml").write_text('[mcpServers.x]\ncommand = "evil"\n')
    (tmp_path / "link.toml").symlink_to(tmp_path / "clone" / "other.toml")
    (tmp_path / "clone" / "out.toml").symlink_to(tmp_path / "elsewhere.toml")

    settings = read("", 'confirmation = "person"', config=str(tmp_path / "clone" / name))

    assert (dict(settings.servers), names(settings), settings.confirmation) == ({}, ["x"], "person")


def test_the_file_of_a_project_counts_from_every_directory_of_it_and_needs_trust_there_too(
    tmp_path: Path,
) -> None:
    below = tmp_path / "clone" / "src" / "deep"
    below.mkdir(parents=True)
    for directory in (tmp_path, tmp_path / "clone"):
        (directory / ".git").mkdir()
        (directory / "workflowlookup.toml").write_text(f'max_concurrent = 3\njournal = "{directory.name}.sqlite"\n')

    settings = read_settings({}, {"XDG_CONFIG_HOME": str(tmp_path / "none")}, directory=str(below))
    (below / "workflowlookup.toml").write_text("max_concurrent = 4")
    nearest = read_settings({}, {"XDG_CONFIG_HOME": str(tmp_path / "none")}, directory=str(below))

    assert (settings.max_concurrent, names(settings)) == (3, ["journal"])
    assert settings.origins["max_concurrent"] == str(tmp_path / "clone" / "workflowlookup.toml")
    assert nearest.max_concurrent == 4


def test_a_named_file_outside_is_the_users_and_stands_alone(read: Read, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[mcpServers.x]\ncommand = "mine"\n')

    settings = read('journal = "here"', 'confirmation = "person"', config=str(tmp_path / "mine.toml"))

    assert (list(settings.servers), names(settings), settings.confirmation) == (["x"], [], "auto")


def test_a_configuration_directory_inside_the_project_trusts_nothing(read: Read, tmp_path: Path) -> None:
    inside = tmp_path / "clone" / "x" / "workflowlookup"
    inside.mkdir(parents=True)
    (inside / "workflowlookup.toml").write_text('[mcpServers.x]\ncommand = "evil"\n')

    settings = read("", XDG_CONFIG_HOME="x")

    assert (dict(settings.servers), names(settings), settings.trust.path) == ({}, ["x"], "")
    assert "is in the project" in settings.trust.problem


@pytest.mark.parametrize("content", ["a = " + "[" * 20_000, "mcpServers = 5", "[mcpServers]\nx = 5"])
def test_a_hostile_file_is_refused_or_ignored(read: Read, content: str) -> None:
    from workflowlookup.settings import SettingsError

    try:
        settings = read(content)
    except SettingsError as problem:
        assert "is not TOML" in str(problem)
    else:
        assert dict(settings.servers) == {}
