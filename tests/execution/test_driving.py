"""Runs that go by themselves: the server makes their calls, in order, and stores what comes of each."""

from execution.working import call, flow
from make import step
from workflowlookup.core.run import State, Waiting


def test_a_run_of_three_calls_goes_by_itself(place, work, upstream):
    workflow = flow(
        call("one", "echo", {"n": "{{n}}"}),
        call("two", "echo", {"from": "{{one.n}}", "text": "n is {{n}}"}),
        call("three", "say", {"text": "{{two.text}}"}),
        inputSchema={"type": "object", "properties": {"n": {"type": "integer"}}},
    )

    working = work(place)
    run = working.finished(workflow, {"n": 7})

    assert run.state is State.COMPLETED
    assert run.context["one"] == {"n": 7}
    assert run.context["two"] == {"from": 7, "text": "n is 7"}
    assert run.context["three"] == "n is 7"
    keys = [entry["key"] for entry in upstream.seen("call")]
    assert keys == [f"{run.id}:one", f"{run.id}:two", f"{run.id}:three"]
    assert working.events(run.id).count("CallBegun") == 3


def test_agents_and_calls_take_turns(place, work):
    working = work(place)
    workflow = flow(call("one", "say", {"text": "a"}), step("think"), call("two", "say", {"text": "{{one}}b"}))
    run = working.start(workflow)

    run = working.until(run.id, lambda run: run.waiting_for is Waiting.OUTPUT)
    assert (run.current, run.context["one"]) == ("think", "a")
    working.runs.submit(run.id, "think", "thought", {})

    assert working.over(run.id).context["two"] == "ab"
