"""What every kind of proof shares: the task, how to say that it cannot be judged, and the criteria for what is seen."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.criteria import CompiledCriteria
from workflowlookup.language.formats.patterns import BadPattern, Budget
from workflowlookup.language.formats.schemas import BadSchema
from workflowlookup.language.proof import AnyProof, Since
from workflowlookup.language.rules import AllOf, AnyOf, ContainsRule, Criterion
from workflowlookup.language.templates import as_words, filler
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Context, Json, lookup
from workflowlookup.runs.events import Judgement, Snapshot

if TYPE_CHECKING:
    from workflowlookup.proving.git import Repositories
    from workflowlookup.proving.running import Stop, Supervisors
    from workflowlookup.proving.scratch import Scratch

Fault = tuple[str, str]
"""Why a proof failed, and what to do about it."""
MAX_SUMMARY: Final = 300
"""Limit on the characters of `Judgement.summary`."""


class ProofTask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one proof needs."""

    run_id: str
    proof: AnyProof
    context: Context
    """Templates and conditions are filled from here."""
    root: str
    run_snapshot: Snapshot | None = None
    step_snapshot: Snapshot | None = None
    tree: str = ""
    """`Judgement.tree` of the proof before it of the same output: no file may change between them."""

    def snapshot(self, since: Since) -> Snapshot:
        """The snapshot of that time. Raises `CannotJudge` if there is none."""
        snapshot = self.run_snapshot if since == "run" else self.step_snapshot
        if snapshot is None:
            raise CannotJudge(
                f"The state of the files when the {since} began was not recorded.", "Start a new run of the workflow."
            )
        if snapshot.problem:
            raise CannotJudge(
                f"The state of the files when the {since} began could not be recorded: {snapshot.problem}",
                "Remove the cause, and start a new run of the workflow.",
            )
        return snapshot

    def summary(self) -> str:
        """What is checked, on one line, with the variables filled in as far as they are set."""
        return shorten(filler(self.context, {})(self.proof.words()), MAX_SUMMARY)

    def fill(self, text: str, escape: Callable[[str], str] = str) -> str:
        """A text with its templates filled. Raises `CannotJudge` for a variable that is not set."""
        unset: dict[str, None] = {}

        def value_of(context: Context, name: str) -> Json:
            value = lookup(context, name)
            return None if value is None else escape(as_words(value))

        filled = filler(self.context, unset, value_of)(text)
        if unset:
            raise CannotJudge(
                f"{', '.join(unset)} is not set in the context, so '{text}' cannot be filled in.",
                "Set it in the context, and submit again.",
            )
        return filled


class CannotJudge(Exception):
    """A proof cannot be judged; the message is a sentence that says why, `remedy` one that says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What the kinds of proofs use."""

    commands: Callable[[], Mapping[str, Sequence[str]]]
    allowed_hosts: Callable[[], Collection[str]]
    supervisors: "Supervisors"
    repositories: "Repositories"
    scratch: "Scratch"
    stop: "Stop"
    on_progress: Callable[[str], None]
    environment: Mapping[str, str] = os.environ


Take = Callable[[ProofTask, World], Judgement]
"""Takes a proof of one kind. Raises `CannotJudge`, and `ServerEnds`."""


def unmet_criteria(
    criteria: CompiledCriteria, text: str, subject: str, task: ProofTask, budget: Budget
) -> Iterator[Fault]:
    """The criteria that a text does not meet. Raises `CannotJudge` if the others cannot be applied."""
    try:
        issues = criteria(text, (task.context,), budget) or ()
    except (WorkflowLookupError, BadPattern, BadSchema) as problem:
        raise CannotJudge(
            f"The criteria for {subject} cannot be applied: {problem}.", "Ask the author to fix them."
        ) from problem
    for issue in issues:
        if not issue.is_undecided:
            yield f"{subject}: {issue.message}", issue.suggestion
    for issue in issues:
        raise CannotJudge(f"{subject}: {issue.message}", issue.suggestion)


def may_be_cut(criteria: CompiledCriteria) -> bool:
    """Whether meeting them with a part of a text means that the whole text meets them too."""
    return criteria.criterion is None or _only_contains(criteria.criterion)


def _only_contains(criterion: Criterion) -> bool:
    match criterion:
        case AllOf(parts=parts) | AnyOf(parts=parts):
            return all(map(_only_contains, parts))
        case _:
            return isinstance(criterion, ContainsRule)
