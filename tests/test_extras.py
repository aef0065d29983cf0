"""Extras: what is missing is found without importing it, and the line to type fits what made the environment."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from workflowlookup import __version__, extras
from workflowlookup.errors import MissingExtra

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


@pytest.fixture
def made_by(tmp_path, monkeypatch):
    """An environment with the extra `calls` alone, as a tool would make it."""

    def make(path, *files):
        prefix = tmp_path / path
        prefix.mkdir(parents=True)
        for name in files:
            (prefix / name).touch()
        monkeypatch.setattr(sys, "prefix", str(prefix))
        monkeypatch.setattr(sys, "executable", "/env/bin/python")
        monkeypatch.setattr(extras, "is_missing", lambda extra: extra != extras.CALLS)
        monkeypatch.setattr(shutil, "which", lambda _: None)

    return make


@pytest.mark.parametrize(
    ("path", "file", "line"),
    [
        ("venv", "pyvenv.cfg", "/env/bin/python -m pip install 'workflowlookup[http]'"),
        ("pipx/venvs/workflowlookup", "pipx_metadata.json", "pipx install --force 'workflowlookup[calls,http]'"),
        (
            "cache/pipx/0123",
            "pipx_metadata.json",
            f"pipx run --spec 'workflowlookup[calls,http]=={__version__}' workflowlookup …",
        ),
        ("uv/tools/workflowlookup", "uv-receipt.toml", "uv tool install 'workflowlookup[calls,http]'"),
        (
            "uv/archive-v0/Ye7F",
            "pyvenv.cfg",
            f"uvx --from 'workflowlookup[calls,http]=={__version__}' workflowlookup …",
        ),
    ],
    ids=["pip", "pipx", "pipx run", "uv tool", "uvx"],
)
def test_the_line_to_type_fits_what_made_the_environment(made_by, path, file, line):
    made_by(path, file)

    with pytest.raises(MissingExtra) as refusal:
        extras.require("http")

    assert (refusal.value.data["extra"], refusal.value.data["install"]) == ("http", line)
    assert refusal.value.remedy.endswith(f"the extra 'http', which is not installed. {extras.how_to_install('http')}")


def test_everything_is_installed_where_the_tests_run():
    assert extras.installed() == list(extras.EXTRAS)


def test_each_extra_of_the_package_is_in_the_table_and_all_has_them_all():
    assert set(PROJECT["optional-dependencies"]) == {*extras.EXTRAS, "all", "dev"}
    assert PROJECT["optional-dependencies"]["all"] == [f"workflowlookup[{','.join(extras.EXTRAS)}]"]


def test_what_is_light_is_in_no_extra():
    names = {re.match(r"[\w-]+", one)[0] for one in PROJECT["dependencies"]}

    assert names == {"msgspec", "jsonschema-rs", "regex", "PyYAML", "rich", "markdown-it-py"}
