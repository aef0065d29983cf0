"""The docs: lists are made from the code, links lead somewhere, and what the README shows is true."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workflowlookup.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])


def load_generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["tools.md", "settings.md"])
def test_the_lists_are_those_of_the_code(name):
    assert (ROOT / "docs" / name).read_text("utf-8") == load_generator().PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))

    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_that_a_page_names_is_there(page):
    named = set(
        re.findall(
            r"`((?:src|tests|docs|bench|core|library|runs|providers|execution|tools|protocol|transport|cli)/[\w/.-]+\.\w+)`",
            page.read_text("utf-8").replace("A new file `", ""),
        )
    )
    roots = (ROOT, ROOT / "src" / "workflowlookup")

    assert sorted(name for name in named if not any((root / name).exists() for root in roots)) == []


def test_every_json_block_is_json():
    for page in PAGES:
        for block in re.findall(r"```json\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            if block[0] in "{[":
                json.loads(block)


def test_the_commands_of_the_readme_work(tmp_path):
    text = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^\$ workflowlookup (next .*)$", text, re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "workflowlookup", *command.split()], cwd=tmp_path, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), command


def test_the_transcript_of_the_readme_is_what_the_server_says(start):
    server = start()
    text = (ROOT / "README.md").read_text("utf-8").split("<!-- transcript")[1]
    asked = re.findall(r"^→ (.*)$", text, re.MULTILINE)
    shown = re.findall(r"^← (.*)$", text, re.MULTILINE)
    assert len(asked) == len(shown) == 3
    for question, answer in zip(map(json.loads, asked), map(json.loads, shown), strict=True):
        assert contains(server.result(question["method"], question["params"]), answer)


def contains(whole, part):
    """Whether what a page shows is part of what the server says."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    return whole == part


def test_every_command_has_help_with_an_example(tmp_path):
    for name in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "workflowlookup", name, "--help"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0
        assert f"examples:\n  workflowlookup {name}" in done.stdout


def test_the_project_speaks_of_itself_alone():
    halves = [
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("registry.np", "m"),
        ("pyp", "i.org"),
        ("pythonhos", "ted"),
        ("DESI", "GN.md"),
        ("LANGU", "AGE.md"),
    ]
    places = [left + right for left, right in halves]  # in halves, so that this page does not name them itself
    forbidden = re.compile("|".join(map(re.escape, places)), re.IGNORECASE)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    wrong = [
        name
        for name in tracked
        if (ROOT / name).is_file()
        if forbidden.search((ROOT / name).read_text("utf-8", errors="ignore"))
    ]

    assert len(tracked) > 100
    assert wrong == []
