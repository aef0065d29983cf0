"""`add`, `update`, `outdated`, `remove`: libraries from git repositories, and how they are used and refused."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from support.command_line import Cli
from support.make import document, step
from support.repositories import GitRepository
from support.waiting import wait_until
from workflowlookup.access import Access
from workflowlookup.app import make_catalog, make_console
from workflowlookup.auth.scoped import ScopedCatalog
from workflowlookup.cli.main import main
from workflowlookup.errors import NotAsLocked
from workflowlookup.library.catalog import Catalog
from workflowlookup.settings import read_settings
from workflowlookup.trust import TrustStore, step_entries

FLOW = document(identifier="team-flow")
OTHER = document(identifier="other-flow")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Made once; each test has a copy."""
    repository = GitRepository(tmp_path_factory.mktemp("pristine") / "team")
    repository.commit(
        {"flows/team.json": json.dumps(FLOW), "flows/other.json": json.dumps(OTHER), "README.md": "Read."}
    )
    repository.git("tag", "v1")
    return repository


@pytest.fixture
def upstream(pristine: GitRepository, tmp_path: Path) -> GitRepository:
    root = tmp_path / "upstream" / "team"
    shutil.copytree(pristine.root, root)
    return GitRepository(root)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command in a project of its own, with a home of its own."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    for name in [name for name in os.environ if name.startswith(("WORKFLOW", "XDG_", "CLAUDE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WORKFLOWLOOKUP_BUNDLED", "false")

    def run_command(*words: str) -> Outcome:
        capfd.readouterr()
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        return Outcome(code, *capfd.readouterr())

    return run_command


@pytest.fixture
def project(run: Run, tmp_path: Path) -> Path:
    return tmp_path / "project"


def trust_sources() -> None:
    """What a person does with `workflowlookup trust` in a terminal."""
    settings = read_settings({}, os.environ, directory=os.getcwd())
    entries = settings.from_repository
    TrustStore(settings.trust.path).trust([(entry, entry.digest({})) for entry in entries], by="terminal", time=0)


def listed(run: Run) -> set[str]:
    return {one["id"] for one in json.loads(run("list", "--json").out)["workflows"]}


def cached(tmp_path: Path) -> dict[str, Path]:
    """The cached documents by name."""
    return {path.name: path for path in (tmp_path / "home" / ".cache").rglob("*.json")}


def lock_of(project: Path) -> dict[str, dict[str, object]]:
    sources: dict[str, dict[str, object]] = json.loads((project / "workflowlookup.lock").read_text())["sources"]
    return sources


@pytest.fixture
def added(run: Run, upstream: GitRepository) -> GitRepository:
    """A repository whose main branch is in the library, and may be fetched again."""
    outcome = run("add", upstream.url, "--rev", "main", "--path", "flows")
    assert outcome.code == 0, outcome.err
    trust_sources()
    return upstream


# ── the journey ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_library_is_added_used_updated_and_removed(run: Run, upstream: GitRepository, project: Path) -> None:
    first = upstream.git("rev-parse", "HEAD")
    outcome = run("add", upstream.url, "--rev", "main", "--path", "flows")
    assert (outcome.code, "team-flow" in outcome.out) == (0, True)
    assert (project / "workflowlookup.toml").read_text() == (
        f'[sources.team]\nurl = "{upstream.url}"\nrev = "main"\npath = "flows"\n'
    )
    assert lock_of(project)["team"]["commit"] == first
    assert listed(run) == {"team-flow", "other-flow"}
    assert f"{upstream.url}@main (commit {first[:12]})" in run("list").out
    assert f"{upstream.url}@main (commit {first[:12]})" in run("show", "team-flow").out
    assert "Do first-step." in run("next", "team-flow").out

    trust_sources()
    assert run("outdated") == (0, "Everything is up to date.\n", "")
    second = upstream.commit(
        {"flows/team.json": json.dumps(document(step(prompt="Do it well."), identifier="team-flow"))}
    )
    outdated = run("outdated")
    assert outdated.code == 1
    assert f"The branch main has new commits: {first[:12]} before, {second[:12]} now." in outdated.out
    assert "~ team-flow  team.json" in outdated.out
    refused = run("update")
    assert (refused.code, "add --yes" in refused.err) == (1, True)
    assert "-Do first-step.\n" in refused.out
    assert "+Do it well.\n" in refused.out
    assert lock_of(project)["team"]["commit"] == first
    assert "Do first-step." in run("next", "team-flow").out

    assert run("update", "--yes").code == 0
    assert lock_of(project)["team"]["commit"] == second
    assert "Do it well." in run("next", "team-flow").out
    assert run("remove", "team").code == 0
    assert listed(run) == set()
    assert (project / "workflowlookup.toml").read_text().strip() == ""
    assert not (project / "workflowlookup.lock").exists()


