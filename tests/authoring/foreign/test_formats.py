"""Each format, from what it looks like to the draft that is read."""

from typing import Any

import pytest

from support.json_values import Json
from workflowlookup.authoring.foreign.draft import Draft, NotImportable, Source
from workflowlookup.authoring.foreign.formats import FORMATS, recognise
from workflowlookup.authoring.foreign.writing import Provenance, document_of, markdown_of
from workflowlookup.language.forms import MARKDOWN

BEADS = b"""\
formula = "fix-issue"
description = "Fixes an issue."
phase = "vapor"

[vars.issue]
description = "Number of the issue"
required = true
pattern = "^[0-9]+$"

[[steps]]
id = "fix"
title = "Fix issue {{issue}}"
needs = ["triage"]
description = "Write {{other}} nowhere."
acceptance = "Tests pass"

[[steps]]
id = "triage"
title = "Triage"
type = "human"
description = "Read it."
"""
SPEC_KIT = b"""\
schema_version: "1.0"
workflow: {id: cycle, name: Full cycle, version: 1.2.0, description: Specify and build.}
inputs:
  feature: {type: string, required: true, prompt: Name of the feature}
  scope: {type: string, default: full, enum: [full, backend]}
steps:
  - id: specify
    command: speckit.specify
    input: {args: "{{ inputs.feature }}"}
  - id: review
    type: gate
    message: Is {{ inputs.feature }} specified well?
    options: [approve, reject]
  - id: ui
    type: if
    condition: "{{ inputs.scope == 'full' }}"
    then:
      - {id: build-ui, type: prompt, prompt: Build the interface.}
  - {id: check, type: shell, run: make test}
"""
GOOSE = b"""\
version: 1.0.0
title: Triage
description: Triages a failure.
parameters:
  - {key: trace, input_type: string, requirement: required, description: The stack trace}
instructions: |
  You look for causes.
prompt: |
  Look at {{ trace }} and at {{ nothing }}.
response:
  json_schema: {type: object, required: [cause]}
retry:
  max_retries: 2
  checks: [{type: shell, command: make lint}]
extensions: [{name: developer}]
"""


def draft_of(files: dict[str, bytes], location: str = "") -> tuple[str, Draft]:
    main = next(iter(files))
    source = Source(main=main, files=files, location=location or f"/home/ann/{main}")
    found = recognise(source)
    assert found is not None
    return found.name, found.read(source)


def document_from(draft: Draft) -> dict[str, Any]:
    document, _ = document_of(draft, Provenance(format="x", location="y", files={}))
    assert MARKDOWN.parse(markdown_of(document, draft).encode()) == document
    return document


def steps_of(document: dict[str, Any]) -> list[dict[str, Json]]:
    return [{name: value for name, value in step.items() if name != "x-source"} for step in document["steps"]]


def test_a_beads_formula() -> None:
    name, draft = draft_of({"fix.formula.toml": BEADS})
    document = document_from(draft)

    assert (name, document["id"], document["description"]) == ("beads-formula", "fix-issue", "Fixes an issue.")
    assert document["inputSchema"] == {
        "type": "object",
        "properties": {"issue": {"type": "string", "description": "Number of the issue", "pattern": "^[0-9]+$"}},
        "required": ["issue"],
    }
    assert steps_of(document) == [
        {"id": "triage", "title": "Triage", "prompt": "Read it.", "requireConfirmation": True},
        {
            "id": "fix",
            "title": "Fix issue {{issue}}",
            "prompt": "Write {{{{other}} nowhere.\n\nAcceptance: Tests pass",
        },
    ]
    assert [(found.value, found.place.first) for found in draft.steps[1].suggestions] == [
        ({"type": "contains", "value": "Tests pass", "message": ""}, 15)
    ]
    assert [str(note) for note in draft.left_out] == [
        "The steps were put in the order that `needs` asks for",
        "fix.formula.toml, line 3: `phase` is for beads, and kept only in x-source",
    ]


def test_a_spec_kit_workflow() -> None:
    name, draft = draft_of({"workflow.yml": SPEC_KIT})
    document = document_from(draft)

    assert (name, document["id"], document["name"]) == ("spec-kit-workflow", "cycle", "Full cycle")
    assert (document["version"], document["inputSchema"]["required"]) == ("1.2.0", ["feature"])
    assert steps_of(document) == [
        {
            "id": "specify",
            "title": "Specify",
            "prompt": "Run the command `/speckit.specify`.\n\nArgs: {{feature}}",
            "requireConfirmation": {"question": "Is {{feature}} specified well?"},
        },
        {
            "id": "build-ui",
            "title": "Build ui",
            "prompt": "Build the interface.",
            "runCondition": {"var": "scope", "equals": "full"},
        },
        {
            "id": "check",
            "title": "Check",
            "prompt": "Run this command, and report what it says:\n\n```sh\nmake test\n```",
        },
    ]
    assert [found.value for found in draft.steps[2].suggestions] == [{"kind": "command", "run": ["make", "test"]}]


