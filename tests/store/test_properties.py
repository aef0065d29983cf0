"""Any sequence of tool calls, by two processes in turn: the run is always one that the table allows, and its journal
always folds to the same.
"""

import contextlib
import itertools
import tempfile
from pathlib import Path

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from support.narrowing import not_none
from workflowlookup.errors import RunStateError, StepNotFound, WorkflowLookupError
from workflowlookup.language.document.building import build
from workflowlookup.library.catalog import Catalog
from workflowlookup.library.directory import DirectorySource
from workflowlookup.runs.events import Completed
from workflowlookup.runs.exchange import replay
from workflowlookup.runs.fold import TRANSITIONS, apply, fold
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.store.journal import RunQuery, summarise
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.tools.builtin import BUILTIN_TOOLS
from workflowlookup.tools.contract import Caller, Elicitation, Services
from workflowlookup.tools.registry import Registry

RULE = {"type": "contains", "value": "ok", "message": "Say ok."}
INNER = loop("inner", [step("deep", runCondition={"var": "flag"})], type="for", count="times", maxIterations=3)
DOCUMENTS = [
    document(
        step("one", validationCriteria=[RULE], maxAttempts=3, whenExhausted="ask"),
        step("two", requireConfirmation={"var": "flag"}, runCondition={"var": "times", "gt": 0}),
        loop("all", [step("look", produces=["flag"]), INNER], type="forEach", items="files"),
        step("end", validationCriteria=[RULE], maxAttempts=2),
        identifier="everything",
        deadlineSeconds=10,
    ),
    document(
        loop("again", [step("try-it", requireConfirmation=True)], type="until", condition={"var": "flag"}),
        loop("source", [step("feed")], type="while", conditionSource={"kind": "elsewhere"}),
        step("end"),
        identifier="loops",
        contextSchema={"properties": {"times": {"type": "integer"}}},
    ),
]
STEPS = ["one", "two", "look@1", "deep@1.1", "end", "again", "source", "feed@1", "no-such-step"]
CONTEXTS = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.booleans(),
        "times": st.sampled_from([0, 1, 2, "two", None]),
        "files": st.sampled_from([[], ["a"], ["a", "b"], "none"]),
    },
)
CALLS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["ok", "no", " "]), CONTEXTS),
    st.tuples(st.just("submit"), st.sampled_from(["ok"]), CONTEXTS),
    st.tuples(st.just("supply"), st.none(), CONTEXTS),
    st.tuples(st.just("astray"), st.sampled_from(STEPS), CONTEXTS),
    st.tuples(st.just("relay"), st.booleans(), st.sampled_from(["", "a note"])),
    st.tuples(st.just("again"), st.integers(0, 30), st.none()),
    st.tuples(st.just("wait"), st.integers(0, 15_000), st.none()),
    st.tuples(st.just("status"), st.none(), st.none()),
    st.tuples(st.just("runs"), st.none(), st.none()),
    st.tuples(st.just("start"), st.none(), st.none()),
)
FORMS: JsonObject = {"elicitation": {}}
PERSONS = st.sampled_from([{"action": "accept", "content": {}}, {"action": "decline"}, {"action": "cancel"}])


def registry_of(catalog: Catalog, runs: Runs) -> Registry:
    return Registry(BUILTIN_TOOLS, Services(catalog=catalog, open_runs=lambda: runs))


class TwoProcesses:
    """Two processes on one journal, a clock, and the calls that were made."""

    def __init__(self, directory: Path) -> None:
        for one in DOCUMENTS:
            write(directory / "library", one)
        self.now = 1_000_000
        journals = [SqliteJournal(str(directory / "runs.sqlite")) for _ in range(2)]
        ids = map("run-{}".format, itertools.count())
        self.runs = [Runs(journal, clock=lambda: self.now, new_id=lambda: next(ids)) for journal in journals]
        catalog = Catalog([DirectorySource("library", str(directory / "library"))])
        self.registries = [registry_of(catalog, runs) for runs in self.runs]
        self.made: list[tuple[str, JsonObject]] = []

    def call(
        self, tool: str, arguments: JsonObject, caller: Caller | None = None, answer: Json = None
    ) -> JsonObject | None:
        """The answer of one of the processes in turn, or the refusal; a question is answered."""
        registry = self.registries[len(self.made) % 2]
        caller = caller or Caller()
        self.made.append((tool, arguments))
        try:
            reply = registry.call(registry.tools[tool], arguments, caller, 0)
            if isinstance(reply, Elicitation):
                reply = registry.call(
                    registry.tools[tool], arguments, Caller(capabilities=FORMS, answers={reply.key: answer}), 0
                )
        except WorkflowLookupError as refusal:
            assert refusal.code in (-32005, -32003, -32602), refusal.explain()
            return None
        result: JsonObject = msgspec.json.decode(msgspec.json.encode(reply))
        return result

    def close(self) -> None:
        for runs in self.runs:
            runs.close()


