"""Settings: where each comes from, and what is said when one cannot be used."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.json_values import JsonObject
from workflowlookup.app import make_catalog
from workflowlookup.providers.config import ServerConfig
from workflowlookup.providers.secrets import VariableNotSet, expand_server
from workflowlookup.repository import find_root_of_run
from workflowlookup.settings import SETTINGS, Live, Settings, SettingsError, issuer_of, plan_of, read_settings


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Reads the settings for a project beside the user's own file, if there is one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()

    def read_here(
        flags: dict[str, str] | None = None, environment: dict[str, str] | None = None, config: str | None = None
    ) -> Settings:
        own = tmp_path / "workflowlookup.toml"
        config = config or (str(own) if own.exists() else None)
        return read_settings(flags or {}, environment or {}, directory=str(tmp_path / "project"), config=config)

    return read_here


def test_without_anything_the_defaults_hold(read: Callable[..., Settings]) -> None:
    settings = read()

    assert (settings.bundled, settings.directories, settings.log_level) == (True, (), "warning")
    assert set(settings.origins.values()) == {"default"}


def test_flags_win_over_the_environment_over_the_file(read: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "workflowlookup.toml").write_text('log_level = "debug"\nlog_format = "json"\nbundled = false\n')
    environment = {"WORKFLOWLOOKUP_LOG_LEVEL": "info", "WORKFLOWLOOKUP_LOG_FORMAT": "text"}

    settings = read({"log_level": "error"}, environment)

    assert (settings.log_level, settings.log_format, settings.bundled) == ("error", "text", False)
    assert settings.origins["log_level"] == "--log-level"
    assert settings.origins["log_format"] == "WORKFLOWLOOKUP_LOG_FORMAT"
    assert settings.origins["bundled"] == str(tmp_path / "workflowlookup.toml")


def test_the_users_file_counts_when_the_directory_has_none(read: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "config" / "workflowlookup").mkdir(parents=True)
    (tmp_path / "config" / "workflowlookup" / "workflowlookup.toml").write_text("user = false\n")

    assert read(environment={"XDG_CONFIG_HOME": str(tmp_path / "config")}).user is False


def test_workflow_storage_path_adds_directories(read: Callable[..., Settings]) -> None:
    settings = read(environment={"WORKFLOW_STORAGE_PATH": "/a:/b", "WORKFLOWLOOKUP_DIRECTORIES": "/c"})

    assert settings.directories == ("/a", "/b", "/c")
    assert settings.origins["directories"] == "WORKFLOW_STORAGE_PATH, WORKFLOWLOOKUP_DIRECTORIES"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORKFLOWLOOKUP_BUNDLED": "maybe"}, "WORKFLOWLOOKUP_BUNDLED: bundled must be true or false; found 'maybe'"),
        (
            {"WORKFLOWLOOKUP_LOG_LEVEL": "loud"},
            "WORKFLOWLOOKUP_LOG_LEVEL: log_level must be one of debug, info, warning, error; found 'loud'",
        ),
        (
            {"WORKFLOWLOOKUP_MAX_MESSAGE_BYTES": "1"},
            "WORKFLOWLOOKUP_MAX_MESSAGE_BYTES: max_message_bytes must be a whole number from 1,024 to 67,108,864; found '1'",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_origin(
    read: Callable[..., Settings], environment: JsonObject, message: str
) -> None:
    with pytest.raises(SettingsError) as problem:
        read(environment=environment)
    assert str(problem.value) == message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("bundeled = true", "unknown setting 'bundeled'. Known: bundled, user"),
        ("bundled =", "is not TOML"),
        ("max_concurrent = " + "9" * 4_301, "is not TOML"),
        ("max_concurrent = 0x" + "f" * 5_000, "has an integer of more than 64 bits"),
        ("mcpServers.x." + "a." * 5_000 + "a = 1", "has a key of more than 64 parts"),
        ("mcpServers.x." + '"\\"".' * 5_000 + "a = 1", "has a key of more than 64 parts"),
        ("mcpServers.x.a = " + "[" * 70 + "]" * 70, "is nested deeper than 64 levels"),
        ("#" * 262_145, "is larger than 262,144 bytes"),
        ("timeout_seconds = " + "9" * 400, "has an integer of more than 64 bits"),
        ('directories = "/a"\nlog_level = 5', "log_level must be one of"),
    ],
)
def test_a_settings_file_that_cannot_be_used_is_told_by_name(
    read: Callable[..., Settings], tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "workflowlookup.toml").write_text(content)

    with pytest.raises(SettingsError) as problem:
        read()
    assert str(tmp_path / "workflowlookup.toml") in str(problem.value)
    assert words in str(problem.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("max_message_bytes = 1", "max_message_bytes must be a whole number from 1,024 to 67,108,864; found 1"),
        ("bundeled = true", "unknown setting 'bundeled'. Known: bundled, user"),
        ("servers.a.command = 'x'\nmcpServers.b.command = 'y'", "servers is an alias of mcpServers"),
        ("oauth_issuer = 5", "oauth_issuer must be"),
    ],
)
def test_what_is_wrong_in_a_projects_file_is_ignored_and_the_rest_counts(
    read: Callable[..., Settings], tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "project" / "workflowlookup.toml").write_text(f"user = false\n{content}\n")

    settings = read()

    assert (settings.user, settings.max_message_bytes, len(settings.faults)) == (False, 8_388_608, 1)
    assert settings.faults[0].startswith(f"{tmp_path}/project/workflowlookup.toml: {words}")


@pytest.mark.parametrize("content", ["bundled =", "timeout_seconds = " + "9" * 400, "#" * 262_145])
def test_a_projects_file_that_cannot_be_read_is_ignored(
    read: Callable[..., Settings], tmp_path: Path, content: str
) -> None:
    (tmp_path / "project" / "workflowlookup.toml").write_text(f"user = false\n{content}")

    settings = read()

    assert (settings.user, len(settings.faults)) == (True, 1)


def test_a_mistake_in_a_projects_file_changes_nothing_while_the_server_runs(
    read: Callable[..., Settings], tmp_path: Path
) -> None:
    file = tmp_path / "project" / "workflowlookup.toml"
    file.write_text("user = false\n")
    live = Live(read())
    file.write_text("user = false\ntimeout_seconds = 0\n")

    assert live.poll(force=True) is None
    assert "timeout_seconds must be" in live.problem
    assert live.settings.user is False


def test_a_projects_file_that_the_user_names_must_be_right(read: Callable[..., Settings], tmp_path: Path) -> None:
    file = tmp_path / "project" / "mine.toml"
    file.write_text("max_message_bytes = 1")

    with pytest.raises(SettingsError, match="max_message_bytes must be"):
        read(config=str(file))


def test_a_named_file_that_is_not_there_is_told(read: Callable[..., Settings]) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        read(config="/nowhere/at-all.toml")


def test_directories_that_a_file_names_lie_beside_it(read: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.toml").write_text('directories = ["flows", "/absolute"]')

    settings = read(config=str(tmp_path / "elsewhere" / "mine.toml"))

    assert settings.directories == (str(tmp_path / "elsewhere" / "flows"), "/absolute")


def test_the_root_of_a_run_is_named_by_the_user_then_the_client_then_found(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    inside, client, plain = repository / "src", tmp_path / "client", tmp_path / "plain"
    for directory in (repository / ".git", inside, client, plain):
        directory.mkdir(parents=True)
    named = {"CLAUDE_PROJECT_DIR": str(client)}
    roots = [str(tmp_path / "gone"), str(plain)]

    assert find_root_of_run(str(plain), named, str(inside), roots) == (str(plain), "flag")
    assert find_root_of_run("", named, str(inside), roots) == (str(client), "CLAUDE_PROJECT_DIR")
    assert find_root_of_run("", {}, str(inside), roots) == (str(plain), "roots")
    assert find_root_of_run("", {"CLAUDE_PROJECT_DIR": "src"}, str(inside)) == (str(repository), "git")
    assert find_root_of_run("", {"CLAUDE_PROJECT_DIR": str(tmp_path / "gone")}, str(plain)) == (str(plain), "directory")
    assert find_root_of_run(str(tmp_path / "gone"), named, str(plain)) == (str(tmp_path / "gone"), "flag")
    assert find_root_of_run("", {}, str(tmp_path / "gone")) == ("", "")


def test_of_several_roots_the_one_around_the_working_directory_counts_else_the_first_that_exists(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first / ".git", second / "src" / ".git"):
        directory.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(second)
    roots = [str(tmp_path / "gone"), "relative", str(first), str(link)]

    assert find_root_of_run("", {}, str(second / "src"), roots) == (str(second), "roots")
    assert find_root_of_run("", {}, str(tmp_path), roots) == (str(first), "roots")
    assert find_root_of_run("", {}, str(second / "src"), roots[:2]) == (str(second / "src"), "git")


def test_the_table_and_the_struct_have_the_same_settings() -> None:
    others: tuple[str, ...] = (
        "origins",
        "servers",
        "providers",
        "commands",
        "notify",
        "sources",
        "cache_directory",
        "left_out",
        "candidates",
        "reload",
        "directory",
    )
    others += ("faults", "from_repository", "ignored", "trust", "config_directory", "enclosing_project")

    assert [setting.name for setting in SETTINGS] == [name for name in Settings.__struct_fields__ if name not in others]


def test_each_source_can_be_switched_off_and_later_ones_win(
    read: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    everything = make_catalog(read(environment={"WORKFLOWLOOKUP_DIRECTORIES": str(tmp_path / "more")}))
    nothing = make_catalog(read({"bundled": "false", "user": "no", "project": "0"}))

    assert [source.name for source in everything.sources] == ["bundled", "user", "directories", "project"]
    assert nothing.sources == ()


def test_the_journal_is_in_the_users_data_directory_unless_it_is_said_where(
    read: Callable[..., Settings], tmp_path: Path
) -> None:
    assert read().journal == str(tmp_path / "home" / ".local" / "share" / "workflowlookup" / "runs.sqlite")
    assert read(environment={"XDG_DATA_HOME": "/data"}).journal == "/data/workflowlookup/runs.sqlite"
    assert read(environment={"WORKFLOWLOOKUP_JOURNAL": "~/runs.db"}).journal == str(tmp_path / "home" / "runs.db")
    assert read({"journal": "postgresql://me@host/db"}).journal == "postgresql://me@host/db"
    (tmp_path / "workflowlookup.toml").write_text('journal = "here.db"\n')
    assert read().journal == str(tmp_path / "here.db")


def test_a_journal_that_cannot_be_is_refused_without_its_password(read: Callable[..., Settings]) -> None:
    with pytest.raises(SettingsError) as refusal:
        read({"journal": "mysql://me:secret@host/db"})

    assert str(refusal.value) == (
        "--journal: journal must be a path, or a URL that begins with postgresql://; found 'mysql://me:…@host/db'"
    )


# ── other systems ───────────────────────────────────────────────────────────────────────────────────────────────


def test_servers_and_providers_are_tables_of_the_file(read: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "workflowlookup.toml").write_text(
        """
