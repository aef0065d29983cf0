"""The tables of this folder, row by row: through the pure core, and through the real process.

`page.yaml` lists the rows and sentences of the language's page; each has rows that prove it, or this fails.
"""

import collections
import json
from collections.abc import Iterator

import msgspec
import pytest

from language.tables import FOLDER, KINDS, ROWS, Row
from support.client import Server
from support.json_values import Json, JsonObject
from support.make import check_of, write
from support.narrowing import instance_of
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.conditions import OPERATORS, evaluate
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check, is_valid_document
from workflowlookup.language.document.findings import Severity
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.syntax import parse_json, parse_yaml
from workflowlookup.language.guidance import guide
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import explain_skip, find_step, next_step, scope_of
from workflowlookup.language.templates import filler
from workflowlookup.language.validation import judge
from workflowlookup.tools.builtin.workflow_next import step_answer

MIN_ROWS = 3
MAX_STEPS = 100


def of(*kinds: str, unless: str = "") -> pytest.MarkDecorator:
    """The rows of these kinds as parameters; those with the key `unless` are left out."""
    chosen = [row for row in ROWS if row.kind in kinds and not (unless and unless in row.content)]
    return pytest.mark.parametrize("row", chosen, ids=[f"{row.sentence}: {row.name}" for row in chosen])


# ── the tables themselves ───────────────────────────────────────────────────────────────────────────────────────


def test_every_row_and_sentence_of_the_page_has_several_rows_and_nothing_else_has() -> None:
    page = parse_yaml((FOLDER / "page.yaml").read_bytes())
    sentences = [sentence for part in page.values() for sentence in part]
    counted = collections.Counter(row.sentence for row in ROWS)

    assert {sentence: counted[sentence] for sentence in sentences if counted[sentence] < MIN_ROWS} == {}
    assert counted.keys() - set(sentences) == set()


def test_rows_have_known_kinds_and_unique_names() -> None:
    names = collections.Counter((row.sentence, row.name) for row in ROWS)

    assert {row.kind for row in ROWS} == set(KINDS)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_operator_has_a_row_that_holds_and_one_that_fails() -> None:
    for kind in ("holds", "fails"):
        used = {key for row in ROWS if row.kind == kind for key in row.cells[0]}
        assert OPERATORS.keys() - used == set(), kind


# ── through the core ────────────────────────────────────────────────────────────────────────────────────────────


@of("holds", "fails")
def test_core_condition(row: Row) -> None:
    condition, scope = row.cells
    assert evaluate(condition, scope, Budget()) is (row.kind == "holds")


@of("passes", "issues")
def test_core_rule(row: Row) -> None:
    criteria, output, issues, context = judged(row)

    assert [issue.message for issue in judge(check_of(criteria), output, context, Budget()).issues] == issues


@of("refused")
def test_core_refusal(row: Row) -> None:
    with pytest.raises(WorkflowLookupError) as refusal:
        judge(check_of(row.cells[0]), "{}", {}, Budget())

    assert refusal.value.code == row.cells[1]


@of("fills")
def test_core_template(row: Row) -> None:
    text, context, expected, *names = row.cells
    unset: dict[str, None] = {}

    assert filler(context, unset)(text) == expected
    assert list(unset) == (names[0] if names else [])


@of("leads", unless="code")
def test_core_next(row: Row) -> None:
    assert is_valid_document(row.document())
    assert core_answer(row, row.content.get("completed", [])) == expected_answer(row)


@of("walks")
def test_core_walk(row: Row) -> None:
    done = list(row.content.get("completed", []))
    workflow = build(row.document())
    path: list[str] = []
    while (upcoming := next_step(workflow, done, row.content.get("context", {}), Budget())).step and len(
        path
    ) < MAX_STEPS:
        path.append(upcoming.instance_id)
        done.append(upcoming.instance_id)

    assert path == row.content["path"]


@of("judges", unless="code")
def test_core_output(row: Row) -> None:
    workflow = build(row.document())
    step = find_step(workflow, row.content["step"])
    scope = scope_of(workflow, row.content["step"], row.content.get("context", {}))

    verdict = judge(instance_of(PromptStep, step).check, row.content["output"], scope, Budget())

    assert [issue.message for issue in verdict.issues] == row.content["issues"]


@of("finds")
def test_core_findings(row: Row) -> None:
    document = row.document()
    findings = check(document)
    counted = [finding.message for finding in findings if finding.severity is not Severity.NOTE]
    notes = [finding.message for finding in findings if finding.severity is Severity.NOTE]

    assert is_valid_document(document) is row.content["loads"], findings
    assert parts_of(counted, row.content.get("issues", [])) == row.content.get("issues", [])
    assert parts_of(notes, row.content.get("notes", [])) == row.content.get("notes", [])


