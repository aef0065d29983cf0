"""Proofs in words: what was checked, with which verdict, and how much of a run is proven."""

from collections.abc import Iterator

from workflowlookup.language.text import duration, one_line
from workflowlookup.runs.events import Judgement
from workflowlookup.runs.proofs.state import NO_PROOFS, ProofCounts
from workflowlookup.runs.run import Run

_VERDICTS = {"passed": "proved", "failed": "failed", "unproved": "not proved"}


def describe(judgement: Judgement) -> str:
    """`tests (make test, exit code 0, 41 s)`."""
    details = [one_line(judgement.summary)] if judgement.summary else []
    if judgement.exit_code is not None:
        details.append(describe_exit(judgement.exit_code))
    if judgement.seconds:
        details.append(duration(int(judgement.seconds * 1000)))
    if judgement.witness:
        details.append(f"taken by {one_line(judgement.witness)}")
    return f"{judgement.name} ({', '.join(details)})" if details else judgement.name


def describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"


def verdict_of(judgement: Judgement, *, is_waived: bool = False) -> str:
    """`proved`, `failed`, `not proved`, `waived` or, for a measure at the start of a step, `measured`."""
    if is_waived:
        return "waived"
    if judgement.at_start and judgement.verdict != "unproved":
        return "measured"
    return _VERDICTS[judgement.verdict]


def sentence_of(judgement: Judgement, *, is_waived: bool = False) -> str:
    """`proved: tests (make test, exit code 0, 41 s)`; with the reason if it did not pass."""
    has_reason = judgement.verdict != "passed" and judgement.reason
    reason = f": {one_line(judgement.reason)}" if has_reason else ""
    return f"{verdict_of(judgement, is_waived=is_waived)}: {describe(judgement)}{reason}"


def advice_of(judgement: Judgement) -> str:
    """As `sentence_of`, followed by what to do if the proof could not be taken."""
    remedy = f" {one_line(judgement.remedy)}" if judgement.verdict == "unproved" and judgement.remedy else ""
    return f"{sentence_of(judgement)}{remedy}"


def sentences_of(run: Run, step_id: str, *, measures: bool = False) -> Iterator[str]:
    """A sentence for each proof of the last output of a step, and for each measure from its start if these count."""
    proofs = run.proofs.get(step_id, NO_PROOFS)
    for name, judgement in proofs.judgements.items():
        if measures or not judgement.at_start:
            yield sentence_of(judgement, is_waived=name in proofs.waived)
    for name, reason in proofs.skipped.items():
        yield f"skipped: {name}: {one_line(reason)}"


def proved(counts: ProofCounts) -> str:
    """`proved 7 of 8`; empty if there are no proofs. Those that were skipped count as not proved."""
    return f"proved {counts.passed} of {counts.total}" if counts.total else ""
