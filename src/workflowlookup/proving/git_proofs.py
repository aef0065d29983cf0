"""Proofs of kind `git`: what has changed, what has not, commits, and the branch."""

from collections.abc import Iterator, Sequence
from typing import Final

from workflowlookup.language.formats.patterns import BadPattern, Budget, TooSlow, compile_pattern
from workflowlookup.language.proof import GitProof
from workflowlookup.language.text import plural
from workflowlookup.proving.contract import CannotJudge, Fault, ProofTask, World
from workflowlookup.proving.files import Glob, escape, shown
from workflowlookup.proving.git import Repository, in_submodule
from workflowlookup.runs.events import Judgement

MAX_DIGESTS: Final = 100


def take_git(task: ProofTask, world: World) -> Judgement:
    """Take the proof. Raises `CannotJudge`."""
    proof = task.proof
    assert isinstance(proof, GitProof)
    repository = world.repositories.find(task.root, world.stop)
    if repository is None:
        raise CannotJudge("The project directory is not in a git repository.", "Use one that is: `git init`.")
    if doing := repository.in_progress():
        raise CannotJudge(f"A {doing} is in progress.", f"Finish it or give it up: `git {doing} --abort`.")
    looked_at: list[str] = []
    reason, remedy = next(_faults(task, repository, looked_at), ("", ""))
    return Judgement(
        name=proof.name,
        kind="git",
        verdict="failed" if reason else "passed",
        summary=task.summary(),
        reason=reason,
        remedy=remedy,
        digests=repository.digests(sorted(set(looked_at))[:MAX_DIGESTS]),
    )


def _faults(task: ProofTask, repository: Repository, looked_at: list[str]) -> Iterator[Fault]:
    proof = task.proof
    assert isinstance(proof, GitProof)
    if proof.changed or proof.unchanged:
        changed = repository.changed(task.snapshot(proof.since))
        yield from _faults_of_changes(task, repository, changed, looked_at)
    if proof.clean is not None and proof.clean is not repository.is_clean():
        names = sorted(map(shown, repository.state().changes))[:3]
        if proof.clean:
            listed = f": {', '.join(names)}" if names else " (in the index or in a submodule)"
            yield f"There are uncommitted changes{listed}.", "Commit them, or undo them."
        else:
            yield "There are no uncommitted changes.", "Do what the step asks for before you commit."
    if proof.commits:
        number = repository.commits_since(task.snapshot(proof.since).commit)
        if number < proof.commits:
            made = f"{plural(number, 'commit')} {'was' if number == 1 else 'were'} made since the {proof.since} began"
            yield f"{made}; at least {plural(proof.commits, 'commit')} must be.", "Commit the work."
    if proof.branch:
        yield from _faults_of_branch(proof, repository.state().branch)


def _faults_of_changes(
    task: ProofTask, repository: Repository, changed: Sequence[str], looked_at: list[str]
) -> Iterator[Fault]:
    proof = task.proof
    assert isinstance(proof, GitProof)
    wanted, unwanted = ([task.fill(glob, escape) for glob in globs] for globs in (proof.changed, proof.unchanged))
    if inside := repository.submodule_file([*wanted, *unwanted]):
        raise in_submodule(inside)
    for glob in map(Glob, wanted):
        names = [name for name in changed if glob.matches(name)]
        looked_at += names
        if not names:
            reason = f"No file that matches '{shown(glob.text)}' has changed since the {proof.since} began."
            yield reason, "Change what the step asks for."
    hidden = repository.hidden(unwanted, task.snapshot(proof.since)) if unwanted else []
    for glob in map(Glob, unwanted):
        names = [name for name in (*changed, *hidden) if glob.matches(name)]
        looked_at += names
        if names:
            listed = ", ".join(map(shown, names[:3])) + (", …" if len(names) > 3 else "")
            may_not = f"and nothing that matches '{shown(glob.text)}' may"
            reason = f"{listed} changed since the {proof.since} began, {may_not}."
            yield reason, f"Undo the change; `git diff {shown(names[0])}` shows it, unless it was committed."


def _faults_of_branch(proof: GitProof, branch: str) -> Iterator[Fault]:
    if not branch:
        yield "No branch is checked out (HEAD is detached).", "Switch to a branch: `git switch`."
        return
    budget = Budget()
    try:
        matches = compile_pattern(proof.branch, "m", budget)(branch, budget)
    except (BadPattern, TooSlow) as problem:
        raise CannotJudge(
            f"The pattern for the branch cannot be applied: {str(problem) or 'it took too long'}.", "Ask the author."
        ) from problem
    if not matches:
        yield f"The branch '{shown(branch)}' does not match /{proof.branch}/.", "Switch to a branch that does."
