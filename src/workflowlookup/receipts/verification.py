"""Verifies receipts: each problem is a sentence, and a receipt without problems holds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from workflowlookup.access import SIGNED_KINDS
from workflowlookup.errors import RunDamaged
from workflowlookup.people.keys import decode, key_id
from workflowlookup.people.store import PersonKey
from workflowlookup.receipts.statement import Confirmation, Proof, Signer, Statement, last_proof
from workflowlookup.runs.events import Signature, describe_kind
from workflowlookup.runs.run import Run
from workflowlookup.runs.signing import parse_signed

_WAIVING: Final = ("unproved", "attempts")
"""Why a person is asked who may accept an output without its proofs."""
_ABOUT_OUTPUT: Final = ("step", *_WAIVING)


def proof_problems(statement: Statement, *, allows_waived: bool, allows_uncommitted: bool) -> Iterator[str]:
    """What speaks against the proofs of a statement: one that did not pass, or none of exactly its commit."""
    proofs = [proof for proof in statement.predicate.proofs if not proof.at_start]
    if all(proof.verdict == "skipped" for proof in proofs):
        yield "No proof was taken, so nothing is proven."
        return
    for proof in proofs:
        if proof.waived:
            if not allows_waived:
                yield f"{waiver(statement, proof)} (--allow-waived)."
        elif proof.verdict == "skipped":
            if not allows_waived:
                yield f"{_name(proof)} was skipped (--allow-waived). {proof.reason}"
        elif proof.verdict == "failed":
            yield f"{_name(proof)} failed."
        elif proof.verdict == "unproved":
            yield f"{_name(proof)} could not be taken."
    if not allows_uncommitted:
        yield from _commit_problems(statement, proofs)


def waiver(statement: Statement, proof: Proof) -> str:
    """That a proof was waived, and by what kind of word; without a full stop."""
    answers = [one for one in statement.predicate.confirmations if one.step == proof.step and one.answer == "yes"]
    last = next((one for one in reversed(answers) if one.reason in _WAIVING), None)
    how = "" if last is None else f"{describe_kind(last.how)}, {'signed' if last.signature else 'not signed'}"
    return f"{_name(proof)} was waived: a person accepted the output without it{how}"


def confirmation_problems(statement: Statement, *, is_in_journal: bool) -> Iterator[str]:
    """What speaks against the signatures of people: one that is missing, or is not of what the receipt says.

    `is_in_journal`: the run is in the journal here, where they were verified. Receipts of development versions lack
    what was signed.
    """
    predicate = statement.predicate
    outputs = {step.id: step.output_sha256 for step in predicate.steps}
    last = {one.step: one for one in predicate.confirmations if one.answer == "yes" and one.reason in _ABOUT_OUTPUT}
    for answer in predicate.confirmations:
        name = f"The answer '{answer.answer}' to step '{answer.step}'"
        signature = answer.signature
        if signature is None:
            if answer.how in SIGNED_KINDS:
                yield f"{name} should be signed, and is not."
        elif not answer.signed or answer.signer is None:
            if not is_in_journal:
                yield f"{name} has a signature that can be verified only where the run is in the journal."
        elif problem := _signature_problem(statement, answer, signature, answer.signer):
            yield f"{name} is not what {signature.person} signed: {problem}."
        elif last.get(answer.step) is answer and parse_signed(answer.signed).subject != outputs.get(answer.step):
            yield f"{name} is not what {signature.person} signed: it is about another output."


def person_problems(statement: Statement, people: Mapping[str, str]) -> Iterator[str]:
    """What speaks against the claim that these people agreed: a yes that none of them signed, or that there is none.

    `people`: by id of a key, its public part, or empty if only the id is known. That each signature is right is the
    matter of `confirmation_problems`.
    """
    agreed = [answer for answer in statement.predicate.confirmations if answer.answer == "yes"]
    if not agreed:
        yield "No person agreed to anything (--person)."
    for answer in agreed:
        signature, signer = answer.signature, answer.signer
        name = f"The answer 'yes' to step '{answer.step}'"
        if signature is None:
            yield f"{name} is not signed (--person)."
        elif signer is None or not answer.signed or people.get(signature.key) not in ("", signer.public):
            yield f"{name} is signed by {signature.person} with key {signature.key}, which --person does not name."


def _signature_problem(statement: Statement, answer: Confirmation, signature: Signature, signer: Signer) -> str:
    """Why a signature is not of this answer; empty if it is."""
    try:
        public = decode(signer.public)
        signed = parse_signed(answer.signed)
    except ValueError:
        return "the key or the text cannot be read"
    key = PersonKey(
        id=key_id(public),
        person=signature.person,
        method=signature.method,
        public=signer.public,
        added=0,
        credential=signer.credential,
        rp_id=signer.rp_id,
    )
    if signature.method != answer.how or not key.is_signature(signature, answer.signed.encode()):
        return "the signature does not match the key and the text"
    predicate = statement.predicate
    expected = (predicate.run.id, predicate.workflow.sha256, answer.step, answer.reason, answer.answer == "yes")
    if (signed.run, signed.workflow, signed.step, signed.reason, signed.agrees) != expected:
        return "it is about another run, workflow, step or answer"
    return ""


def _commit_problems(statement: Statement, proofs: Sequence[Proof]) -> Iterator[str]:
    last = last_proof(proofs)
    advice = "so the commit itself is not proven (--allow-uncommitted)."
    if last is None or not last.commit:
        yield f"The last proof was not taken in a repository, {advice}"
    elif last.commit != statement.commit:
        yield f"The last proof was taken at commit {last.commit}, {advice}"
    elif not last.clean:
        yield f"The last proof was taken with changes that were not committed, {advice}"


def _name(proof: Proof) -> str:
    return f"Proof '{proof.name}' of step '{proof.step}'"


def hash_problem(run: Run, hashed: int) -> str:
    """That events of a run have no hash, given how many have one; empty if all have."""
    if hashed >= run.sequence:
        return ""
    problem = f"The events after number {hashed} have no hash: an older version wrote them, or somebody else did."
    return f"{problem} A change of these does not show."


def journal_problem(statement: Statement, run: Run | RunDamaged) -> str:
    """Why a statement is not about this run of a journal; empty if it is."""
    chain = statement.predicate.chain
    if isinstance(run, RunDamaged):
        return run.problem
    head = run.imported_head if run.imported_from else run.head
    if (run.sequence, head) != (chain.length, chain.head):
        return f"The run '{run.id}' in the journal has other events than the receipt says."
    return run.unverified[0] if run.unverified else ""
