"""The words handed to the agent."""

import pytest

from make import document, loop, step
from workflowlookup.core.document import build
from workflowlookup.core.guidance import guide
from workflowlookup.core.navigation import next_step


def told(first, context=None, **fields):
    workflow = build(document(first, **fields))
    return guide(workflow, next_step(workflow, (), context or {}))


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "Do it."),
        ({"agentRole": "You are strict."}, "## Agent Role Instructions\nYou are strict.\n\nDo it."),
        ({"guidance": ["Ask once", "Listen"]}, "## Step Guidance\n- Ask once\n- Listen\n\nDo it."),
        (
            {"agentRole": "You are patient.", "guidance": ["Listen"]},
            "## Agent Role Instructions\nYou are patient.\n\n## Step Guidance\n- Listen\n\nDo it.",
        ),
        ({"guidance": []}, "Do it."),
    ],
    ids=["plain", "role", "guidance", "both", "no-guidance"],
)
def test_role_and_guidance_stand_above_the_prompt(fields, prompt):
    assert told(step("one", **{"prompt": "Do it.", **fields})).prompt == prompt


def test_templates_are_filled_in_title_prompt_role_and_guidance():
    first = step(
        "one",
        title="Fix {{ id }}",
        prompt="In {{repo.name}}: {{n}}",
        agentRole="You know {{id}} well",
        guidance=["{{id}}!"],
    )

    guidance = told(first, {"id": "T-1", "repo": {"name": "core"}, "n": [1, True]})

    assert guidance.step == {
        "id": "one",
        "title": "Fix T-1",
        "prompt": "In core: [1,true]",
        "agentRole": "You know T-1 well",
        "guidance": ["T-1!"],
    }
    assert guidance.warnings == ()


def test_an_unset_variable_stays_as_written_and_is_named():
    guidance = told(step("one", prompt="Use {{tool}} and {{tool}} on {{a.b}}, not {{{{literal}} or {{ }}"), {"a": {}})

    assert guidance.prompt == "Use {{tool}} and {{tool}} on {{a.b}}, not {{literal}} or {{ }}"
    assert guidance.warnings == ("These variables are not set in the context: tool, a.b",)


def test_what_a_variable_holds_is_not_filled_again():
    assert told(step("one", prompt="{{a}}"), {"a": "{{b}}", "b": "x"}).prompt == "{{b}}"


@pytest.mark.parametrize(
    ("wanted", "context", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        ({"var": "risk", "equals": "high"}, {"risk": "HIGH"}, True),
        ({"var": "risk", "equals": "high"}, {}, False),
        ({"kind": "person"}, {}, True),
        ({"kind": "person", "condition": {"var": "risk"}}, {}, False),
    ],
)
def test_confirmation_is_a_boolean_a_condition_or_an_object(wanted, context, expected):
    guidance = told(step("one", requireConfirmation=wanted), context)

    assert guidance.requires_confirmation is expected
    assert guidance.step["requireConfirmation"] is expected


@pytest.mark.parametrize(
    ("on_step", "on_workflow", "hint"),
    [
        ({"modelHint": "a-wise-one"}, {"modelTier": "mid"}, "a-wise-one"),
        ({"modelTier": "heavy"}, {}, "model-with-strong-reasoning"),
        ({}, {"modelTier": "lightweight"}, "fast-lightweight-model"),
        ({}, {}, ""),
    ],
)
def test_the_model_hint_comes_from_the_step_or_else_the_workflow(on_step, on_workflow, hint):
    assert told(step("one", **on_step), **on_workflow).model_hint == hint


def test_criteria_are_sentences_and_those_whose_condition_fails_are_left_out():
    rules = [
        {"type": "contains", "value": "root cause", "message": "Name the cause."},
        {"type": "length", "min": 10, "max": 20, "message": ""},
        {"type": "regex", "pattern": "^#", "flags": "m", "message": "Use headings.", "condition": {"var": "big"}},
        {"or": [{"type": "schema", "schema": {"type": "object"}, "message": "JSON."}, "^no$"]},
        {"not": {"type": "contains", "value": "TODO", "message": "unfinished"}},
    ]

    assert told(step("one", validationCriteria=rules)).criteria == (
        'The output contains the text "root cause" (with this case): Name the cause.',
        "The output is 10 to 20 characters long",
        'At least one of these holds: (1) The output is JSON that fits this JSON Schema: {"type":"object"}: JSON.; '
        "(2) Output must match the pattern ^no$",
        'This must not hold: The output contains the text "TODO" (with this case): unfinished',
    )


def test_a_rule_inside_a_composition_says_when_it_counts():
    rule = {"type": "contains", "value": "x", "message": "m", "condition": {"var": "big"}}

    (sentence,) = told(step("one", validationCriteria={"or": [rule, "y"]})).criteria

    assert '(1) The output contains the text "x" (with this case): m (only when big is true)' in sentence


def test_prompt_blocks_come_in_their_order_and_fragments_when_their_condition_holds():
    blocks = {
        "verify": ["Tests pass"],
        "procedure": ["Read", [{"kind": "text", "text": "Write "}, {"kind": "ref", "refId": "the-plan"}]],
        "constraints": ["Small steps"],
        "outputRequired": {"notes": "What was done"},
        "goal": "Mend {{it}}",
    }
    fragments = [
        {"id": "f-1", "text": "Be quick.", "when": {"var": "fast"}},
        {"id": "f-2", "text": "Be slow.", "when": {"not": {"var": "fast"}}},
    ]
    one = {"id": "one", "title": "One", "promptBlocks": blocks, "promptFragments": fragments}

    assert told(one, {"it": "the bug", "fast": True}).prompt == (
        "## Goal\nMend the bug\n\n## Constraints\n- Small steps\n\n## Procedure\n1. Read\n2. Write the-plan\n\n"
        "## Required output\n- **notes**: What was done\n\n## Verification\n- Tests pass\n\nBe quick."
    )


def test_functions_that_a_step_refers_to_are_shown_under_its_prompt():
    functions = [
        {"name": "save", "definition": "Save a note.", "parameters": [{"name": "title", "type": "string"}]},
        {"name": "unused", "definition": "Never shown."},
    ]
    first = step(
        "one", prompt="Do it.", functionReferences=["save()"], functionCalls=[{"name": "save", "args": {"title": "x"}}]
    )

    prompt = told(first, functionDefinitions=functions).prompt

    assert prompt == 'Do it.\n\n## Functions\n- save(title): Save a note. Call it with {"title":"x"}.'


def test_a_loop_tells_where_it_stands():
    each = loop("eloop", [step("one", prompt="Read {{file}}.")], type="forEach", items="files", itemVar="file")

    assert told(each, {"files": ["a.py", "b.py"]}).prompt == (
        "Read a.py.\n\n## Loop Context\n- Iteration: 1\n- Total Items: 2\n- Current Index: 0\n- Current Item: a.py"
    )


def test_a_parallel_step_lists_its_delegations():
    one = {
        "id": "fan-out",
        "type": "parallel",
        "title": "Fan out",
        "parallelDelegations": [
            {"workflowId": "review-a", "contextMapping": {"x": "y"}},
            {"workflowId": "review-b", "runCondition": {"var": "deep"}},
        ],
        "synthesis": "Merge the findings.",
    }

    assert told(one).prompt == (
        'Hand these out in parallel, then go on when all are back:\n- review-a: {"contextMapping":{"x":"y"}}\n\n'
        "Put the results together: Merge the findings."
    )
