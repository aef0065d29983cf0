"""The official conformance suites against our transport: with their fixtures mounted, and against the real server.

They need npm and Node.js 22, which npm brings along; without a way to the packages the tests are skipped.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.tasks import documents
from support.json_values import JsonObject
from support.make import document, settings_file, write
from support.narrowing import not_none
from support.npm import LOOSELY, install, node_for
from support.web import WebServer
from upstream.upstreams import McpUpstream

HERE = Path(__file__).parent
FOLDER = HERE / "suites"
SUITES = {
    "0.1.16": ("conformance-stable", ()),
    "0.2, handshake": ("conformance-next", ("--spec-version", "2025-11-25")),
    "0.2, envelope": ("conformance-next", ("--spec-version", "2026-07-28")),
}
MAX_SECONDS = 240
NO_FIXTURE = {
    "0.1.16": """server-initialize ping completion-complete tools-list server-sse-multiple-streams resources-list
        prompts-list dns-rebinding-protection""",
    "0.2, handshake": """server-initialize server-session-lifecycle ping completion-complete tools-list
        server-sse-multiple-streams resources-list prompts-list dns-rebinding-protection""",
    "0.2, envelope": """completion-complete tools-list server-sse-multiple-streams resources-list
        sep-2164-resource-not-found prompts-list dns-rebinding-protection caching http-header-validation
        input-required-result-unsupported-methods""",
}
"""The scenarios that every server must pass, whatever it offers."""
TASKS = {
    "tasks-lifecycle": 9,
    "tasks-capability-negotiation": 5,
    "tasks-wire-fields": 4,
    "tasks-request-state-removal": 3,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-status-notifications": 0,
    "tasks-required-task-error": 3,
    "tasks-mrtr-composition": 2,
}
"""The scenarios of the tasks extension, which belong to no suite, and how many checks each has. That of
notifications has none yet: its own text says that it will be rewritten.
"""
SKILLS = {"sep-2640-skills-enumeration": 32, "sep-2640-skills-manifest": 6, "sep-2640-skills-directory": 7}
"""The scenarios of the skills extension, in the same way; they are held against the real server."""
WITHOUT_FIXTURE = 24
"""So many of the checks of `server-stateless` need none."""


@pytest.fixture(scope="module")
def node() -> str:
    install(FOLDER, "the conformance suite", how=LOOSELY)
    return node_for(FOLDER, "the conformance suite")


def run(node: str, suite: str, url: str, results: Path, *which: str) -> tuple[int, str]:
    package, options = SUITES[suite]
    program = FOLDER / "node_modules" / package / "dist" / "index.js"
    which = which or ("--suite", "all", *options)
    command = [node, str(program), "server", "--url", url, *which, "-o", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAX_SECONDS, cwd=results.parent)
    return done.returncode, done.stdout + done.stderr


def checks(results: Path, scenario: str, status: str) -> list[JsonObject]:
    """What came out of a scenario, `*` for all."""
    return [
        check
        for file in results.glob(f"server-{scenario}-20*/checks.json")
        for check in json.loads(file.read_text())
        if check["status"] == status
    ]


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    home = tmp_path_factory.mktemp("fixtures")
    for one in documents():
        write(home / "library", one)
    settings_file(home).write_text(McpUpstream(home / "up").toml())
    server = WebServer(home, program=(str(HERE / "server.py"),), directory=home / "library")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    server = WebServer(tmp_path_factory.mktemp("real"), "--requests-per-minute", "0")
    yield server
    server.stop()


@pytest.mark.parametrize("suite", list(SUITES))
def test_every_scenario_passes_with_its_fixtures(node: str, suite: str, fixtures: WebServer, tmp_path: Path) -> None:
    code, text = run(node, suite, fixtures.url, tmp_path / "results")

    failed = checks(tmp_path / "results", "*", "FAILURE")
    assert [(check["id"], check.get("errorMessage")) for check in failed] == []
    assert code == 0, text
    passed = int(not_none(re.search(r"Total: (\d+) passed, 0 failed", text))[1])
    assert passed >= {"0.1.16": 44, "0.2, handshake": 83, "0.2, envelope": 150}[suite]


@pytest.mark.parametrize("suite", list(SUITES))
def test_every_scenario_without_a_fixture_passes_against_the_real_server(
    node: str, suite: str, real: WebServer, tmp_path: Path
) -> None:
    run(node, suite, real.url, tmp_path / "results")

    for scenario in NO_FIXTURE[suite].split():
        assert checks(tmp_path / "results", scenario, "SUCCESS"), scenario
        assert not checks(tmp_path / "results", scenario, "FAILURE"), scenario
    if suite == "0.2, envelope":
        stateless = checks(tmp_path / "results", "server-stateless", "FAILURE")
        assert [check["id"] for check in stateless if not check.get("details", {}).get("untestable")] == []
        assert len(checks(tmp_path / "results", "server-stateless", "SUCCESS")) >= WITHOUT_FIXTURE


@pytest.mark.parametrize("scenario", list(TASKS))
def test_every_scenario_of_the_tasks_extension_passes(
    node: str, scenario: str, fixtures: WebServer, tmp_path: Path
) -> None:
    code, text = run(node, "0.2, envelope", fixtures.url, tmp_path / "results", "--scenario", scenario)

    failed = checks(tmp_path / "results", "*", "FAILURE")
    assert [(check["id"], check.get("errorMessage")) for check in failed] == []
    assert code == 0, text
    assert len(checks(tmp_path / "results", "*", "SUCCESS")) == TASKS[scenario]


@pytest.fixture(scope="module")
def skills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    home = tmp_path_factory.mktemp("skills")
    for identifier in ("dotted.one", "plain-one"):
        write(home / "library", document(identifier=identifier))
    folder = home / "library" / "dotted.one.files"
    (folder / "templates").mkdir(parents=True)
    (folder / "templates" / "report.md").write_text("# Report\n")
    server = WebServer(home, directory=home / "library")
    yield server
    server.stop()


@pytest.mark.parametrize("scenario", list(SKILLS))
def test_every_scenario_of_the_skills_extension_passes(
    node: str, scenario: str, skills: WebServer, tmp_path: Path
) -> None:
    """Forced, because an extension belongs to no version of the suite."""
    which = ("--spec-version", "2026-07-28", "--force", "--scenario", scenario)
    code, said = run(node, "0.2, envelope", skills.url, tmp_path / "results", *which)

    unmet = [
        check for status in ("FAILURE", "WARNING", "SKIPPED") for check in checks(tmp_path / "results", "*", status)
    ]
    assert [(check["id"], check.get("errorMessage")) for check in unmet] == []
    assert code == 0, said
    assert len(checks(tmp_path / "results", "*", "SUCCESS")) == SKILLS[scenario]


def test_there_are_no_other_scenarios_of_extensions(node: str) -> None:
    """So that a newer suite is not passed by not being run."""
    by_package = {}
    for package, _ in SUITES.values():
        program = FOLDER / "node_modules" / package / "dist" / "index.js"
        done = subprocess.run([node, str(program), "list", "--server"], capture_output=True, text=True, check=True)
        by_package[package] = set(re.findall(r"- (tasks-[\w-]+|[\w-]+-skills-[\w-]+)", done.stdout))

    assert by_package == {"conformance-stable": set(), "conformance-next": {*TASKS, *SKILLS}}
