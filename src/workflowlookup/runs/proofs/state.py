"""What a run knows about its proofs: those that are due, and the verdicts of each step. `fold` computes them."""

from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup.runs import events
from workflowlookup.runs.events import Judgement

PROOF_VARIABLE: Final = "proof"
"""The variable with the measures of proofs: `proof.NAME.MEASURE`. Callers cannot set it."""


class Proving(msgspec.Struct, frozen=True, kw_only=True):
    """The proofs that are being taken, or about whose verdict a person is asked."""

    due: int
    """The sequence of the event that made them due."""
    request: events.ProofsDue
    judgements: Mapping[str, Judgement] = {}
    """By name: those that were taken."""
    claim: events.ProofClaimed | None = None
    """The last claim of what is due next; it may have run out."""


class ProofCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many proofs of a run, or of one of its steps, have which verdict. Measures at the start do not count."""

    passed: int = 0
    failed: int = 0
    unproved: int = 0
    waived: int = 0
    """Did not pass, and a person accepted the output without them."""
    skipped: int = 0
    """A variable switched them off."""

    @property
    def taken(self) -> int:
        return self.passed + self.failed + self.unproved + self.waived

    @property
    def total(self) -> int:
        return self.taken + self.skipped

    def plus(self, other: "ProofCounts", sign: int = 1) -> "ProofCounts":
        return ProofCounts(
            **{name: getattr(self, name) + sign * getattr(other, name) for name in self.__struct_fields__}
        )


class StepProofs(msgspec.Struct, frozen=True, kw_only=True):
    """The proofs of the last output of a step, and the measures from its start."""

    judgements: Mapping[str, Judgement] = {}
    """By name."""
    waived: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}
    """By name: why they were not taken."""

    @property
    def counts(self) -> ProofCounts:
        verdicts = [
            judgement.verdict
            for name, judgement in self.judgements.items()
            if not judgement.at_start and name not in self.waived
        ]
        return ProofCounts(
            passed=verdicts.count("passed"),
            failed=verdicts.count("failed"),
            unproved=verdicts.count("unproved"),
            waived=len(self.waived),
            skipped=len(self.skipped),
        )

    @property
    def measures(self) -> "StepProofs":
        """Without the proofs of an output, which do not count for the next one."""
        return StepProofs(judgements={name: one for name, one in self.judgements.items() if one.at_start})


NO_PROOFS: Final = StepProofs()
