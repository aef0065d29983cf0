"""Verifies receipts: each problem is a sentence, and a receipt without problems holds."""

from collections.abc import Iterator, Sequence

from workflowlookup.errors import RunDamaged
from workflowlookup.receipts.statement import Proof, Statement, last_proof
from workflowlookup.runs.run import Run


def proof_problems(statement: Statement, *, allows_waived: bool, allows_uncommitted: bool) -> Iterator[str]:
    """What speaks against the proofs of a statement: one that did not pass, or none of exactly its commit."""
    proofs = [proof for proof in statement.predicate.proofs if not proof.at_start]
    if not proofs:
        yield "No proof was taken, so nothing is proven."
        return
    for proof in proofs:
        if proof.waived:
            if not allows_waived:
                yield f"{_name(proof)} was waived: a person accepted the output without it (--allow-waived)."
        elif proof.verdict == "failed":
            yield f"{_name(proof)} failed."
        elif proof.verdict == "unproved":
            yield f"{_name(proof)} could not be taken."
    if not allows_uncommitted:
        yield from _commit_problems(statement, proofs)


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


def journal_problem(statement: Statement, run: Run | RunDamaged) -> str:
    """Why a statement is not about this run of a journal; empty if it is."""
    chain = statement.predicate.chain
    if isinstance(run, RunDamaged):
        return run.problem
    head = run.imported_head if run.imported_from else run.head
    if (run.sequence, head) != (chain.length, chain.head):
        return f"The run '{run.id}' in the journal has other events than the receipt says."
    return run.unverified[0] if run.unverified else ""