include = ["deploy-*", "category:ops"]
[mcpServers.github]
command = "github-mcp"
args = ["--stdio"]
env = {TOKEN = "${GITHUB_TOKEN}"}
type = "stdio"
[providers.ci]
kind = "http"
base_url = "https://ci.example.org"
[providers.gh]
kind = "mcp"
server = "github"
[providers.own]
kind = "mcp"
url = "https://mcp.example.org/mcp"
"""
    )

    plan = plan_of(read())

    assert sorted(plan.servers) == ["github", "own"]
    assert plan.servers["github"].args == ("--stdio",)
    assert {name: provider.kind for name, provider in plan.providers.items()} == {
        "ci": "http",
        "gh": "mcp",
        "own": "mcp",
    }
    assert plan.filters.include == ("deploy-*", "category:ops")
    assert "GITHUB" not in repr(plan)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("mcpServers = 5", "mcpServers must be a table of tables"),
        ("[mcpServers.a]", "mcpServers.a must have either a command or a url"),
        ('[mcpServers.a]\ncommand = "x"\nurl = "http://x"', "mcpServers.a must have either a command or a url"),
        ('[mcpServers.a]\nurl = "ftp://me:secret@x?t=secret"', "mcpServers.a.url must begin with http"),
        ("[mcpServers.a]\ncommand = 5", "mcpServers.a.command: expected `str`, got `int`"),
        ('[mcpServers."a b"]\ncommand = "x"', "a name is up to 32 letters"),
        ("[providers.a]", "providers.a.kind must be one of mcp, http; found nothing"),
        ('[providers.a]\nkind = "soap"', "providers.a.kind must be one of mcp, http; found 'soap'"),
        ('[providers.library]\nkind = "http"', "this name is reserved for the library"),
        ('[providers.a]\nkind = "http"', "providers.a.base_url is required"),
        ('[providers.a]\nkind = "http"\nbase_url = "x"', "providers.a.base_url must begin with http"),
        (
            '[providers.a]\nkind = "http"\nbase_url = "http://x"\nstrat = "x"',
            "providers.a: unknown field 'strat' (did you mean 'start'?). Known: base_url,",
        ),
        ('[providers.a]\nkind = "http"\nbase_url = "http://x"\nstart = "/x"', "must be a method and a path such as"),
        ('[providers.a]\nkind = "http"\nbase_url = "http://x"\ninterval = 0', "interval must be a number of seconds"),
        *(
            (f'[providers.a]\nkind = "http"\nbase_url = "http://x"\n{line}', words)
            for line, words in {
                'fields = {runid = "id"}': "providers.a.fields: unknown field 'runid' (did you mean 'runId'?). Known: w",
                'fields = {id = "$id"}': "providers.a.fields.id must be a dotted path, or '$key' for runId; found '$id'",
                "fields = {id = 5}": "providers.a.fields",
                'start = "POST /x/{ids}"': "providers.a.start: unknown placeholder 'ids' (did you mean 'id'?). Known: id,",
                'list = "GET /x/{id}"': "providers.a.list: unknown placeholder 'id'. Known: none",
                'start_body = {a = ["$inputt"]}': "providers.a.start_body: unknown value '$inputt' (did you mean '$input'?)",
                'cancel_body = "$input"': "providers.a.cancel_body: unknown value '$input'. Known: $id, $run, $null",
                'states = {X = "failled"}': "providers.a.states[...]: unknown word 'failled' (did you mean 'failed'?). Known",
                'preset = "simplifed"': "providers.a.preset: unknown preset 'simplifed' (did you mean 'simplified'?). Known: p",
                'paging = {nxt = "x"}': "providers.a.paging: unknown field 'nxt' (did you mean 'next'?). Known: next, offs",
                'list = ""': "providers.a.list must be the endpoint that lists workflows, or workflows must describe them",
                'list = "GET /x"\nworkflows = [{id = "a"}]': "providers.a must have either a list or workflows",
                'workflows = [{name = "a"}]': "providers.a.workflows[0].id is required",
                'workflows = [{id = "a", descripton = "a"}]': "unknown field 'descripton' (did you mean 'description'?)",
                'workflows = [{id = "a", executionType = "snyc"}]': "unknown word 'snyc' (did you mean 'sync'?)",
                'sync = "yes"': "providers.a.sync: expected `bool`, got `str`",
            }.items()
        ),
        ('[providers.a]\nkind = "mcp"\nserver = "b"', "providers.a.server must be one of mcpServers (none); found 'b'"),
        ('[providers.a]\nkind = "mcp"', "providers.a must have either a command or a url"),
    ],
)
def test_an_entry_that_cannot_be_used_is_left_out_by_itself(
    read: Callable[..., Settings], tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "workflowlookup.toml").write_text(content)

    settings = read()

    ((entry, problem),) = settings.left_out.items()
    assert words in problem
    assert problem.startswith(f"{tmp_path / 'workflowlookup.toml'}: ")
    assert "secret" not in problem
    assert content.lstrip("[").startswith(entry.partition(".")[0])
    assert (dict(settings.servers), dict(settings.providers)) == ({}, {})


def test_the_other_entries_of_a_table_count(read: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "workflowlookup.toml").write_text(
        """
