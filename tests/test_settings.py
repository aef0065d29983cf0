"""Settings: where each comes from, and what is said when one cannot be used."""

import pytest

from workflowlookup.app import make_catalog
from workflowlookup.settings import SETTINGS, Settings, SettingsError, read_settings


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def read_here(flags=None, environment=None, config=None):
        return read_settings(flags or {}, environment or {}, directory=str(tmp_path), config=config)

    return read_here


def test_without_anything_the_defaults_hold(read):
    settings = read()

    assert (settings.bundled, settings.directories, settings.log_level) == (True, (), "warning")
    assert set(settings.origins.values()) == {"default"}


def test_flags_win_over_the_environment_over_the_file(read, tmp_path):
    (tmp_path / "workflowlookup.toml").write_text('log_level = "debug"\nlog_format = "json"\nbundled = false\n')
    environment = {"WORKFLOWLOOKUP_LOG_LEVEL": "info", "WORKFLOWLOOKUP_LOG_FORMAT": "text"}

    settings = read({"log_level": "error"}, environment)

    assert (settings.log_level, settings.log_format, settings.bundled) == ("error", "text", False)
    assert settings.origins["log_level"] == "--log-level"
    assert settings.origins["log_format"] == "WORKFLOWLOOKUP_LOG_FORMAT"
    assert settings.origins["bundled"] == str(tmp_path / "workflowlookup.toml")


def test_the_users_file_counts_when_the_directory_has_none(read, tmp_path):
    (tmp_path / "config" / "workflowlookup").mkdir(parents=True)
    (tmp_path / "config" / "workflowlookup" / "workflowlookup.toml").write_text("user = false\n")

    assert read(environment={"XDG_CONFIG_HOME": str(tmp_path / "config")}).user is False


def test_workflow_storage_path_adds_directories(read):
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
def test_a_value_that_does_not_fit_is_told_with_its_origin(read, environment, message):
    with pytest.raises(SettingsError) as problem:
        read(environment=environment)
    assert str(problem.value) == message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("bundeled = true", "unknown setting 'bundeled'. Known: bundled, user"),
        ("bundled =", "is not TOML"),
        ('directories = "/a"\nlog_level = 5', "log_level must be one of"),
    ],
)
def test_a_settings_file_that_cannot_be_used_is_told_by_name(read, tmp_path, content, words):
    (tmp_path / "workflowlookup.toml").write_text(content)

    with pytest.raises(SettingsError) as problem:
        read()
    assert str(tmp_path / "workflowlookup.toml") in str(problem.value)
    assert words in str(problem.value)


def test_a_named_file_that_is_not_there_is_told(read):
    with pytest.raises(SettingsError, match="No such file"):
        read(config="/nowhere/at-all.toml")


def test_directories_that_a_file_names_lie_beside_it(read, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.toml").write_text('directories = ["flows", "/absolute"]')

    settings = read(config=str(tmp_path / "elsewhere" / "mine.toml"))

    assert settings.directories == (str(tmp_path / "elsewhere" / "flows"), "/absolute")


def test_the_table_and_the_struct_have_the_same_settings():
    assert [setting.name for setting in SETTINGS] == [name for name in Settings.__struct_fields__ if name != "origins"]


def test_each_source_can_be_switched_off_and_later_ones_win(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    everything = make_catalog(read(environment={"WORKFLOWLOOKUP_DIRECTORIES": str(tmp_path / "more")}))
    nothing = make_catalog(read({"bundled": "false", "user": "no", "project": "0"}))

    assert [source.name for source in everything.sources] == ["bundled", "user", "directories", "project"]
    assert nothing.sources == ()


def test_the_journal_is_in_the_users_data_directory_unless_it_is_said_where(read, tmp_path):
    assert read().journal == str(tmp_path / "home" / ".local" / "share" / "workflowlookup" / "runs.sqlite")
    assert read(environment={"XDG_DATA_HOME": "/data"}).journal == "/data/workflowlookup/runs.sqlite"
    assert read(environment={"WORKFLOWLOOKUP_JOURNAL": "~/runs.db"}).journal == str(tmp_path / "home" / "runs.db")
    assert read({"journal": "postgresql://me@host/db"}).journal == "postgresql://me@host/db"
    (tmp_path / "workflowlookup.toml").write_text('journal = "here.db"\n')
    assert read().journal == str(tmp_path / "here.db")


def test_a_journal_that_cannot_be_is_refused_without_its_password(read):
    with pytest.raises(SettingsError) as refusal:
        read({"journal": "mysql://me:secret@host/db"})

    assert str(refusal.value) == (
        "--journal: journal must be a path, or a URL that begins with postgresql://; found 'mysql://me:…@host/db'"
    )