def test_a_running_server_uses_what_was_updated(run: Run, added: GitRepository) -> None:
    catalog = make_catalog(read_settings({}, os.environ, directory=os.getcwd()))
    before = catalog.get("team-flow").version
    added.commit({"flows/team.json": json.dumps({**FLOW, "version": "7.0.0"})})
    run("update", "--yes")

    wait_until(lambda: catalog.get("team-flow").version == "7.0.0")
    assert before == "1.0.0"


def test_a_workflow_in_markdown_is_one_of_a_library(run: Run, added: GitRepository) -> None:
    text = "---\nid: page-flow\nname: Page\ndescription: A page.\n---\n\n## Do it\n\nDo it well.\n"
    added.commit({"flows/page.workflow.md": text})

    assert "+ page-flow  page.workflow.md" in run("update", "--yes").out
    assert "Do it well." in run("next", "page-flow").out


def test_a_person_is_asked_before_an_update_is_locked(
    run: Run, added: GitRepository, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lock_of(project)
    added.commit({"flows/new.json": json.dumps(document(identifier="new-flow"))})
    for name in ("is_terminal", "is_interactive"):
        monkeypatch.setattr(f"workflowlookup.cli.commands.update.{name}", lambda: True)
    answers: Iterator[bool] = iter([False, True])
    monkeypatch.setattr("workflowlookup.cli.commands.update.ask_yes_or_no", lambda _: next(answers))

    assert (run("update").code, lock_of(project)) == (1, before)
    assert (run("update").code, listed(run)) == (0, {"team-flow", "other-flow", "new-flow"})


def test_without_a_path_the_workflows_of_a_project_are_taken(run: Run, upstream: GitRepository) -> None:
    upstream.commit({".workflowlookup/workflows/own.json": json.dumps(document(identifier="own-flow"))})

    assert run("add", upstream.url).code == 0
    assert listed(run) == {"own-flow"}


def test_what_is_added_again_is_fetched_as_it_is_locked(run: Run, upstream: GitRepository, tmp_path: Path) -> None:
    words = ("add", upstream.url, "--rev", "main", "--path", "flows")
    run(*words)
    upstream.commit({"flows/team.json": "{}"})
    shutil.rmtree(tmp_path / "home" / ".cache")

    assert run(*words).code == 0
    assert listed(run) == {"team-flow", "other-flow"}


def test_another_revision_replaces_the_source(run: Run, added: GitRepository, project: Path) -> None:
    assert run("add", added.url, "--rev", "v1", "--path", "flows").code == 0
    assert (project / "workflowlookup.toml").read_text().count("[sources.team]") == 1
    assert (lock_of(project)["team"]["rev"], lock_of(project)["team"]["kind"]) == ("v1", "tag")


def test_ones_own_settings_have_their_own_lock(
    run: Run, upstream: GitRepository, project: Path, tmp_path: Path
) -> None:
    assert run("add", upstream.url, "--own").code == 0

    assert not (project / "workflowlookup.toml").exists()
    own = tmp_path / "home" / ".config" / "workflowlookup"
    assert {"workflowlookup.toml", "workflowlookup.lock"} <= {path.name for path in own.iterdir()}
    assert run("update").code == 0, "one's own settings need no trust"


def test_two_can_add_at_once(run: Run, upstream: GitRepository, project: Path, tmp_path: Path) -> None:

    command = [sys.executable, "-m", "workflowlookup", "add", upstream.url, "--name"]
    processes = [subprocess.Popen([*command, name], stdout=subprocess.DEVNULL) for name in ("one", "two", "three")]

    assert [process.wait() for process in processes] == [0, 0, 0]
    assert lock_of(project).keys() == {"one", "two", "three"}
    assert run("list", "--frozen").code == 0


def test_ones_own_workflows_count_before_those_from_git(run: Run, added: GitRepository, tmp_path: Path) -> None:
    own = tmp_path / "home" / ".workflowlookup" / "workflows"
    own.mkdir(parents=True)
    (own / "mine.json").write_text(json.dumps(document(identifier="team-flow", name="Mine")))

    report = json.loads(run("doctor", "--json").out)

    assert "# Mine" in run("show", "team-flow").out
    assert [(one["id"], one["by"]) for one in report["shadowed"]] == [("team-flow", str(own / "mine.json"))]
    assert f"sources.team: {added.url}@main (commit " in report["shadowed"][0]["hidden"]


# ── what upstream does ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_moved_tag_and_a_rewritten_branch_are_called_what_they_are(run: Run, upstream: GitRepository) -> None:
    first = upstream.git("rev-parse", "HEAD")
    run("add", upstream.url, "--rev", "v1", "--name", "tagged", "--path", "flows")
    run("add", upstream.url, "--rev", "main", "--name", "branch", "--path", "flows")
    trust_sources()
    upstream.git("commit", "-q", "--amend", "-m", "rewritten")
    upstream.git("tag", "-f", "v1")
    second = upstream.git("rev-parse", "HEAD")

    outdated, updated = run("outdated"), run("update", "--yes")

    for outcome in (outdated, updated):
        moved = f"The tag v1 now points to another commit: {first[:12]} before, {second[:12]} now."
        assert moved in outcome.out
        assert f"The branch main was rewritten (force-pushed): {first[:12]} is no longer in its history." in outcome.out
        assert "No workflow changes." in outcome.out
    assert (outdated.code, updated.code, run("outdated").code) == (1, 0, 0)


def test_a_lost_branch_is_named_and_the_library_still_works(run: Run, added: GitRepository) -> None:
    added.git("branch", "-m", "main", "trunk")

    outcome = run("update", "--yes")

    assert (outcome.code, "has no branch or tag 'main'" in outcome.err) == (1, True)
    assert listed(run) == {"team-flow", "other-flow"}


def test_a_document_that_breaks_upstream_is_named_in_the_differences(run: Run, added: GitRepository) -> None:
    added.commit({"flows/team.json": '{"id": "team-flow"}'})

    outcome = run("update")

    assert "~ team.json" in outcome.out
    assert "It cannot be used: " in outcome.out


# ── offline, frozen, tampered ───────────────────────────────────────────────────────────────────────────────────


def test_a_library_works_without_its_repository(run: Run, added: GitRepository) -> None:
    shutil.rmtree(added.root)

    assert listed(run) == {"team-flow", "other-flow"}
    assert run("list", "--frozen").code == 0
    assert (run("outdated").code, run("update").code) == (1, 1)


def test_a_missing_cache_is_an_error_of_this_source_alone(
    run: Run, added: GitRepository, project: Path, tmp_path: Path
) -> None:
    own = project / ".workflowlookup" / "workflows"
    own.mkdir(parents=True)
    (own / "mine.json").write_text(json.dumps(document(identifier="my-flow")))
    shutil.rmtree(tmp_path / "home" / ".cache")

    assert listed(run) == {"my-flow"}
    assert "`workflowlookup update --locked` fetches it again" in run("list").err
    assert run("validate").code == 1
    assert (run("list", "--frozen").code, "is not in the cache" in run("list", "--frozen").err) == (1, True)
    assert run("update", "--locked").code == 0
    assert listed(run) == {"my-flow", "team-flow", "other-flow"}
    assert run("validate").code == 0


def test_a_changed_document_in_the_cache_is_refused_by_name_and_others_go_on(
    run: Run, added: GitRepository, tmp_path: Path
) -> None:
    files = cached(tmp_path)
    files["team.json"].write_text(json.dumps(document(step(prompt="Evil."), identifier="team-flow")))
    (files["team.json"].parent / "added.json").write_text(json.dumps(document(identifier="added-flow")))

    assert listed(run) == {"other-flow"}
    changed = f"{files['team.json']} has another content than the lock file says"
    extra = "added.json is not in the lock file"
    assert "is missing" not in run("list").err
    for outcome in (run("list"), run("validate"), run("doctor"), run("list", "--frozen"), run("show", "team-flow")):
        assert changed in outcome.out + outcome.err
    assert extra in run("validate").out
    assert run("update", "--locked").code == 0
    assert listed(run) == {"team-flow", "other-flow"}


def test_a_deleted_document_in_the_cache_is_missed(run: Run, added: GitRepository, tmp_path: Path) -> None:
    cached(tmp_path)["team.json"].unlink()

    assert listed(run) == {"other-flow"}
    assert "team.json is missing from the cache" in run("validate").out
    assert (run("update").code, listed(run)) == (0, {"team-flow", "other-flow"})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"team.json": "', '"team.json": "0', "cannot be used"),
        ('"commit": "', '"commit": "../../', "cannot be used"),
        ('"other.json"', '"../other.json"', "leads out of its source"),
        ('"rev": "main"', '"rev": "v1"', "has .*@v1 for it"),
        ('"team": {', '"other": {', "does not have it"),
        ("{", "", "cannot be used"),
    ],
)
def test_a_tampered_lock_is_refused(
    run: Run, added: GitRepository, project: Path, old: str, new: str, message: str
) -> None:
    lock = project / "workflowlookup.lock"
    lock.write_text(lock.read_text().replace(old, new, 1))

    assert listed(run) == set()
    outcome = run("list", "--frozen")
    assert outcome.code == 1
    assert re.search(message, outcome.err), outcome.err


