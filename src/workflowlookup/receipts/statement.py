"""What a receipt says: an in-toto statement about a commit, whose predicate is the run.

Outputs are in it as digests only. docs/receipts.md explains the fields.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from workflowlookup.errors import RunStateError
from workflowlookup.people.store import PersonKey
from workflowlookup.receipts.envelope import BadReceipt, decode
from workflowlookup.receipts.keys import PublicKey
from workflowlookup.runs.events import (
    ConfirmationDenied,
    ConfirmationGiven,
    How,
    Judgement,
    OutputAccepted,
    OutputRefused,
    ProofsDue,
    ProofTaken,
    Record,
    Signature,
)
from workflowlookup.runs.fold import apply, fold
from workflowlookup.runs.run import Run, State
from workflowlookup.runs.signing import text_of_answer

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:workflowlookup:receipt:v1"
COMMIT: Final = "gitCommit"
TREE: Final = "gitTree"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of a receipt."""


class Workflow(_Part, frozen=True, kw_only=True):
    """The workflow that was followed, and the SHA-256 of its document."""

    id: str
    version: str
    sha256: str


class RunPart(_Part, frozen=True, kw_only=True):
    """The run: who started it, and when it was started and completed."""

    id: str
    started: str
    ended: str
    by: str = ""


class Step(_Part, frozen=True, kw_only=True):
    """A completed step: the SHA-256 of its output, who submitted it, and when it was accepted."""

    id: str
    output_sha256: str
    by: str = ""
    at: str


class Proof(_Part, frozen=True, kw_only=True):
    """A proof of a step, as it was taken for the accepted output."""

    step: str
    name: str
    kind: str = ""
    """Empty for one that was not taken."""
    verdict: Literal["passed", "failed", "unproved", "skipped"]
    reason: str = ""
    """Why it was skipped."""
    waived: bool = False
    """Whether a person accepted the output without it."""
    checked: str = ""
    """What was checked, such as the command."""
    exit_code: int | None = None
    commit: str = ""
    """`HEAD` when it was taken."""
    clean: bool | None = None
    """Whether the working tree had no changes."""
    at_start: bool = False
    """A measure from the start of the step, which neither proves nor refuses anything."""
    witness: str = ""
    """Who took it, if not the server of the run."""


class Signer(_Part, frozen=True, kw_only=True):
    """The public key of a person, as in their installation's file of people."""

    public: str
    credential: str = ""
    rp_id: str = ""


class Confirmation(_Part, frozen=True, kw_only=True):
    """A person's answer, who gave it, how and when, and its signature if it has one."""

    step: str
    reason: str = ""
    """Why the person was asked, such as `unproved`; empty in receipts of development versions."""
    answer: Literal["yes", "no"]
    by: str = ""
    how: How | None = None
    at: str
    signature: Signature | None = None
    signed: str = ""
    """The text that the signature covers; empty without one, and in receipts of development versions."""
    signer: Signer | None = None


class Chain(_Part, frozen=True, kw_only=True):
    """How many events the run has, and the hash of the last one, which covers all."""

    length: int
    head: str


class Installation(_Part, frozen=True, kw_only=True):
    """The public key of the installation that signed, DER in base64."""

    public_key: str


class Predicate(_Part, frozen=True, kw_only=True):
    """What happened."""

    workflow: Workflow
    run: RunPart
    steps: tuple[Step, ...]
    proofs: tuple[Proof, ...]
    confirmations: tuple[Confirmation, ...]
    chain: Chain
    installation: Installation


class Subject(_Part, frozen=True, kw_only=True):
    """A git object, by its id."""

    name: str
    digest: dict[str, str]


class Statement(_Part, frozen=True, kw_only=True):
    """An in-toto statement."""

    type: str = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: str
    predicate: Predicate

    @property
    def commit(self) -> str:
        return self.subject[0].digest[COMMIT]

    @property
    def tree(self) -> str:
        return self.subject[1].digest[TREE]


def state_run(  # noqa: PLR0913 - what a receipt is made of
    run: Run,
    records: Sequence[Record],
    commit: str,
    tree: str,
    key: PublicKey,
    *,
    people: Mapping[str, PersonKey] = MappingProxyType({}),
) -> bytes:
    """The statement about a run and a commit; `people` are the keys of people by their ids.

    Raises `RunStateError` for a run that cannot have one.
    """
    if run.state is not State.COMPLETED:
        message = f"The run '{run.id}' is {run.state}; only a completed run can have a receipt."
        raise RunStateError(message, runId=run.id, state=run.state)
    if run.imported_from:
        message = (
            f"The run '{run.id}' was imported, so its proofs cannot be vouched for here. Make its receipt where it ran."
        )
        raise RunStateError(message, runId=run.id)
    if run.unverified:
        raise RunStateError(f"{run.unverified[0]} So the run '{run.id}' can have no receipt here.", runId=run.id)
    steps, taken = _history(records)
    predicate = Predicate(
        workflow=Workflow(id=run.workflow.id, version=run.workflow.version, sha256=run.hash),
        run=RunPart(id=run.id, started=_time(run.started), ended=_time(run.updated), by=run.by),
        steps=tuple(steps[step_id] for step_id in run.results),
        proofs=tuple(sorted(_proofs(run), key=lambda proof: taken.get((proof.step, proof.name), 0))),
        confirmations=tuple(_confirmations(run.id, records, people)),
        chain=Chain(length=run.sequence, head=run.head),
        installation=Installation(public_key=base64.b64encode(key.der).decode()),
    )
    subject = (Subject(name="commit", digest={COMMIT: commit}), Subject(name="tree", digest={TREE: tree}))
    return msgspec.json.encode(
        Statement(type=STATEMENT_TYPE, subject=subject, predicate_type=PREDICATE_TYPE, predicate=predicate)
    )


