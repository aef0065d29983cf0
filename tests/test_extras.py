"""Extras: what is missing is found without importing it, and the line to type fits what made the environment."""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.json_values import JsonObject
from support.narrowing import not_none
from workflowlookup import __version__, extras
from workflowlookup.errors import MissingExtra

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


@pytest.fixture
def installed_from(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """This package as if an installer had noted this in `direct_url.json`; None for the package index."""

    def install(noted: JsonObject | None) -> None:
        text = None if noted is None else json.dumps(noted)
        distribution = SimpleNamespace(read_text={"direct_url.json": text}.get)
        monkeypatch.setattr(metadata, "distribution", {"workflowlookup": distribution}.__getitem__)

    install(None)
    return install


@pytest.fixture
def made_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed_from: Callable[..., None]
) -> Callable[..., None]:
    """An environment with the extra `calls` alone, as a tool would make it."""

    def make(path: str, *files: str) -> None:
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
def test_the_line_to_type_fits_what_made_the_environment(
    made_by: Callable[..., None], path: str, file: str, line: str
) -> None:
    made_by(path, file)

    with pytest.raises(MissingExtra) as refusal:
        extras.require("http")

    assert (refusal.value.data["extra"], refusal.value.data["install"]) == ("http", line)
    assert refusal.value.remedy.endswith(f"the extra 'http', which is not installed. {extras.how_to_install('http')}")


@pytest.mark.parametrize(
    ("noted", "source"),
    [
        ({"url": "file://{clone}", "dir_info": {}}, "'{clone}[calls,http]'"),
        ({"url": "file://{clone}", "dir_info": {"editable": True}}, "--editable '{clone}[calls,http]'"),
        ({"url": "file://{clone}/gone.whl", "archive_info": {}}, "'workflowlookup[calls,http]'"),
        ({"url": "https://example.com/w.whl"}, "'workflowlookup[calls,http] @ https://example.com/w.whl'"),
        (
            {"url": "https://example.com/w.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "'workflowlookup[calls,http] @ git+https://example.com/w.git@abc'",
        ),
    ],
    ids=["a clone", "an editable clone", "a file that is gone", "a URL", "a repository"],
)
def test_the_line_to_type_names_what_the_package_was_installed_from(
    made_by: Callable[..., None], installed_from: Callable[..., None], tmp_path: Path, noted: JsonObject, source: str
) -> None:
    made_by("pipx/venvs/workflowlookup", "pipx_metadata.json")
    clone = tmp_path / "clone"
    clone.mkdir()
    installed_from({**noted, "url": noted["url"].format(clone=clone)})

    assert extras.install_line("http") == f"pipx install --force {source.format(clone=clone)}"


@pytest.mark.parametrize(
    ("path", "words"), [("uv/archive-v0/Ye7F", ["uvx", "--from"]), ("cache/pipx/0123", ["pipx", "run", "--spec"])]
)
def test_one_run_of_a_clone_is_a_run_of_that_clone(
    made_by: Callable[..., None], installed_from: Callable[..., None], tmp_path: Path, path: str, words: list[str]
) -> None:
    made_by(path, "pipx_metadata.json")
    clone = tmp_path / "my clone"
    clone.mkdir()
    installed_from({"url": clone.as_uri(), "dir_info": {}})

    assert extras.one_run_command() == [*words, f"{clone}[calls]", "workflowlookup"]


def test_everything_is_installed_where_the_tests_run() -> None:
    assert extras.installed() == list(extras.EXTRAS)


def test_each_extra_of_the_package_is_in_the_table_and_all_has_them_all() -> None:
    assert set(PROJECT["optional-dependencies"]) == {*extras.EXTRAS, "all", "dev"}
    assert PROJECT["optional-dependencies"]["all"] == [f"workflowlookup[{','.join(extras.EXTRAS)}]"]


def test_what_is_light_is_in_no_extra() -> None:
    names = {not_none(re.match(r"[\w-]+", one))[0] for one in PROJECT["dependencies"]}

    assert names == {"msgspec", "jsonschema-rs", "regex", "PyYAML", "rich", "markdown-it-py"}