def test_a_digest_that_was_changed_in_the_lock_is_noticed(run: Run, added: GitRepository, project: Path) -> None:
    lock = project / "workflowlookup.lock"
    digest = str(dict(lock_of(project)["team"]["documents"])["team.json"])  # type: ignore[call-overload]
    lock.write_text(lock.read_text().replace(digest, "0" * 64))

    assert listed(run) == {"other-flow"}
    outcome = run("update", "--locked")
    assert (outcome.code, "the lock file does not belong to commit" in outcome.err) == (1, True)
    assert "The lock file had other digests" in run("update", "--yes").out
    assert listed(run) == {"team-flow", "other-flow"}


def test_frozen_never_fetches_and_refuses_what_is_not_locked(run: Run, added: GitRepository, project: Path) -> None:
    for words in (
        ("add", added.url),
        ("import", added.url),
        ("update",),
        ("update", "--locked"),
        ("outdated",),
        ("remove", "team"),
    ):
        outcome = run(*words, "--frozen")
        assert (outcome.code, "frozen is set (--frozen)" in outcome.err) == (1, True)
    settings = project / "workflowlookup.toml"
    settings.write_text(f'[sources.new]\nurl = "{added.url}"\n')

    problem = run("serve", "--frozen").err

    assert "The source 'new' is" in problem
    assert "has the source 'team', and the settings do not" in problem


