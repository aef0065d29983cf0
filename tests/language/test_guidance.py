"""The words handed to the agent: what the rows of `tests/language` do not have."""

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import Guidance, guide
from workflowlookup.language.navigation import next_step


def guidance_for(first: JsonObject, context: JsonObject | None = None, **fields: Json) -> Guidance:
    workflow = build(document(first, **fields))
    return guide(workflow, next_step(workflow, (), context or {}, Budget()), Budget())


def test_templates_are_filled_in_title_prompt_role_and_guidance() -> None:
    first = step(
        "one",
        title="Fix {{ id }}",
        prompt="In {{repo.name}}: {{n}}",
        agentRole="You know {{id}} well",
        guidance=["{{id}}!"],
    )

    guidance = guidance_for(first, {"id": "T-1", "repo": {"name": "core"}, "n": [1, True]})

    assert guidance.step == {
        "id": "one",
        "title": "Fix T-1",
        "prompt": "In core: [1,true]",
        "agentRole": "You know T-1 well",
        "guidance": ["T-1!"],
    }
    assert guidance.warnings == ()


def test_the_template_of_an_unset_variable_stays_and_is_named() -> None:
    guidance = guidance_for(
        step("one", prompt="Use {{tool}} and {{tool}} on {{a.b}}, not {{{{literal}} or {{ }}"), {"a": {}}
    )

    assert guidance.prompt == "Use {{tool}} and {{tool}} on {{a.b}}, not {{literal}} or {{ }}"
    assert guidance.warnings == ("These variables are not set in the context: tool, a.b",)


def test_criteria_are_sentences_and_those_whose_condition_fails_are_left_out() -> None:
    rules = [
        {"type": "contains", "value": "root cause", "message": "Name the cause."},
        {"type": "length", "min": 10, "max": 20, "message": ""},
        {"type": "regex", "pattern": "^#", "flags": "m", "message": "Use headings.", "condition": {"var": "big"}},
        {"or": [{"type": "schema", "schema": {"type": "object"}, "message": "JSON."}, "^no$"]},
        {"not": {"type": "contains", "value": "TODO", "message": "unfinished"}},
    ]

    assert guidance_for(step("one", validationCriteria=rules)).criteria == (
        'The output contains the text "root cause" (with this case): Name the cause.',
        "The output is 10 to 20 characters long",
        'At least one of these holds: (1) The output is JSON that fits this JSON Schema: {"type":"object"}: JSON.; '
        "(2) Output must match the pattern ^no$",
        'This must not hold: The output contains the text "TODO" (with this case): unfinished',
    )


def test_the_prompt_has_the_position_in_the_loop() -> None:
    each = loop("eloop", [step("one", prompt="Read {{file}}.")], type="forEach", items="files", itemVar="file")

    assert guidance_for(each, {"files": ["a.py", "b.py"]}).prompt == (
        "Read a.py.\n\n## Loop Context\n- Iteration: 1\n- Total Items: 2\n- Current Index: 0\n- Current Item: a.py"
    )


def test_a_fragment_whose_condition_takes_too_long_comes_with_its_condition() -> None:
    slow = {"var": "s", "matches": "(a+)+$"}
    rule = {"type": "contains", "value": "x", "message": "Name x.", "condition": slow}
    first = step("one", promptFragments=[{"id": "f", "when": slow, "text": "Take care."}], validationCriteria=[rule])

    guidance = guidance_for(first, {"s": "a" * 50_000 + "b"})

    assert guidance.prompt == (
        'Do one.\n\n(The server could not judge in time whether this applies. It applies if s matches "(a+)+$".)\n'
        "Take care."
    )
    assert guidance.criteria == ('The output contains the text "x" (with this case): Name x.',)


TESTS = {"kind": "command", "name": "tests", "use": "test", "args": ["{{file}}"]}


def test_the_agent_reads_what_the_server_will_check() -> None:
    large = {"var": "size", "equals": "large"}
    first = step("one", proof=[TESTS, {"kind": "file", "path": "PLAN.md", "condition": large, "message": "Plan it."}])

    assert guidance_for(first, {"file": "a.py"}).proofs == (
        "The project's command `test` with `a.py` ends with exit code 0",
    )
    assert guidance_for(first, {"file": "a.py", "size": "large"}).proofs[1:] == ("The file `PLAN.md` exists: Plan it.",)


def test_a_variable_that_a_proof_needs_is_warned_of_but_no_measure() -> None:
    measured = {
        "kind": "command",
        "use": "test",
        "measure": {"n": {"pattern": "(\\d+)"}},
        "holds": {"var": "proof.command-2.n", "gte": "{{proof.base.n}}"},
    }
    warnings = ("These variables are not set in the context: file",)

    assert guidance_for(step("one", proof=[TESTS, measured])).warnings == warnings
    assert guidance_for(step("one", proof=[TESTS], produces={"file": {}})).warnings == ()