@of("forms")
def test_core_forms(row: Row) -> None:
    yaml, json_ = row.cells

    assert parse_yaml(yaml.encode()) == parse_json(json_.encode())


# ── through the process ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One real process, with the documents of all rows in its library."""
    library = tmp_path_factory.mktemp("shelf")
    for row in ROWS:
        if row.kind == "forms":
            yaml, json_ = row.cells
            (library / f"{row.identifier}.yaml").write_text(yaml.replace("ID", f"{row.identifier}-y"), "utf-8")
            (library / f"{row.identifier}.json").write_text(json_.replace("ID", f"{row.identifier}-j"), "utf-8")
        else:
            document = row.document()
            write(library, document if isinstance(document, dict) else {"id": row.identifier}, f"{row.identifier}.json")
    quiet = {"WORKFLOWLOOKUP_LOG_LEVEL": "error"}
    server = Server(tmp_path_factory.mktemp("home"), directory=library, environment=quiet)
    server.initialize("2024-11-05")
    yield server
    server.stop()


@of("holds", "fails")
def test_process_condition(server: Server, row: Row) -> None:
    """In a step, in a confirmation, in a fragment, in a rule and in a loop."""
    _, context = row.cells
    first, asks, last = (
        ask_next(server, row, completed, context) for completed in ([], ["guarded"], ["guarded", "asks"])
    )
    verdict = server.result(
        "workflow_validate", {"workflowId": row.identifier, "stepId": "asks", "output": "x", "context": context}
    )

    assert {
        "runCondition": first["step"]["id"] == "guarded",
        "requireConfirmation": asks["guidance"]["requiresConfirmation"],
        "promptFragments": "A fragment." in asks["guidance"]["prompt"],
        "criteria": asks["guidance"]["validationCriteria"] != [],
        "rule": not verdict["valid"],
        "loop": not last["isComplete"],
    } == dict.fromkeys(
        ("runCondition", "requireConfirmation", "promptFragments", "criteria", "rule", "loop"), row.kind == "holds"
    )


@of("passes", "issues")
def test_process_rule(server: Server, row: Row) -> None:
    _, output, issues, context = judged(row)

    verdict = server.result("workflow_validate", judging(row, output, context))

    assert (verdict["valid"], verdict["issues"]) == (not issues, issues)


@of("refused")
def test_process_refusal(server: Server, row: Row) -> None:
    assert server.error("workflow_validate", judging(row, "{}", {}))["code"] == row.cells[1]


@of("fills")
def test_process_template(server: Server, row: Row) -> None:
    """In a title, a prompt, a role and guidance."""
    _, context, expected, *names = row.cells

    answer = ask_next(server, row, [], context)

    assert answer["step"] == {
        "id": "told",
        "title": expected,
        "prompt": expected,
        "agentRole": f"You know: {expected}",
        "guidance": [expected],
    }
    named = [name for name in (names[0] if names else []) if name in " ".join(answer.get("warnings", []))]
    assert named == (names[0] if names else [])
    assert ("warnings" in answer) is bool(names)


@of("leads")
def test_process_next(server: Server, row: Row) -> None:
    completed, context = row.content.get("completed", []), repeated(row.content.get("context", {}))
    if "code" in row.content:
        arguments = {"workflowId": row.identifier, "completedSteps": completed, "context": context}
        assert server.error("workflow_next", arguments)["code"] == row.content["code"]
        return

    answer = ask_next(server, row, completed, context)

    assert compared(row, answer) == expected_answer(row)
    assert "validationCriteria" not in (answer["step"] or {})


@of("walks")
def test_process_walk(server: Server, row: Row) -> None:
    done = list(row.content.get("completed", []))
    path: list[str] = []
    while (answer := ask_next(server, row, done, row.content.get("context", {})))["step"] and len(path) < MAX_STEPS:
        path.append(answer["step"]["id"])
        done.append(answer["step"]["id"])

    assert path == row.content["path"]


@of("judges")
def test_process_output(server: Server, row: Row) -> None:
    context = repeated(row.content.get("context", {}))
    arguments = {"stepId": row.content["step"], "output": row.content["output"], "context": context}

    reply = server.request("workflow_validate", {"workflowId": row.identifier, **arguments})

    if "code" in row.content:
        assert reply["error"]["code"] == row.content["code"]
    else:
        assert reply["result"]["issues"] == row.content["issues"]


@of("finds")
def test_process_findings(server: Server, row: Row) -> None:
    verdict = server.result("workflow_validate_json", {"workflowJson": json.dumps(row.document())})
    reply = server.request("workflow_get", {"id": row.identifier})

    assert ("error" not in reply) is row.content["loads"], reply
    issues, notes = row.content.get("issues", []), row.content.get("notes", [])
    assert verdict["valid"] is (not issues)
    assert parts_of(verdict["issues"], issues) == issues
    assert parts_of(verdict.get("warnings", []), notes) == notes
    if not row.content["loads"]:
        assert reply["error"]["code"] == -32002