[mcpServers.good]
command = "x"
[mcpServers.bad]
[providers.on-good]
kind = "mcp"
server = "good"
[providers.on-bad]
kind = "mcp"
server = "bad"
"""
    )

    settings = read()

    assert (sorted(settings.servers), sorted(settings.providers)) == (["good"], ["on-good"])
    assert sorted(settings.left_out) == ["mcpServers.bad", "providers.on-bad"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('include = ["nam:x"]', "found 'nam' (did you mean 'name'?) in 'nam:x'"),
        ('exclude = ["a["]', "each [ has its ]"),
        ('include = [""]', "patterns that are not empty"),
        ("include = [5]", "a list of patterns"),
        ("timeout_seconds = 0", "timeout_seconds must be a number of seconds from 1 to 86,400; found 0"),
        ("refresh_seconds = -1", "refresh_seconds must be a number of seconds from 0"),
        ("max_concurrent = 1.5", "max_concurrent must be a whole number from 1 to 100"),
        ("drain_seconds = nan", "drain_seconds must be a number of seconds"),
    ],
)
def test_what_cannot_be_meant_is_told_when_the_settings_are_read(
    read: Callable[..., Settings], tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "workflowlookup.toml").write_text(content)

    with pytest.raises(SettingsError) as problem:
        read()
    assert words in str(problem.value)
    assert "secret" not in str(problem.value)


def test_what_is_in_the_environment_is_filled_in_when_it_is_used() -> None:
    server = ServerConfig(name="a", command="x", env={"A": "${ONE}", "B": "${TWO:-two}"}, headers={"K": "Key ${ONE}"})

    server_config = expand_server(server, {"ONE": "1"})

    assert (server_config.env, server_config.headers) == ({"A": "1", "B": "two"}, {"K": "Key 1"})
    with pytest.raises(VariableNotSet, match="the MCP server 'a' needs the environment variable ONE, which is not set"):
        expand_server(server, {})


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(
    read: Callable[..., Settings], tmp_path: Path
) -> None:
    file = tmp_path / "project" / "workflowlookup.toml"
    live = Live(read())
    assert live.poll(force=True) is None

    file.write_text('max_concurrent = 3\nlog_level = "info"\n')
    changed = live.poll(force=True)
    assert changed is not None
    assert (changed.max_concurrent, live.pending_restart()) == (3, ["log_level"])

    file.write_text("max_concurrent = 0\n")
    assert live.poll(force=True) is None
    assert "max_concurrent must be" in live.problem
    assert live.settings.max_concurrent == 3

    file.unlink()
    fixed = live.poll(force=True)
    assert fixed is not None
    assert (fixed.max_concurrent, live.problem) == (10, "")


# ── whose tokens are taken ──────────────────────────────────────────────────────────────────────────────────────

ISSUER = {
    "oauth_issuer": "https://login.example.com",
    "oauth_audience": "https://flows.example.com/mcp",
    "oauth_jwks_url": "https://login.example.com/keys",
}


def test_an_issuer_is_named_whole_or_not_at_all(read: Callable[..., Settings]) -> None:
    assert issuer_of(read()) == {}
    assert issuer_of(read(ISSUER)) == {
        "issuer": "https://login.example.com",
        "audience": "https://flows.example.com/mcp",
        "jwks_url": "https://login.example.com/keys",
        "scopes_claim": "scope",
        "workflows_claim": "",
    }
    for name in ISSUER:
        with pytest.raises(SettingsError, match="set oauth_issuer, oauth_audience and oauth_jwks_url together"):
            read({**ISSUER, name: ""})


@pytest.mark.parametrize(
    "wrong", ["http://login.example.com", "login.example.com", "ftp://x", "http://localhost.evil.com", "https://a b"]
)
def test_an_issuer_is_reached_over_tls_or_on_this_machine(read: Callable[..., Settings], wrong: str) -> None:
    with pytest.raises(SettingsError, match="a URL that begins with https://"):
        read({**ISSUER, "oauth_jwks_url": wrong})
    assert read({**ISSUER, "oauth_jwks_url": "http://127.0.0.1:8080/keys"}).oauth_jwks_url