# ── trust ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_project_cannot_have_anything_fetched_until_it_is_trusted(
    run: Run, upstream: GitRepository, project: Path, tmp_path: Path
) -> None:
    (project / "workflowlookup.toml").write_text(f'[sources.team]\nurl = "{upstream.url}"\npath = "flows"\n')

    outcomes = [run(*words) for words in (("update", "--yes"), ("update", "--locked"), ("outdated",))]

    assert [outcome.code for outcome in outcomes] == [1, 1, 1]
    assert all("you have not trusted that" in outcome.err for outcome in outcomes)
    assert cached(tmp_path) == {}
    assert "fetching of source" in run("trust", "--list").out or '"sources"' in run("trust", "--list", "--json").out
    trust_sources()
    assert run("update", "--yes").code == 0
    assert listed(run) == {"team-flow", "other-flow"}


def test_a_project_can_name_only_repositories_that_may_be_fetched(run: Run, project: Path) -> None:
    (project / "workflowlookup.toml").write_text(
        '[sources.evil]\nurl = "ext::sh -c id"\n[sources.rev]\nurl = "https://a/b"\nrev = "--upload-pack=x"\n'
    )

    report = json.loads(run("doctor", "--json").out)

    problems = " ".join(one["problem"] for one in report["problems"])
    assert "[sources.evil]" in problems
    assert "[sources.rev]" in problems
    assert run("list", "--frozen").code == 1