def test_a_goose_recipe() -> None:
    name, draft = draft_of({"recipe.yaml": GOOSE}, "/home/ann/triage/recipe.yaml")
    document = document_from(draft)

    assert (name, document["name"], document["description"]) == ("goose-recipe", "Triage", "Triages a failure.")
    assert document["inputSchema"]["required"] == ["trace"]
    [step] = steps_of(document)
    assert step["prompt"] == "You look for causes.\n\nLook at {{ trace }} and at {{{{ nothing }}."
    assert (step["maxAttempts"], step["validationCriteria"][0]["schema"]["required"]) == (3, ["cause"])
    assert [found.value for found in draft.steps[0].suggestions] == [{"kind": "command", "run": ["make", "lint"]}]
    assert [note.text for note in draft.left_out] == ["`extensions` is for goose, and kept only in x-source"]


def test_step_files() -> None:
    name, draft = draft_of(
        {
            "SKILL.md": b"---\nname: stories\ndescription: Writes stories.\n---\n# Stories\n\nBe a facilitator.\n",
            "steps/step-10-end.md": b"# End\n\nHALT here.\n",
            "steps/step-02-write.md": b"---\nnextStepFile: ./step-10-end.md\n---\n# Write\n\n## 1. Begin\n",
            "steps/notes.md": b"no step",
            "steps-e/step-01-edit.md": b"another branch",
        },
        "/skills/stories/SKILL.md",
    )
    document = document_from(draft)

    assert (name, document["name"], document["metaGuidance"]) == ("bmad", "Stories", ["Be a facilitator."])
    assert [(step.title, step.text, str(step.place)) for step in draft.steps] == [
        ("Write", "## 1. Begin", "steps/step-02-write.md, lines 1 to 6"),
        ("End", "HALT here.", "steps/step-10-end.md, lines 1 to 3"),
    ]
    assert [note.text for note in draft.left_out] == [
        "The front matter of the step was left out: `nextStepFile`",
        "Step files of another branch are not steps: steps-e/step-01-edit.md",
    ]


def test_a_claude_command() -> None:
    page = b"---\ndescription: Fixes an issue\nargument-hint: NUMBER\n---\nFix issue $ARGUMENTS, not {{x}}.\n"
    name, draft = draft_of({"fix.md": page}, "/repo/.claude/commands/fix.md")
    document = document_from(draft)

    assert (name, document["id"]) == ("claude-command", "fix")
    assert document["steps"][0]["prompt"] == "Fix issue {{arguments}}, not {{{{x}}."
    about = "What the user wrote after the name of the command: NUMBER."
    assert document["inputSchema"]["properties"] == {"arguments": {"type": "string", "description": about}}


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/repo/.windsurf/workflows/review.md", "windsurf-workflow"),
        ("/repo/.clinerules/workflows/review.md", "cline-workflow"),
        ("/repo/docs/review.md", "markdown"),
    ],
)
def test_other_pages_are_recognised_by_their_folder(location: str, name: str) -> None:
    found, draft = draft_of({"review.md": b"# Review\n\n1. Read it\n2. Judge it\n3. Write it\n"}, location)
    assert (found, [step.title for step in draft.steps]) == (name, ["Read it", "Judge it", "Write it"])


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.formula.toml", b'formula = "a"\ntype = "convoy"\n', "the formula, of type 'convoy', has no steps"),
        ("a.formula.toml", b"formula = ", "a.formula.toml: Invalid value"),
        ("a.yml", b"workflow: {id: a}\nsteps: [{type: gate}]", "a.yml"),
    ],
)
def test_data_without_steps_is_refused(name: str, text: bytes, problem: str) -> None:
    if problem == "a.yml":  # a gate that no step precedes is a step
        assert len(draft_of({name: text})[1].steps) == 1
        return
    with pytest.raises(NotImportable, match=problem):
        draft_of({name: text})


def test_fields_that_no_workflow_can_have_are_left_out() -> None:
    _, draft = draft_of({"workflow.yml": SPEC_KIT.replace(b"specified well", b"specified well " * 100)})
    document, notes = document_of(draft, Provenance(format="x", location="y", files={}))
    assert "requireConfirmation" not in document["steps"][0]
    assert "Fields of the source do not fit a workflow" in notes[-1].text


def test_names_and_texts_of_any_length_fit() -> None:
    header = f"---\nname: Ä\ndescription: {'word ' * 400}\n---\n# {'T' * 300}\n\n"
    page = (header + ("long text " * 20 + "\n\n") * 1000).encode()
    _, draft = draft_of({"SKILL.md": page}, "/skills/x/SKILL.md")
    document = document_from(draft)
    assert (document["id"], len(document["name"]), len(document["description"])) == ("a-workflow", 128, 1020)
    assert document["about"] == " ".join(("word " * 400).split())
    assert [step["title"][-8:] for step in document["steps"]][1:] == ["(part 2)", "(part 3)", "(part 4)"]


def test_every_format_has_a_name_and_words() -> None:
    assert len({each.name for each in FORMATS}) == len({each.words for each in FORMATS}) == len(FORMATS)
