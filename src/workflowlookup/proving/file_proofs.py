"""Proofs of kind `file`: what is in the root, and whether it has changed."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.formats.schemas import BadSchema
from workflowlookup.language.formats.syntax import SyntaxProblem, parse_json
from workflowlookup.language.proof import FileProof
from workflowlookup.language.text import plural, shorten
from workflowlookup.proving.contract import CannotJudge, Fault, ProofTask, World, unmet_criteria
from workflowlookup.proving.files import (
    MAX_DIGEST_BYTES,
    MAX_FILE_BYTES,
    blob_id,
    blocks,
    escape,
    matching,
    read,
    shown,
)
from workflowlookup.proving.git import SUBMODULE_MODE, Tree, in_submodule
from workflowlookup.runs.events import Judgement, Snapshot

MAX_DIGESTS: Final = 100
"""How many digests a judgement has."""
MAX_JSON_BYTES: Final = 1 << 20


def take_file(task: ProofTask, world: World) -> Judgement:
    """Take the proof. Raises `CannotJudge`."""
    proof = task.proof
    assert isinstance(proof, FileProof)
    glob = task.fill(proof.path, escape)
    summary = f"{shown(glob)} {'exists' if proof.exists else 'does not exist'}"
    names = matching(task.root, [glob], world.stop.is_set)
    if not proof.exists:
        reason = f"{plural(len(names), 'file')} {'matches' if len(names) == 1 else 'match'}: {_first(names)}."
        remedy = f"Remove {'it' if len(names) == 1 else 'them'}."
        return _judgement(proof, summary, {}, (reason, remedy) if names or _exists(task.root, glob) else None)
    if not names:
        return _judgement(proof, summary, {}, (f"No file matches '{shown(glob)}'.", "Create the file."))
    digests = _digests(task.root, names if proof.changed else names[:MAX_DIGESTS])
    fault = next(_faults(task, world, names, digests), None)
    return _judgement(proof, f"{summary} ({plural(len(names), 'file')})", digests, fault)


def _digests(root: str, names: Sequence[str]) -> Mapping[str, str]:
    """The SHA-256 of each file. Raises `CannotJudge` if they are too large together."""
    remaining = MAX_DIGEST_BYTES
    result = {}
    for name in names:
        sha = hashlib.sha256()
        for block in blocks(root, name, remaining):
            sha.update(block)
            remaining -= len(block)
        result[name] = sha.hexdigest()
    return result


def _exists(root: str, glob: str) -> bool:
    """Whether there is something of this name: `matching` leaves out directories."""
    return os.path.lexists(os.path.join(root, glob))


def _first(names: list[str]) -> str:
    return ", ".join([shown(name) for name in names[:3]] + (["…"] if len(names) > 3 else [])) or "a directory"


def _judgement(proof: FileProof, summary: str, digests: Mapping[str, str], fault: Fault | None) -> Judgement:
    reason, remedy = fault or ("", "")
    return Judgement(
        name=proof.name,
        kind="file",
        verdict="failed" if fault else "passed",
        summary=shorten(summary, 300),
        reason=reason,
        remedy=remedy,
        digests={shown(name): value for name, value in list(digests.items())[:MAX_DIGESTS]},
    )


def _faults(task: ProofTask, world: World, names: Sequence[str], digests: Mapping[str, str]) -> Iterator[Fault]:
    proof = task.proof
    assert isinstance(proof, FileProof)
    budget = Budget()
    if proof.changed is not None:
        unchanged = unchanged_files(task, world, task.snapshot(proof.changed), digests)
        if unchanged:
            have = "has" if len(unchanged) == 1 else "have"
            reason = f"{_first(unchanged)} {have} not changed since the {proof.changed} began."
            yield reason, "Change what the step asks for."
    remaining = MAX_DIGEST_BYTES
    for name in names:
        if proof.text is not None:
            content = read(task.root, name, min(MAX_FILE_BYTES, max(0, remaining)))
            remaining -= len(content)
            text = content.decode(errors="replace")
            yield from unmet_criteria(proof.text, text, shown(name), task, budget)
        if proof.json is not None:
            yield from _misfits(task.root, name, proof, budget)


def _misfits(root: str, name: str, proof: FileProof, budget: Budget) -> Iterator[Fault]:
    schema = proof.json
    assert schema is not None
    content = read(root, name, MAX_JSON_BYTES)
    try:
        misfits = budget.spend(lambda _: list(schema.validator.misfits(parse_json(content))))
    except SyntaxProblem as problem:
        yield f"{shown(name)} is not JSON: {problem.message}.", " ".join(problem.suggestions) or "Write valid JSON."
    except (TooSlow, BadSchema) as problem:
        raise CannotJudge(
            f"{shown(name)} could not be checked by the JSON Schema: {str(problem) or 'it took too long'}.",
            "Make the file smaller, or ask the author to simplify the schema.",
        ) from problem
    else:
        for misfit in misfits:
            yield f"{shown(name)}: {misfit.sentence()}.", "Correct the file."


def unchanged_files(task: ProofTask, world: World, since: Snapshot, digests: Mapping[str, str]) -> list[str]:
    """Those of the files that have the content that they had at the time of the snapshot."""
    tree: Tree = {}
    algorithm = prefix = ""
    if since.commit:
        repository = world.repositories.find(task.root, world.stop)
        if repository is None:
            raise CannotJudge("The project directory is no longer in a git repository.", "Restore the repository.")
        tree, algorithm, prefix = repository.tree(since.commit), repository.algorithm, repository.prefix

    links = tuple(f"{path}/" for path, (mode, _) in tree.items() if mode == SUBMODULE_MODE)
    for name in digests:
        if links and f"{prefix}{name}".startswith(links):
            raise in_submodule(name)

    def is_unchanged(name: str) -> bool:
        if (before := since.files.get(shown(name))) is not None:
            return before == digests[name]
        committed = tree.get(f"{prefix}{name}")
        return committed is not None and committed[1] == blob_id(task.root, name, algorithm)

    return [name for name in digests if is_unchanged(name)]