CALLS = document(
    step("ask", proof=[{"kind": "command", "name": "check", "run": ["make", "test"]}]), identifier="team-flow"
)


def test_commands_of_a_library_need_trust_by_content_which_outlasts_an_update(
    run: Run, added: GitRepository, project: Path
) -> None:
    added.commit({"flows/team.json": json.dumps(CALLS)})
    run("update", "--yes")

    (entry,) = [one for one in entries(run) if one["kind"] == "run"]
    assert entry["state"] == "not trusted"
    trust_documents()
    assert [one["state"] for one in entries(run) if one["kind"] == "run"] == ["trusted"]

    added.commit({"flows/team.json": json.dumps({**CALLS, "version": "2.0.0"})})
    run("update", "--yes")
    assert [one["state"] for one in entries(run) if one["kind"] == "run"] == ["trusted"]
    added.commit({"flows/team.json": json.dumps(CALLS).replace("make", "evil")})
    run("update", "--yes")
    assert [one["state"] for one in entries(run) if one["kind"] == "run"] == ["changed"]


def entries(run: Run) -> list[dict[str, str]]:
    listed_entries: list[dict[str, str]] = json.loads(run("trust", "--list", "--json").out)["entries"]
    return listed_entries


def trust_documents() -> None:
    from workflowlookup.app import make_catalog

    settings = read_settings({}, os.environ, directory=os.getcwd())
    found = [
        entry
        for workflow in make_catalog(settings).workflows()
        if workflow.origin
        for entry in step_entries(workflow.origin, workflow.document)
    ]
    TrustStore(settings.trust.path).trust([(entry, entry.digest({})) for entry in found], by="terminal", time=0)


def test_a_path_into_the_cache_is_foreign_too(run: Run, added: GitRepository, tmp_path: Path) -> None:
    url = "https://example.com/health"
    request = step("check", proof=[{"kind": "http", "name": "health", "url": url, "status": 200}])
    call = {"id": "send", "title": "Send", "call": {"server": "mail", "tool": "send"}}
    steps = [*CALLS["steps"], request, call]
    added.commit({"flows/team.json": json.dumps({**CALLS, "steps": steps})})
    run("update", "--yes")
    path = max(cached_copies(tmp_path, "team.json"), key=lambda one: one.stat().st_mtime_ns)

    rows = json.loads(run("trust", "--list", "--json", str(path)).out)["entries"]
    assert {one["kind"]: one["state"] for one in rows} == dict.fromkeys(("run", "http", "call"), "not trusted")


def cached_copies(tmp_path: Path, name: str) -> list[Path]:
    return list((tmp_path / "home" / ".cache").rglob(name))


def test_a_person_trusts_a_source_and_its_commands_in_a_terminal(upstream: GitRepository, tmp_path: Path) -> None:
    upstream.commit({"flows/team.json": json.dumps(CALLS)})
    directory = tmp_path / "project"
    (directory / ".git").mkdir(parents=True)
    cli = Cli(directory)
    assert cli.own.is_dir(), "the settings of the person are outside the project"
    assert cli("add", upstream.url, "--path", "flows").returncode == 0

    sitting = cli.sit_down("trust", columns=400)
    sitting.see(f'"url": "{upstream.url}"').see("May `update` and `outdated` fetch from this?").type("y\n")
    sitting.see(f"from {upstream.url} (commit ").see("make").see("May this run").type("n\n")

    assert sitting.leave()[0] == 1
    assert cli("update").returncode == 0
    states = {one["name"]: one["state"] for one in json.loads(cli("trust", "--list", "--json").stdout)["entries"]}
    assert states == {"team": "trusted", "team-flow/ask": "not trusted"}