@of("forms")
def test_process_forms(server: Server, row: Row) -> None:
    """Both forms list, show and lead alike."""
    answers = []
    for suffix in ("y", "j"):
        identifier = f"{row.identifier}-{suffix}"
        shown = server.result("workflow_get", {"id": identifier, "mode": "full"})
        led = server.result("workflow_next", {"workflowId": identifier, "completedSteps": []})
        answers.append(json.loads(json.dumps([shown, led]).replace(identifier, "ID")))

    assert answers[0] == answers[1]


# ── what a row expects, and what came ───────────────────────────────────────────────────────────────────────────


def judged(row: Row) -> tuple[object, str, list[str], JsonObject]:
    criteria, output, *more = row.cells
    issues = more.pop(0) if row.kind == "issues" else []
    return criteria, output, issues, more[0] if more else {}


def judging(row: Row, output: str, context: JsonObject) -> JsonObject:
    return {"workflowId": row.identifier, "stepId": "judged", "output": output, "context": context}


def ask_next(server: Server, row: Row, completed: list[str], context: JsonObject) -> JsonObject:
    result: JsonObject = server.result(
        "workflow_next", {"workflowId": row.identifier, "completedSteps": completed, "context": context}
    )
    return result


def expected_answer(row: Row) -> JsonObject:
    """`next` (null: complete, or `missing` has by variable what was found), and of `step`, `prompt`, `hint`, `confirm`,
    `criteria`, `proofs`, `progress`, `skipped` what the row has.

    `warnings` are parts of the texts that come, none unless the row has some.
    """
    return {"warnings": [], **{key: value for key, value in row.content.items() if key not in _QUESTION}}


_QUESTION = ("name", "steps", "workflow", "completed", "context")


def compared(row: Row, answer: JsonObject) -> JsonObject:
    """The parts of an answer that the row speaks of."""
    step, guidance = answer["step"] or {}, answer["guidance"]
    upcoming = {
        "next": step.get("id"),
        "warnings": parts_of(answer.get("warnings", []), row.content.get("warnings", [])),
        "step": step,
        "loop": step.get("loop"),
        "prompt": guidance["prompt"],
        "hint": guidance.get("modelHint", ""),
        "confirm": guidance["requiresConfirmation"],
        "criteria": guidance["validationCriteria"],
        "proofs": guidance.get("proofs", []),
        "progress": answer.get("progress"),
        "skipped": {skip["stepId"]: skip["condition"] for skip in answer.get("skipped", [])},
    }
    assert answer["isComplete"] is (upcoming["next"] is None and "missing" not in answer)
    if not step and "missing" in answer:
        (need,) = answer["missing"]
        upcoming["missing"] = row.content["missing"]
        assert {need["variable"]: need.get("found")} == {
            name: None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in row.content["missing"].items()
        }
    return {key: value for key, value in upcoming.items() if key in expected_answer(row)}


def core_answer(row: Row, completed: list[str]) -> JsonObject:
    """What the core says, in the form of the tool's answer."""
    workflow = build(row.document())
    upcoming = next_step(workflow, completed, row.content.get("context", {}), Budget())
    if upcoming.need is not None:
        return compared(
            row, msgspec.to_builtins(step_answer(workflow, upcoming, Budget())) | {"isComplete": upcoming.is_complete}
        )
    guidance = guide(workflow, upcoming, Budget())
    skipped = [explain_skip(skip) for skip in upcoming.skipped] if upcoming.step is None else []
    answer = {
        "step": msgspec.to_builtins(guidance.step) or None,
        "guidance": {
            "prompt": guidance.prompt,
            "modelHint": guidance.model_hint,
            "requiresConfirmation": guidance.requires_confirmation,
            "validationCriteria": list(guidance.criteria),
            "proofs": list(guidance.proofs),
        },
        "isComplete": upcoming.step is None,
        "progress": {"completed": upcoming.completed, "total": workflow.total_steps},
        "skipped": skipped,
        "warnings": list(guidance.warnings),
    }
    return compared(row, answer)


def parts_of(texts: list[str], parts: list[str]) -> list[str]:
    """The parts that stand in the texts, one text each; the texts themselves where they do not."""
    if len(texts) == len(parts):
        return [part if part in text else text for text, part in zip(texts, parts, strict=True)]
    return texts


def repeated(value: Json) -> Json:
    """`{repeat: x, times: n}` stands for a long text."""
    if isinstance(value, dict) and value.keys() == {"repeat", "times"}:
        return value["repeat"] * value["times"]
    return {key: repeated(inner) for key, inner in value.items()} if isinstance(value, dict) else value
