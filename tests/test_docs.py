"""The docs: generated pages match the code, links lead somewhere, and what the pages show is true."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.client import Start
from support.json_values import Json
from support.narrowing import not_none
from support.web import WebServer
from workflowlookup.cli.clients import CLIENTS
from workflowlookup.cli.main import COMMANDS
from workflowlookup.extras import EXTRAS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])


EXECUTED = (
    "README.md",
    "docs/recipes.md",
    "docs/troubleshooting.md",
    *(f"docs/tutorials/{path.name}" for path in sorted(ROOT.glob("docs/tutorials/*.md"))),
)
OTHER_PROGRAMS = ("uvx ", "pipx ", "python3 ", "make ", "claude ", "codex ")
"""What a page shows and the tests cannot run."""


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(not_none(spec))
    not_none(not_none(spec).loader).exec_module(module)
    return module


@pytest.mark.parametrize("name", load_generator().PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text("utf-8") == load_generator().PAGES[name](), "run `make docs`"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_has_no_mistakes_and_every_command() -> None:
    page = ROOT / "docs" / "man" / "workflowlookup.1"
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", page], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in COMMANDS if f"workflowlookup {name}" not in done.stdout] == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s:]*?)(?:#([^)\s]*))?\)", page.read_text("utf-8"))
    wrong = []
    for path, anchor in links:
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in headings(target.read_text("utf-8"))):
            wrong.append(f"{path}#{anchor}")

    assert wrong == []


def headings(text: str) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = set(
        re.findall(
            r"`((?:src|tests|docs|bench|core|library|runs|providers|execution|tools|protocol|transport|cli)/[\w/.-]+\.\w+)`",
            page.read_text("utf-8").replace("A new file `", ""),
        )
    )
    roots = (ROOT, ROOT / "src" / "workflowlookup")

    assert sorted(name for name in named if not any((root / name).exists() for root in roots)) == []


def test_every_json_block_is_json() -> None:
    for page in PAGES:
        for block in re.findall(r"```json\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            if block[0] in "{[":
                json.loads(block)


def test_the_page_about_installing_has_every_extra_and_every_client() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)$", (ROOT / "docs" / "install.md").read_text("utf-8"), re.MULTILINE)

    assert [name for name, _ in rows] == [*EXTRAS, "all", *CLIENTS]
    for name, cells in rows[len(EXTRAS) + 1 :]:
        assert cells.count("`") / 2 == len(CLIENTS[name].files), name


@pytest.mark.parametrize("name", EXECUTED)
def test_the_commands_of_a_page_do_what_it_shows(name: str, tmp_path: Path) -> None:
    """From the first to the last, in one project. `# exit code N` says that a command fails; … stands for any text."""
    home, project = tmp_path / "ada", tmp_path / "ada" / "shop"
    (project / ".workflowlookup" / "workflows").mkdir(parents=True)
    (project / "README.md").write_text("A shop.\n")
    (home / "bin").mkdir()
    script = home / "bin" / "workflowlookup"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m workflowlookup "$@"\n')
    script.chmod(0o755)
    environment = {"HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    text = (ROOT / name).read_text("utf-8")
    executed = 0
    for kind, block in re.findall(r"^```(yaml|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if kind == "yaml":
            identifier = block.partition("\n")[0].removeprefix("id: ")
            (project / ".workflowlookup" / "workflows" / f"{identifier}.yaml").write_text(block)
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            if command.startswith(OTHER_PROGRAMS):
                continue
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            seen = f"\n{done.stdout}\n{done.stderr}".replace(str(tmp_path), "/home")
            code = re.search(r"# exit code (\d)$", command)
            expected = re.escape(shown.strip()).replace("…", r"[\s\S]*")
            assert done.returncode == int(code[1] if code else 0), (command, seen)
            assert re.search(expected, seen), (command, shown, seen)
            executed += 1
    assert executed


def test_the_documents_of_the_recipes_are_sound(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.yaml").write_text(block)
    for command in (["validate"], ["fmt", "--check"], ["lint"]):
        done = subprocess.run(
            [sys.executable, "-m", "workflowlookup", *command, tmp_path], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_tutorial_for_cursor_counts_the_tools(start: Start) -> None:
    tools = start().result("tools/list", {})["tools"]

    assert f"The server has {len(tools)}:" in (ROOT / "docs" / "tutorials" / "cursor.md").read_text("utf-8")


def test_the_python_client_of_the_page_about_connecting_works(tmp_path: Path) -> None:
    """The first Python block, against a server that requires its token, prints what the page shows."""
    text = (ROOT / "docs" / "connecting.md").read_text("utf-8")
    program = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
    shown = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": ""}
    create = ["-m", "workflowlookup", "token", "create", "--name", "ada", "--scope", "run"]
    token = subprocess.run(
        [sys.executable, *create], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    server = WebServer(tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, "WORKFLOWLOOKUP_URL": server.url, "WORKFLOWLOOKUP_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        server.stop()

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(shown.partition("…")[0])


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    pages = [path.read_text("utf-8") for path in (tmp_path / "site").rglob("*.html")]
    assert len(pages) > 50
    foreign = r"""<(?:script|img|iframe)[^>]*src=["']?(?:https?:)?//|<link[^>]*rel=["']?(?:stylesheet|preconnect)["']?[^>]*//"""
    assert [page for page in pages if re.search(foreign, page)] == []


def test_the_glossary_is_in_order_with_one_line_for_each_word() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    entries = re.findall(r"^## (.+)\n\n(.+)\n(?:\n|\Z)", text, re.MULTILINE)

    assert len(entries) == text.count("\n## ")
    assert [word for word, _ in entries] == sorted((word for word, _ in entries), key=str.lower)


def test_the_transcript_of_the_tools_page_is_what_the_server_says(start: Start) -> None:
    server = start()
    text = (ROOT / "docs" / "tools.md").read_text("utf-8").split("<!-- transcript")[1]
    requests = re.findall(r"^→ (.*)$", text, re.MULTILINE)
    shown = re.findall(r"^← (.*)$", text, re.MULTILINE)
    assert len(requests) == len(shown) == 3
    for question, answer in zip(map(json.loads, requests), map(json.loads, shown), strict=True):
        assert contains(server.result(question["method"], question["params"]), answer)


def contains(whole: Json, part: Json) -> bool:
    """Whether what a page shows is part of what the server says."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    result: bool = whole == part
    return result


def test_every_command_has_help_with_an_example(tmp_path: Path) -> None:
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


def test_the_lock_file_has_a_fitting_version_of_every_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    required = [one for one in map(Requirement, texts) if one.name != project["name"]]
    lines = (ROOT / "requirements-dev.lock").read_text("utf-8").splitlines()
    locked: dict[str, list[str]] = {}
    for line in map(Requirement, lines):
        locked.setdefault(canonicalize_name(line.name), []).append(str(line.specifier).removeprefix("=="))

    missing = [
        str(one)
        for one in required
        if not any(one.specifier.contains(version) for version in locked.get(canonicalize_name(one.name), ()))
    ]
    assert missing == [], "run `make lock`"


def test_the_project_speaks_of_itself_alone() -> None:
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