def test_the_console_says_where_a_workflow_comes_from(run: Run, added: GitRepository) -> None:
    settings = read_settings({}, os.environ, directory=os.getcwd())
    console = make_console(settings, person="ann", port=8000)
    with TestClient(console.app, base_url="http://127.0.0.1:8000") as browser:
        browser.get(console.entry_path)
        pages = [browser.get(path).text for path in ("/library", "/library/team-flow")]

    commit = lock_of(Path.cwd())["team"]["commit"]
    assert all(f"{added.url}@main (commit {str(commit)[:12]})" in html.unescape(page) for page in pages)


def test_callers_over_http_learn_neither_the_repository_nor_the_cache(
    run: Run, added: GitRepository, tmp_path: Path
) -> None:
    cached(tmp_path)["other.json"].write_text("changed")
    catalog = make_catalog(read_settings({}, os.environ, directory=os.getcwd()))
    caller = ScopedCatalog(catalog, Access(name="token x", kind="agent", scopes=frozenset({"read"})))

    snapshot = caller.snapshot()
    with pytest.raises(NotAsLocked) as refusal:
        caller.get("other")

    texts = [*map(repr, snapshot.entries.values()), *(str(one.file.refusal) for one in snapshot.problems)]
    texts += [str(refusal.value), repr(refusal.value.data)]
    assert snapshot.entries.keys() == {"team-flow", "other"}
    assert not [text for text in texts if str(tmp_path) in text]


# ── mistakes ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("add", "ext::sh -c id"), 2, "expected a URL that begins with https://"),
        (("add", "https://example.com/a", "--name", "a.b"), 2, "a name has letters"),
        (("add", "git@example.com:team/flows.git"), 2, "write ssh://git@example.com/team/flows.git"),
        (("add", "https://example.com/a", "--rev", "-x"), 2, "expected one argument"),
        (("add", "https://example.com/a", "--rev=-x"), 2, "the name of a branch"),
        (("update", "nothing"), 2, "there is no source 'nothing'"),
        (("remove", "nothing"), 2, "there is no source 'nothing'"),
    ],
)
def test_mistakes_are_explained(run: Run, words: tuple[str, ...], code: int, message: str) -> None:
    outcome = run(*words)

    assert (outcome.code, message in outcome.err) == (code, True), outcome.err


def test_a_repository_without_workflows_is_not_added(run: Run, upstream: GitRepository, project: Path) -> None:
    upstream.commit({"data/package.json": "{}"})

    outcome = run("add", upstream.url, "--path", "data")

    assert (outcome.code, "has no workflow that can be used" in outcome.err) == (1, True)
    assert not (project / "workflowlookup.toml").exists()
    assert not (project / "workflowlookup.lock").exists()


def test_a_name_that_is_taken_by_another_repository_is_refused(run: Run, added: GitRepository) -> None:
    outcome = run("add", "https://example.com/other/team.git")

    assert (outcome.code, "choose a name with --name" in outcome.err) == (1, True)


def test_the_files_of_a_workflow_are_locked_with_it(run: Run, upstream: GitRepository, tmp_path: Path) -> None:
    upstream.commit({"flows/team.files/template.md": "One."})
    run("add", upstream.url, "--path", "flows")
    trust_sources()
    upstream.commit({"flows/team.files/template.md": "Two."})

    assert "~ team.files/template.md" in run("update", "--yes").out
    (template,) = [path for path in cached_copies(tmp_path, "template.md") if path.read_text() == "Two."]
    settings = read_settings({}, os.environ, directory=os.getcwd())
    assert make_catalog(settings).read_attachment("team-flow", "template.md") == b"Two."
    template.write_text("Evil.")
    for read in (Catalog.attachments, lambda catalog, id_: catalog.read_attachment(id_, "template.md")):
        with pytest.raises(NotAsLocked, match=r"template\.md"):
            read(make_catalog(settings), "team-flow")
    assert run("list", "--frozen").code == 1
    assert run("update", "--locked").code == 0
    assert template.read_text() == "Two."
