"""The fold: what events come to, which of them are allowed where, and that a half-told run is never read."""

import msgspec
import pytest

from support.json_values import JsonObject
from support.make import document, step
from workflowlookup.errors import RunStateError
from workflowlookup.language.document.building import build
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Draft, Moment, submission_key
from workflowlookup.runs.events import Completed, Event, Judgement, Record, StepOffered
from workflowlookup.runs.fold import TRANSITIONS, apply, fold
from workflowlookup.runs.run import OVER, Run, State, Waiting
from workflowlookup.runs.run_document import encode_document, hash_of, workflow_of

EVENTS = Event.__args__


def begun(*steps: JsonObject) -> Draft:
    return advance.begin("r1", build(document(*steps)), {}, {}, Moment(time=5, by="tests"))


def test_the_table_has_every_status_and_every_event() -> None:
    statuses: set[tuple[State, Waiting | None]] = {(state, None) for state in State if state is not State.WAITING}
    statuses |= {
        (State.WAITING, Waiting.OUTPUT),
        (State.WAITING, Waiting.CONTEXT),
        (State.WAITING, Waiting.CONFIRMATION),
    }
    statuses |= {(State.QUEUED, Waiting.CALL), (State.RUNNING, Waiting.CALL), (State.RUNNING, Waiting.PROOF)}

    assert set(TRANSITIONS) == statuses
    assert {event for allowed in TRANSITIONS.values() for event in allowed} == set(EVENTS)
    assert {status for allowed in TRANSITIONS.values() for status in allowed.values()} <= statuses


def test_what_is_over_stays_over() -> None:
    assert all(status == (state, None) for state in OVER for status in TRANSITIONS[state, None].values())


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("status", TRANSITIONS, ids=lambda status: "-".join(filter(None, status)))
def test_an_event_is_allowed_exactly_where_the_table_has_it(
    status: tuple[State, Waiting | None], kind: type[Event]
) -> None:
    if status == (State.QUEUED, None):
        return
    run = msgspec.structs.replace(begun(step("one")).run, state=status[0], waiting_for=status[1])
    record = Record(sequence=run.sequence + 1, time=9, event=sample(kind))
    if kind in TRANSITIONS[status]:
        after = apply(run, record)
        assert (after.state, after.waiting_for) == TRANSITIONS[status][kind]
        assert (after.sequence, after.updated) == (run.sequence + 1, 9)
    else:
        with pytest.raises(RunStateError):
            apply(run, record)


def sample(kind: type[Event]) -> Event:
    values: JsonObject = {
        "step_id": "one",
        "loop_id": "a-loop",
        "key": "k",
        "condition": {},
        "changes": {},
        "iteration": 1,
        "judgement": Judgement(name="tests", kind="command", verdict="passed"),
    }
    fields: JsonObject = {name: values.get(name, "text") for name in required(kind)}
    return kind(**fields)


def required(kind: type[Event]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind) if field.required]


def test_records_are_folded_in_their_order_without_gaps() -> None:
    first, second = begun(step("one")).records

    with pytest.raises(RunStateError):
        fold("r1", [first, msgspec.structs.replace(second, sequence=3)])
    with pytest.raises(RunStateError):
        fold("r1", [second])
    with pytest.raises(RunStateError):
        fold("r1", [])


def test_until_gives_the_run_at_the_first_rest_from_there() -> None:
    at = Moment(time=6)
    draft = begun(step("one"), step("two"))
    after = advance.submit(draft.run, "one", "done", {}, at)
    whole = [*draft.records, *after.records]

    assert fold("r1", whole, until=1) == draft.run
    assert fold("r1", whole, until=3) == after.run
    assert fold("r1", whole) == after.run


@pytest.mark.parametrize("shape", ["loops", "refusals", "denials", "steps"])
def test_nothing_that_an_event_copies_grows_with_the_run(shape: str) -> None:
    """Only persistent maps may: with a plain collection that grows, the fold of a long run is quadratic."""
    short, long = grown(shape, 200), grown(shape, 2_000)

    growing = [
        name
        for name in short.__struct_fields__
        if isinstance(value := getattr(long, name), dict | tuple | list | set)
        and len(value) > len(getattr(short, name))
    ]
    assert growing == []
    assert len(long.submissions) + len(long.answers) > 300


def grown(shape: str, events: int) -> Run:
    """A run with about so many events, all of which one agent and one person brought about."""
    asks = {"requireConfirmation": True} if shape == "denials" else {}
    rule = {"type": "contains", "value": "yes", "message": "say yes"}
    body = step("work", **asks, **({"validationCriteria": rule} if shape == "refusals" else {}))
    inner = make_loop("inner", body)
    steps = (
        [step(f"step-{number}") for number in range(events // 2)] if shape == "steps" else [make_loop("outer", inner)]
    )
    run = begun(*steps).run
    for number in range(events):
        at = Moment(time=number)
        if run.sequence >= events or run.is_over:
            break
        if run.waiting_for is Waiting.CONFIRMATION:
            answer = advance.deny if number % 4 == 1 else advance.confirm
            run = answer(run, run.current, at, how="console").run
        else:
            run = advance.submit(run, run.current, f"done {number}", {"last": number}, at).run
    return run


def make_loop(name: str, *body: JsonObject) -> JsonObject:
    loop = {"type": "for", "count": 1000, "maxIterations": 1000}
    return {"id": name, "type": "loop", "title": name, "loop": loop, "body": list(body)}


def test_a_run_shares_its_workflow_with_others_of_the_same_document() -> None:
    workflow = build(document())
    text, digest = encode_document(workflow)

    assert digest == hash_of(bytes(text))
    assert workflow_of(bytes(text)) is workflow_of(bytes(text))
    assert workflow_of(bytes(text)).document == workflow.document


def test_a_submission_has_the_same_key_however_its_variables_are_ordered() -> None:
    assert submission_key("one", "done", {"a": 1, "b": {"c": 2, "d": 3}}) == submission_key(
        "one", "done", {"b": {"d": 3, "c": 2}, "a": 1}
    )
    keys = {
        submission_key("one", "done", {}),
        submission_key("two", "done", {}),
        submission_key("one", "Done", {}),
        submission_key("one", "done", {"a": None}),
    }
    assert len(keys) == 4


def test_what_a_batch_adds_does_not_change_the_run_before_it() -> None:
    run = begun(step("one"), step("two")).run

    advance.submit(run, "one", "done", {"a": 1}, Moment(time=6))

    assert (run.current, dict(run.results), run.context, dict(run.submissions)) == ("one", {}, {}, {})


def test_defaults_are_omitted_from_journals() -> None:
    assert msgspec.json.encode(StepOffered(step_id="one")) == b'{"event":"step-offered","stepId":"one"}'
    assert msgspec.json.encode(Completed()) == b'{"event":"completed"}'


def test_a_run_weighs_its_workflow_its_variables_and_its_outputs() -> None:
    draft = begun(step("one"), step("two"))
    after = advance.submit(draft.run, "one", "x" * 50_000, {"text": "y" * 20_000}, Moment(time=6))

    assert draft.run.weight >= draft.run.workflow.weight > 0
    assert after.run.weight - draft.run.weight >= 70_000
