"""Witnesses: what one is given to look at, and what it may report.

A witness takes proofs where the server cannot see the files. It is a program of the person who started the run, so what
it saw is that person's word; all that it sends is checked here before it is stored.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Final, Literal

import msgspec

from workflowlookup.access import authenticated_name
from workflowlookup.errors import InvalidParams, RunStateError
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import find_step
from workflowlookup.language.proof import AnyProof, CommandProof
from workflowlookup.language.text import printable
from workflowlookup.language.values import Json
from workflowlookup.runs.events import Judgement, Snapshot
from workflowlookup.runs.proofs.due import SnapshotDue, last_tree, next_due, scope_with_output
from workflowlookup.runs.proofs.state import NO_PROOFS
from workflowlookup.runs.proofs.taking import name_of
from workflowlookup.runs.run import Run, Waiting

MAX_FILES: Final = 5_000
"""How many files a snapshot or a judgement may name."""
MAX_PATH: Final = 4_096
MAX_MEASURE: Final = 1_000
"""Limit on the characters of a measure of type string."""
MAX_NUMBER: Final = 2**53
CLAIMS_PER_WAIT: Final = 3
"""A claim is valid for this many times the setting `witness_seconds`."""

_COMMIT: Final = re.compile(r"|[0-9a-f]{40}|[0-9a-f]{64}")
_DIGEST: Final = re.compile(r"|[0-9a-f]{64}")
_PROCESS: Final = re.compile(r"[0-9a-f]{16}")


class WitnessTask(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a witness has to look at: a proof, or a snapshot of the files."""

    run_id: str
    step_id: str
    due: int
    """Identifies this request for proofs within the run."""
    workflow: str
    document: msgspec.Raw
    """The whole workflow, as JSON."""
    name: str = ""
    """The proof; empty for a snapshot."""
    since: Literal["run", "step"] | None = None
    """Of a snapshot."""
    globs: tuple[str, ...] = ()
    """The files that proofs look at, for a snapshot outside of git."""
    context: Mapping[str, Json] = {}
    run_snapshot: Snapshot | None = None
    step_snapshot: Snapshot | None = None
    tree: str = ""
    """Digest of the files when the proof before it of the same output was taken: none may change between them."""
    seconds: float
    """How long the claim is valid; a witness that needs longer renews it."""


class WitnessReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a witness saw, or, with neither, that it is still looking."""

    run_id: str
    step_id: str
    due: int
    name: str = ""
    judgement: Judgement | None = None
    snapshot: Snapshot | None = None


def may_be_witnessed(run: Run) -> bool:
    """Whether a witness can take the proofs of a run: the server knows no root, and who started it is authenticated."""
    return run.waiting_for is Waiting.PROOF and not run.root and bool(authenticated_name(run.by))


def is_of_other_project(run: Run, roots: Collection[str]) -> bool:
    """Whether the client named a project directory for the run that is none of these, nor in one of them or around it.
    A run without one, and a witness without roots, may be of any project."""
    if not run.client_root or not roots:
        return False
    there = f"{run.client_root.rstrip('/')}/"
    here = [f"{root.rstrip('/')}/" for root in roots]
    return not any(there.startswith(root) or root.startswith(there) for root in here)


def witness_name(caller: str, process: str) -> str:
    """The witness of a claim: the authenticated caller, and the id of its process. Raises `InvalidParams`."""
    if not _PROCESS.fullmatch(process):
        raise InvalidParams("the id of a witness has 16 hexadecimal digits")
    return f"{caller} ({process})"


def task_of(run: Run, seconds: float, budget: Budget) -> WitnessTask | None:
    """What a witness has to look at next; None if nothing is due."""
    due = next_due(run, budget)
    if due is None or run.proving is None:
        return None
    step_snapshot = run.step_snapshot[1] if run.step_snapshot and run.step_snapshot[0] == run.current else None
    is_snapshot = isinstance(due, SnapshotDue)
    return WitnessTask(
        run_id=run.id,
        step_id=run.current,
        due=run.proving.due,
        workflow=run.workflow.id,
        document=msgspec.Raw(msgspec.json.encode(run.workflow.document)),
        name=name_of(due),
        since=due.since if isinstance(due, SnapshotDue) else None,
        globs=due.globs if isinstance(due, SnapshotDue) else (),
        context={} if is_snapshot else scope_with_output(run),
        run_snapshot=None if is_snapshot else run.run_snapshot,
        step_snapshot=None if is_snapshot else step_snapshot,
        tree="" if is_snapshot else last_tree(run),
        seconds=seconds,
    )


def is_reported(run: Run, report: WitnessReport) -> bool:
    """Whether the same was reported before, and is stored: its answer was lost."""
    if report.snapshot is not None:
        return report.snapshot in (run.run_snapshot, run.step_snapshot[1] if run.step_snapshot else None)
    sent, stored = report.judgement, run.proofs.get(report.step_id, NO_PROOFS).judgements.get(report.name)
    if sent is None or stored is None:
        return False
    return (sent.verdict, sent.seconds, sent.witness) == (stored.verdict, stored.seconds, stored.witness)


def refuse_unclaimed(run: Run, report: WitnessReport, witness: str) -> None:
    """Raises `RunStateError` unless the run still waits for what this witness has claimed."""
    proving = run.proving if run.waiting_for is Waiting.PROOF else None
    claim = proving.claim if proving is not None else None
    if proving is None or claim is None or proving.due != report.due or claim.name != report.name:
        raise RunStateError("This is not due any more: the run went on, or was cancelled.", runId=run.id)
    if claim.witness != witness or run.current != report.step_id:
        raise RunStateError("Another witness takes this now.", runId=run.id)


def checked(run: Run, report: WitnessReport, caller: str) -> WitnessReport:
    """A report about a step of this run that may be stored. Raises `InvalidParams`."""
    if report.snapshot is not None:
        return msgspec.structs.replace(report, judgement=None, snapshot=_checked_snapshot(report.snapshot))
    step = find_step(run.workflow, report.step_id)
    proofs = step.proofs if isinstance(step, PromptStep) else ()
    proof = next((one for one in proofs if one.name == report.name), None)
    if proof is None or report.judgement is None:
        raise InvalidParams(f"step '{report.step_id}' has no proof '{report.name}', or there is no judgement of it")
    return msgspec.structs.replace(report, judgement=_checked_judgement(proof, report.judgement, caller))


def _checked_snapshot(snapshot: Snapshot) -> Snapshot:
    """A snapshot that may be stored. Raises `InvalidParams`."""
    _check_commit(snapshot.commit)
    _check_files(snapshot.files)
    return msgspec.structs.replace(snapshot, problem=printable(snapshot.problem)[:MAX_MEASURE])


def _checked_judgement(proof: AnyProof, judgement: Judgement, witness: str) -> Judgement:
    """A judgement of this proof that may be stored, with the name of its witness. Raises `InvalidParams`."""
    if judgement.name != proof.name or judgement.kind not in ("", str(proof.__struct_config__.tag)):
        raise InvalidParams(f"the judgement is not about proof '{proof.name}'")
    if not math.isfinite(judgement.seconds) or not 0 <= judgement.seconds < MAX_NUMBER:
        raise InvalidParams("'seconds' is not a duration")
    if judgement.exit_code is not None and not -255 <= judgement.exit_code <= 255:
        raise InvalidParams("'exitCode' is not an exit code")
    _check_commit(judgement.commit)
    if not _DIGEST.fullmatch(judgement.tree):
        raise InvalidParams("'tree' is not a SHA-256")
    _check_files(judgement.digests)
    expected = proof.measures if isinstance(proof, CommandProof) else {}
    for name, value in judgement.measures.items():
        if name not in expected or not _is_measured(value, expected[name].type):
            raise InvalidParams(f"the proof has no measure '{name}' with such a value")
    return msgspec.structs.replace(
        judgement,
        kind=str(proof.__struct_config__.tag),
        witness=witness,
        summary=printable(judgement.summary),
        reason=printable(judgement.reason),
        remedy=printable(judgement.remedy),
        tail=printable(judgement.tail),
    )


def _is_measured(value: Json, kind: str) -> bool:
    match value:
        case bool():
            return False
        case int():
            return kind != "string" and abs(value) <= MAX_NUMBER
        case float():
            return kind == "number" and math.isfinite(value)
        case str():
            return kind == "string" and len(value) <= MAX_MEASURE
    return False


def _check_commit(commit: str) -> None:
    if not _COMMIT.fullmatch(commit):
        raise InvalidParams("'commit' is not the id of a commit")


def _check_files(files: Mapping[str, str]) -> None:
    if len(files) > MAX_FILES or not all(
        len(path) <= MAX_PATH and _DIGEST.fullmatch(digest) for path, digest in files.items()
    ):
        raise InvalidParams(f"files are at most {MAX_FILES:,} paths, each with a SHA-256")
