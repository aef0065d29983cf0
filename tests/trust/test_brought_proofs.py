"""Proofs that a repository brought run nothing before a person trusted exactly that, and the run says so."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from support.json_values import JsonObject
from support.make import document, step
from support.proving import Project
from workflowlookup.app import commands_of
from workflowlookup.errors import Untrusted
from workflowlookup.execution.proof_runner import UNSEEN, ProofRunner
from workflowlookup.language.document.building import build
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Location, Moment
from workflowlookup.runs.events import Judgement
from workflowlookup.runs.run import Run
from workflowlookup.settings import Settings, SettingsError, read_settings
from workflowlookup.trust import Consent, TrustEntry, TrustStore, digests_of, step_entries

RUN: JsonObject = {"kind": "command", "name": "tests", "run": ["touch", "ran"]}
AWAY: JsonObject = {"kind": "http", "name": "up", "url": "https://example.com/"}
HERE: JsonObject = {"kind": "http", "name": "up", "url": "http://localhost:1/"}
CALL = {"server": "s", "tool": "t"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "clone"
    (root / ".git").mkdir(parents=True)
    return Project(root)


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(str(tmp_path / "config" / "trust.json"))


def run_of(project: Project, proof: JsonObject, origin: str, **location: Any) -> Run:
    """A run whose output is to be proven."""
    workflow = build(document(step("one", proof=[proof])), origin)
    at = Moment(time=1)
    where = Location(**{"root": str(project.root), "machine": "here", **location})
    return advance.submit(advance.begin("r1", workflow, {}, {}, at, location=where).run, "one", "done", {}, at).run


def taken(run: Run, store: TrustStore, **commands: list[str]) -> Judgement:
    runner = ProofRunner(lambda _: commands, tuple, Consent(store), "here")
    try:
        return asyncio.run(runner.take(run, run.step.proofs[0]))
    finally:
        runner.close()


def test_a_command_of_a_repository_runs_only_after_trust_in_exactly_it(project: Project, store: TrustStore) -> None:
    origin = str(project.root / "w.json")
    run = run_of(project, RUN, origin)

    before = taken(run, store)
    assert (before.verdict, (project.root / "ran").exists()) == ("unproved", False)
    assert "not trusted, because it came with a repository: commands that prove step 'sample-workflow/one'" in (
        before.reason
    )
    assert f"workflowlookup trust {origin}" in before.reason

    os.makedirs(os.path.dirname(store.path))
    store.trust(digests_of(step_entries(origin, run.workflow.document)), by="tests", time=1)
    other = taken(run_of(project, {**RUN, "run": ["touch", "other"]}, origin), store)
    assert (other.verdict, (project.root / "other").exists()) == ("unproved", False)
    assert (taken(run, store).verdict, (project.root / "ran").exists()) == ("passed", True)


@pytest.mark.parametrize("more", [{"args": ["ran"]}, {"env": ["LD_PRELOAD"]}])
def test_what_a_repository_adds_to_a_command_of_the_user_needs_trust(
    project: Project, store: TrustStore, more: JsonObject
) -> None:
    origin = str(project.root / "w.json")
    use: JsonObject = {"kind": "command", "name": "tests", "use": "test"}
    run = run_of(project, {**use, **more}, origin)
    command = ["touch", "plain"]

    assert (taken(run, store, test=command).verdict, sorted(os.listdir(project.root))) == ("unproved", [".git"])
    assert taken(run_of(project, use, origin), store, test=command).verdict == "passed"

    os.makedirs(os.path.dirname(store.path))
    store.trust(digests_of(step_entries(origin, run.workflow.document)), by="tests", time=1)
    assert taken(run, store, test=command).verdict == "passed"


def test_the_users_own_workflow_needs_no_trust(project: Project, store: TrustStore) -> None:
    assert taken(run_of(project, RUN, ""), store).verdict == "passed"


def test_a_workflow_with_untrusted_proofs_can_be_started_but_one_with_untrusted_calls_cannot(store: TrustStore) -> None:
    consent = Consent(store)
    consent.refuse_untrusted("/clone/w.json", document(step("one", proof=[RUN])))

    assert [entry.kind for entry in consent.untrusted("/clone/w.json", document(step("one", proof=[RUN])))] == ["run"]
    with pytest.raises(Untrusted):
        consent.refuse_untrusted("/clone/w.json", document(step("one", call=CALL), step("two", proof=[RUN])))


def test_only_hosts_of_other_machines_need_trust() -> None:
    entries = step_entries("/clone/w.json", document(step("one", proof=[HERE]), step("two", proof=[AWAY])))

    assert [(entry.kind, entry.name) for entry in entries] == [("http", "sample-workflow/two")]


@pytest.mark.parametrize("location", [{"root": ""}, {"machine": "elsewhere"}])
@pytest.mark.parametrize("proof", [RUN, HERE, {"kind": "file", "path": "a"}, {"kind": "git", "clean": True}])
def test_what_the_server_cannot_see_is_unproved(
    project: Project, store: TrustStore, location: dict[str, str], proof: JsonObject
) -> None:
    judgement = taken(run_of(project, proof, "", **location), store)

    assert (judgement.verdict, judgement.reason.startswith(UNSEEN)) == ("unproved", True)
    assert "workflowlookup witness --server URL" in judgement.remedy


def test_a_command_of_the_project_that_is_not_trusted_says_so(project: Project, store: TrustStore) -> None:
    file = str(project.root / "workflowlookup.toml")
    ignored = TrustEntry(file=file, kind="commands", name="test", value=["make", "test"])
    runner = ProofRunner(lambda _: {}, tuple, Consent(store, lambda: [ignored]), "here")
    run = run_of(project, {"kind": "command", "use": "test"}, "")

    judgement = asyncio.run(runner.take(run, run.step.proofs[0]))
    runner.close()

    assert judgement.verdict == "unproved"
    assert f"command 'test'. A person can look at it and allow it in a terminal: `workflowlookup trust {file}`" in (
        judgement.reason
    )


# ── commands in the settings ────────────────────────────────────────────────────────────────────────────────────


def read(project: Project, tmp_path: Path) -> Settings:
    return read_settings({}, {"XDG_CONFIG_HOME": str(tmp_path / "config")}, directory=str(project.root))


def own_file(tmp_path: Path) -> Path:
    file = tmp_path / "config" / "workflowlookup" / "workflowlookup.toml"
    file.parent.mkdir(parents=True)
    return file


def test_the_users_commands_count_at_once_and_those_of_a_repository_after_trust(
    project: Project, tmp_path: Path
) -> None:
    own_file(tmp_path).write_text('[commands]\ntest = ["make", "test"]\nlint = ["ruff"]\n')
    project.write("check.sh", "true\n")
    project.write("workflowlookup.toml", '[commands]\ntest = ["sh", "check.sh"]\n')

    settings = read(project, tmp_path)
    assert settings.commands == {"test": ("make", "test"), "lint": ("ruff",)}
    settings.trust.store().trust(digests_of(settings.ignored), by="tests", time=1)
    assert read(project, tmp_path).commands == {"test": ("sh", "check.sh"), "lint": ("ruff",)}
    assert commands_of(settings, str(project.root))["test"] == ("sh", "check.sh"), "read again for each proof"

    project.write("check.sh", "false\n")
    assert commands_of(settings, str(project.root))["test"] == ("make", "test"), "a changed program is not trusted"


@pytest.mark.parametrize(
    "text", ["commands = 1", "[commands]\ntest = 'make'", "[commands]\ntest = []", "[commands.a]\nb=1"]
)
def test_commands_are_lists_of_texts(project: Project, tmp_path: Path, text: str) -> None:
    project.write("workflowlookup.toml", text)
    assert "commands must be a table of lists" in read(project, tmp_path).faults[0]

    own_file(tmp_path).write_text(text)
    with pytest.raises(SettingsError, match="commands must be a table of lists"):
        read(project, tmp_path)


def test_the_commands_of_another_root_are_those_of_its_own_settings(project: Project, tmp_path: Path) -> None:
    own_file(tmp_path).write_text("")
    elsewhere = Project(tmp_path / "other")
    (elsewhere.root / ".git").mkdir(parents=True)
    project.write("workflowlookup.toml", '[commands]\ntest = ["one"]\n')
    settings = read(project, tmp_path)
    settings.trust.store().trust(digests_of(settings.ignored), by="tests", time=1)

    assert commands_of(read(project, tmp_path), str(project.root)) == {"test": ("one",)}
    assert "test" not in commands_of(read(project, tmp_path), str(elsewhere.root))
