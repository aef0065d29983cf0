"""The figures of runs: what counts as done, how many outputs that took, and how long."""

from typing import Literal

from support.json_values import Json, JsonObject
from support.make import document, step
from support.narrowing import not_none
from workflowlookup.language.document.building import build
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Draft, Location, Moment
from workflowlookup.runs.events import Judgement, Record
from workflowlookup.runs.proofs.statistics import ProofStatistics
from workflowlookup.runs.proofs.taking import take_proof
from workflowlookup.runs.statistics import StepStatistics, Tally

RULES = [{"type": "contains", "value": "done", "message": "Say that it is done."}]


def statistics_of(content: JsonObject, *calls: tuple[str, ...]) -> StepStatistics:
    """Of the only step, after these calls, each a second after the one before."""
    draft = advance.begin("a-run", build(content), {}, {}, Moment(time=0))
    records = list(draft.records)
    for number, (what, *words) in enumerate(calls, 1):
        at = Moment(time=number * 1_000)
        if what == "submit":
            (output,) = words
            draft = advance.submit(draft.run, "only-step", output, {}, at)
        else:
            draft = getattr(advance, what)(draft.run, "only-step", at, how="console")
        records += draft.records
    tally = Tally()
    tally.add("a-run", records)
    return not_none(tally.statistics()).steps[0]


def expected(**counted: Json) -> StepStatistics:
    return StepStatistics(id="only-step", title="Title only-step", reached=1, **counted)


def test_a_denied_output_is_a_try_and_not_done() -> None:
    held = document(step("only-step", requireConfirmation=True))

    once = statistics_of(held, ("submit", "bad"), ("deny",))
    twice = statistics_of(held, ("submit", "bad"), ("deny",), ("submit", "good"), ("confirm",))

    assert once == expected(denied=1, waiting=1)
    assert twice == expected(denied=1, done=1, tries=2.0, median_time=2_000, slow_time=2_000)


def test_an_output_that_a_person_accepts_counts_once() -> None:
    limited = document(step("only-step", validationCriteria=RULES, maxAttempts=2, whenExhausted="ask"))

    taken = statistics_of(limited, ("submit", "no"), ("submit", "nor this"), ("confirm",))
    denied = statistics_of(limited, ("submit", "no"), ("submit", "nor this"), ("deny",))

    issues = {"Say that it is done.": 2}
    assert taken == expected(refused=2, done=1, tries=2.0, median_time=2_000, slow_time=2_000, issues=issues)
    assert denied == expected(refused=2, denied=1, stopped=1, issues=issues)


def test_the_slow_time_of_two_is_the_longer_one() -> None:
    tally = Tally()
    for number, seconds in enumerate([8, 4]):
        draft = advance.begin(f"run-{number}", build(document(step("only-step"))), {}, {}, Moment(time=0))
        records = [*draft.records]
        records += advance.submit(draft.run, "only-step", "done", {}, Moment(time=seconds * 1_000)).records
        tally.add(f"run-{number}", records)

    (only,) = not_none(tally.statistics()).steps

    assert (only.median_time, only.slow_time) == (6_000, 8_000)


class ProvedRun:
    """A run of one step with proofs."""

    def __init__(self, content: JsonObject) -> None:
        self._records: list[Record] = []
        self._store(advance.begin("a-run", build(content), {}, {}, Moment(time=0), location=Location(root="/p")))

    def _store(self, draft: Draft) -> None:
        self._run = draft.run
        self._records += draft.records

    def submit(self, output: str) -> None:
        self._store(advance.submit(self._run, "only-step", output, {}, Moment(time=1, nonce="q")))

    def take(self, name: str, verdict: Literal["passed", "failed", "unproved"], seconds: float = 0) -> None:
        judgement = Judgement(name=name, kind="command", verdict=verdict, seconds=seconds, summary=f"make {name}")
        self._store(take_proof(self._run, judgement, Moment(time=1, nonce="q")))

    def confirm(self) -> None:
        self._store(advance.confirm(self._run, "only-step", Moment(time=1), how="console"))

    def statistics(self) -> tuple[ProofStatistics, ...]:
        tally = Tally()
        tally.add("a-run", self._records)
        return not_none(tally.statistics()).proofs


def test_each_proof_has_its_verdicts_and_its_times() -> None:
    proofs = [
        {"kind": "command", "name": "tests", "use": "test"},
        {"kind": "command", "name": "lint", "use": "lint"},
        {"kind": "git", "name": "clean", "clean": True, "condition": {"var": "commits", "equals": "yes"}},
    ]
    content = document(step("only-step", proof=proofs, produces={"commits": {}}), whenUnproved="ask")
    run = ProvedRun(content)
    run.submit("commits: no")
    run.take("tests", "failed", 3)
    run.submit("Again.\ncommits: no")
    run.take("tests", "passed", 5)
    run.take("lint", "unproved")
    run.confirm()

    assert run.statistics() == (
        ProofStatistics(
            step="only-step",
            name="tests",
            kind="command",
            checked="make tests",
            proved=1,
            failed=1,
            median_time=4_000,
            slow_time=5_000,
        ),
        ProofStatistics(step="only-step", name="lint", kind="command", checked="make lint", waived=1),
        ProofStatistics(step="only-step", name="clean", kind="git", skipped=1),
    )


def test_accepting_an_output_without_its_proofs_leaves_the_verdicts_on_an_earlier_one() -> None:
    proof = [{"kind": "command", "name": "tests", "use": "test"}]
    run = ProvedRun(
        document(step("only-step", proof=proof, validationCriteria=RULES, maxAttempts=2, whenExhausted="ask"))
    )
    run.submit("It is done.")
    run.take("tests", "failed")
    run.submit("Nothing.")
    run.confirm()

    (tests,) = run.statistics()

    assert (tests.failed, tests.waived) == (1, 1)