def check(processes: TwoProcesses, run_id: str) -> None:
    one, other = (runs.get(run_id) for runs in processes.runs)
    records = processes.runs[0].history(run_id)
    assert one == other == fold(run_id, records) == replay(run_id, records)
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    assert one.rests
    journal_url: tuple[State, Waiting | None] = (State.QUEUED, None)
    run = None
    for record in records:
        run = fold(run_id, [record]) if run is None else apply(run, record)
        journal_url = TRANSITIONS[journal_url][type(record.event)]
        assert (run.state, run.waiting_for) == journal_url
    assert (one.state is State.COMPLETED) == isinstance(records[-1].event, Completed)
    (line,) = [line for line in processes.runs[1].summaries(RunQuery()) if line.id == run_id]
    assert line == summarise(one)


@settings(max_examples=60, deadline=None)
@given(
    workflow=st.sampled_from(["everything", "loops"]),
    context=CONTEXTS,
    calls=st.lists(CALLS, max_size=25),
    forms=st.booleans(),
    person=PERSONS,
)
def test_any_sequence_of_calls_follows_the_transitions(
    workflow: str, context: JsonObject, calls: list[tuple[str, Json, Json]], forms: bool, person: JsonObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        processes = TwoProcesses(Path(directory))
        caller = Caller(capabilities=FORMS if forms else {}, name="tests")
        first = processes.call("workflow_start", {"workflowId": workflow, "context": context, "runId": "mine"})
        if first is None:  # the context did not fit
            processes.close()
            return
        for kind, what, more in calls:
            now = processes.call("workflow_status", {"runId": "mine"})
            at = processes.runs[0].get("mine").current or "end"
            run = {"runId": "mine", "stepId": at}
            if kind == "submit":
                processes.call("workflow_submit", {**run, "output": what, "context": more}, caller, person)
            elif kind == "supply":
                processes.call("workflow_submit", {**run, "context": more}, caller, person)
            elif kind == "astray":
                processes.call(
                    "workflow_submit", {**run, "stepId": what, "output": "ok", "context": more}, caller, person
                )
            elif kind == "relay":
                processes.call("workflow_submit", {**run, "confirmed": what, "note": more}, caller, person)
            elif kind == "again":
                tool, arguments = processes.made[what % len(processes.made)]
                processes.call(tool, arguments, caller, person)
            elif kind == "wait":
                processes.now += what
            elif kind == "status":
                assert processes.call("workflow_status", {"runId": "mine"}) == now
            elif kind == "runs":
                processes.call("workflow_runs", {})
            else:
                processes.call("workflow_start", {"workflowId": workflow, "context": context, "runId": "mine"})
            check(processes, "mine")
        processes.call("workflow_cancel", {"runId": "mine"})
        check(processes, "mine")
        processes.close()


@settings(max_examples=40, deadline=None)
@given(outputs=st.lists(st.tuples(st.sampled_from(["ok", "no"]), CONTEXTS), max_size=20))
def test_a_repeated_accepted_submission_gets_its_verdict_and_the_current_state(
    outputs: list[tuple[str, JsonObject]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        processes = TwoProcesses(Path(directory))
        now = processes.call(
            "workflow_start", {"workflowId": "everything", "context": {"files": ["a"], "times": 0}, "runId": "mine"}
        )
        answers: dict[bytes, JsonObject] = {}
        for output, changes in outputs:
            if now is None or "step" not in now:
                break
            arguments = {"runId": "mine", "stepId": now["step"]["id"], "output": output, "context": changes}
            reply = processes.call("workflow_submit", arguments)
            if reply is not None:
                if reply["verdict"]["valid"]:
                    answers.setdefault(msgspec.json.encode(arguments, order="deterministic"), reply)
                now = processes.call("workflow_status", {"runId": "mine"})
        before = processes.runs[0].get("mine").sequence
        for sent, reply in answers.items():
            again = not_none(processes.call("workflow_submit", msgspec.json.decode(sent)))
            assert again["verdict"] == reply["verdict"]
            assert [again.get(name) for name in ("state", "step", "progress")] == [
                not_none(now).get(name) for name in ("state", "step", "progress")
            ]
        assert processes.runs[0].get("mine").sequence == before
        processes.close()


# ── calls of the server's own ───────────────────────────────────────────────────────────────────────────────────

TOOL: JsonObject = {"server": "tracker", "tool": "make", "saveAs": "flag", "retries": 1}
CALLING = build(
    document(
        {"id": "ask-first", "title": "A", "call": TOOL, "requireConfirmation": {"var": "times"}},
        loop(
            "each",
            [{"id": "make-it", "title": "B", "call": {**TOOL, "arguments": {"x": "{{currentItem}}"}}}, step("look")],
        )
        | {"loop": {"type": "forEach", "items": "files", "maxIterations": 3}},
        {"id": "judged", "title": "C", "call": TOOL, "validationCriteria": [RULE], "whenExhausted": "ask"},
        {"id": "needs-flag", "title": "D", "call": {**TOOL, "arguments": {"flag": "{{flag}}"}}},
        identifier="calls",
    )
)
WORK = st.one_of(
    st.just(("begin",)),
    st.just(("begin",)),
    st.tuples(st.just("finish"), st.sampled_from(["ok", "no", ""]), st.sampled_from([True, None, {"a": [1.5]}])),
    st.tuples(st.just("finish"), st.just("ok"), st.just(1)),
    st.tuples(st.just("fail"), st.booleans()),
    st.tuples(st.just("report"), st.floats(), st.none() | st.floats()),
    st.tuples(st.just("acknowledge"), st.text(max_size=5)),
    st.tuples(st.just("stop"), st.booleans()),
    st.tuples(st.just("person"), st.booleans()),
    st.tuples(st.just("submit"), st.sampled_from(["ok", " "])),
    st.tuples(st.just("wait"), st.integers(0, 3_000)),
    st.just(("cancel",)),
)


def work(runs: Runs, run: Run, what: tuple[Json, ...]) -> None:
    """One thing that a driver, an agent or a person may try, whether or not it is its turn."""
    step_id = run.current or "ask-first"
    match what:
        case ("begin",):
            runs.server_work.begin_call(run.id, step_id)
        case ("finish", output, value):
            runs.server_work.finish_call(run.id, step_id, output, value)
        case ("fail", is_final):
            runs.server_work.fail_call(run.id, step_id, CallFailure(reason="it broke", is_final=is_final))
        case ("report", done, total):
            runs.server_work.report_call(run.id, step_id, done, total, "so far")
        case ("acknowledge", remote_id):
            runs.server_work.acknowledge_call(run.id, step_id, remote_id)
        case ("stop", stopped):
            runs.server_work.stop_call(run.id, step_id, stopped, "told")
        case ("person", agrees):
            (runs.confirm if agrees else runs.deny)(run.id, step_id, how="form")
        case ("submit", output):
            runs.submit(run.id, step_id, output, {})
        case ("cancel",):
            runs.cancel(run.id)


@settings(max_examples=150, deadline=None)
@example(context={"files": []}, timeout=None, done=[("begin",), ("acknowledge", "0"), ("fail", False), ("begin",)])
@given(
    context=st.fixed_dictionaries({"files": st.sampled_from([[], ["a"], ["a", "b"]])}, optional={"times": st.just(1)}),
    timeout=st.none() | st.sampled_from([5.0]),
    done=st.lists(WORK, max_size=40),
)
def test_any_interleaving_of_drivers_agents_and_persons_follows_the_transitions(
    context: JsonObject, timeout: float | None, done: list[tuple[Json, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        processes = TwoProcesses(Path(directory))
        processes.runs[0].start(CALLING, {}, context, run_id="mine", timeout=timeout)
        keys: dict[str, str] = {}
        for index, what in enumerate(done):
            if what[0] == "wait":
                processes.now += what[1]
            runs = processes.runs[index % 2]
            before = runs.get("mine").calling
            with contextlib.suppress(RunStateError, StepNotFound):
                work(runs, runs.get("mine"), what)
            check(processes, "mine")
            run = runs.get("mine")
            if run.calling is not None:
                if before is not None and before.remote_id and not before.may_run:  # the next attempt is another job
                    keys.pop(before.step_id, None)
                assert keys.setdefault(run.calling.step_id, run.calling.key) == run.calling.key
                assert run.calling.attempt <= TOOL["retries"] + 1
            at_work = [one.id for one in runs.server_work.at_work()]
            assert at_work == (["mine"] if run.waiting_for is Waiting.CALL else [])
            assert runs.server_work.runs_to_stop() == (["mine"] if run.needs_stop else [])
            assert runs.queue_position("mine") == ((1, 1) if run.state is State.QUEUED else (0, 0))
        processes.close()