def parse_statement(payload: bytes) -> Statement:
    """Read a statement that `state_run` made. Raises `BadReceipt`."""
    statement = decode(payload, Statement, "The receipt does not contain a statement about a run")
    if statement.type != STATEMENT_TYPE:
        raise BadReceipt(f"The statement is '{statement.type[:100]}', not '{STATEMENT_TYPE}'.")
    if statement.predicate_type != PREDICATE_TYPE:
        raise BadReceipt(f"The statement is about '{statement.predicate_type[:100]}', not '{PREDICATE_TYPE}'.")
    if [sorted(subject.digest) for subject in statement.subject] != [[COMMIT], [TREE]]:
        raise BadReceipt("The subject of the statement is not a commit and its tree.")
    return statement


def last_proof(proofs: Sequence[Proof]) -> Proof | None:
    """The last of the proofs that count; they are in the order in which they were taken."""
    return next((proof for proof in reversed(proofs) if proof.kind and not proof.at_start), None)


def _history(records: Iterable[Record]) -> tuple[dict[str, Step], dict[tuple[str, str], int]]:
    """The steps by id, and when each proof was taken last: by step and name, its sequence."""
    steps: dict[str, Step] = {}
    taken: dict[tuple[str, str], int] = {}
    submitted: dict[str, str] = {}
    for record in records:
        event = record.event
        if isinstance(event, ProofsDue | OutputRefused) and record.by:  # by the server otherwise, after its proofs
            submitted |= {event.key: record.by, event.step_id: record.by}
        elif isinstance(event, OutputAccepted):
            digest = hashlib.sha256(event.output.encode()).hexdigest()
            by = submitted.get(event.key or event.step_id, record.by)  # without a key, a person accepted a refused one
            steps[event.step_id] = Step(id=event.step_id, output_sha256=digest, by=by, at=_time(record.time))
        elif isinstance(event, ProofTaken):
            taken[event.step_id, event.judgement.name] = record.sequence
    return steps, taken


def _confirmations(run_id: str, records: Sequence[Record], people: Mapping[str, PersonKey]) -> Iterator[Confirmation]:
    """The answers of people. What each of them signed depends on the run before it."""
    run = fold(run_id, records[:1])
    for record in records[1:]:
        if isinstance(record.event, ConfirmationGiven | ConfirmationDenied):
            yield _confirmation(run, record, record.event, people)
        run = apply(run, record)


def _confirmation(
    run: Run, record: Record, event: ConfirmationGiven | ConfirmationDenied, people: Mapping[str, PersonKey]
) -> Confirmation:
    key = people.get(event.signature.key) if event.signature is not None else None
    return Confirmation(
        step=event.step_id,
        reason=run.open_question.reason if run.open_question is not None else "",
        answer="yes" if isinstance(event, ConfirmationGiven) else "no",
        by=record.by,
        how=event.how,
        at=_time(record.time),
        signature=event.signature,
        signed=text_of_answer(run, event).decode() if event.signature is not None else "",
        signer=Signer(public=key.public, credential=key.credential, rp_id=key.rp_id) if key is not None else None,
    )


def _proofs(run: Run) -> Iterator[Proof]:
    for step_id, proofs in run.proofs.items():
        if step_id not in run.results:
            continue
        for name, judgement in proofs.judgements.items():
            yield _proof(step_id, judgement, is_waived=name in proofs.waived)
        for name in proofs.waived:
            if name not in proofs.judgements:
                yield Proof(step=step_id, name=name, verdict="unproved", waived=True)
        for name, reason in proofs.skipped.items():
            yield Proof(step=step_id, name=name, verdict="skipped", reason=reason)


def _proof(step_id: str, judgement: Judgement, *, is_waived: bool) -> Proof:
    return Proof(
        step=step_id,
        name=judgement.name,
        kind=judgement.kind,
        verdict=judgement.verdict,
        waived=is_waived,
        checked=judgement.summary,
        exit_code=judgement.exit_code,
        commit=judgement.commit,
        clean=judgement.is_clean,
        at_start=judgement.at_start,
        witness=judgement.witness,
    )


def _time(milliseconds: int) -> str:
    """`2026-01-31T12:00:00.000Z`."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
