"""Proofs in documents: their forms, their words, and what may be wrong with them."""

import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.errors import InvalidCriteria
from workflowlookup.language.conditions import CompiledCondition
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check, is_valid_document
from workflowlookup.language.document.findings import Finding, Severity
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import ValueSchema
from workflowlookup.language.model import PromptStep
from workflowlookup.language.proof import (
    PROOFS,
    Against,
    AnyProof,
    CommandProof,
    FileProof,
    GitProof,
    HttpProof,
    Measure,
    proofs_of,
)
from workflowlookup.language.workflow_schema import workflow_schema


def proved(*proof: Json, **fields: Json) -> JsonObject:
    """A document with one step that has these proofs."""
    return document(step(proof=list(proof), **fields))


def parsed(*proof: Json) -> tuple[AnyProof, ...]:
    assert [finding for finding in check(proved(*proof)) if finding.severity is Severity.ERROR] == []
    built = build(proved(*proof)).steps["first-step"]
    assert isinstance(built, PromptStep)
    return built.proofs


FORMS: list[tuple[JsonObject, AnyProof]] = [
    ({"kind": "command", "use": "test"}, CommandProof(name="command-1", use="test")),
    ({"kind": "command", "use": "test", "args": ["-x"]}, CommandProof(name="command-1", use="test", args=("-x",))),
    (
        {"kind": "command", "name": "all", "run": ["make", "{{goal}}"], "cwd": "sub", "env": ["CI"], "timeout": 5},
        CommandProof(name="all", run=("make", "{{goal}}"), cwd="sub", env=("CI",), timeout=5.0),
    ),
    ({"kind": "command", "use": "t", "exitCode": 3}, CommandProof(name="command-1", use="t", exit_codes=(3,))),
    ({"kind": "command", "use": "t", "exitCode": [0, 5]}, CommandProof(name="command-1", use="t", exit_codes=(0, 5))),
    ({"kind": "command", "use": "t", "exitCode": "nonzero"}, CommandProof(name="command-1", use="t", exit_codes=None)),
    ({"kind": "command", "use": "t", "at": "start"}, CommandProof(name="command-1", use="t", at_start=True)),
    (
        {"kind": "command", "use": "t", "against": {"base": "main", "with": ["tests/**"]}},
        CommandProof(name="command-1", use="t", against=Against(base="main", copied=("tests/**",))),
    ),
    (
        {
            "kind": "command",
            "name": "tests",
            "use": "t",
            "measure": {"passed": {"pattern": "(\\d+) passed", "type": "integer"}, "time": {"pattern": "in (\\S+)s"}},
            "holds": {"var": "proof.tests.passed", "gte": "{{proof.baseline.passed}}"},
        },
        CommandProof(
            name="tests",
            use="t",
            measures={
                "passed": Measure(pattern="(\\d+) passed", type="integer"),
                "time": Measure(pattern="in (\\S+)s"),
            },
            holds=CompiledCondition({"var": "proof.tests.passed", "gte": "{{proof.baseline.passed}}"}),
        ),
    ),
    (
        {"kind": "command", "use": "t", "condition": {"var": "size"}, "message": "Fix {{it}}."},
        CommandProof(name="command-1", use="t", condition=CompiledCondition({"var": "size"}), message="Fix {{it}}."),
    ),
    ({"kind": "file", "path": "a", "exists": False}, FileProof(name="file-1", path="a", exists=False)),
    (
        {"kind": "file", "path": "*.json", "changed": "step", "json": {"type": "object"}},
        FileProof(name="file-1", path="*.json", changed="step", json=ValueSchema({"type": "object"})),
    ),
    (
        {"kind": "git", "changed": ["src/**"], "unchanged": ["tests/**"], "since": "step"},
        GitProof(name="git-1", changed=("src/**",), unchanged=("tests/**",), since="step"),
    ),
    (
        {"kind": "git", "clean": True, "commits": 2.0, "branch": "^fix/"},
        GitProof(name="git-1", clean=True, commits=2, branch="^fix/"),
    ),
    (
        {"kind": "http", "url": "http://localhost/{{page}}", "method": "HEAD", "status": 204, "within": 30},
        HttpProof(name="http-1", url="http://localhost/{{page}}", method="HEAD", status=204, within=30.0),
    ),
]


@pytest.mark.parametrize(("entry", "expected"), FORMS, ids=[str(entry)[:70] for entry, _ in FORMS])
def test_every_form_is_parsed(entry: JsonObject, expected: AnyProof) -> None:
    assert parsed(entry) == (expected,)


def test_a_proof_without_a_name_gets_its_kind_and_its_number_in_that_kind() -> None:
    command = {"kind": "command", "use": "test"}

    names = [proof.name for proof in parsed({**command, "name": "tests"}, {"kind": "file", "path": "a"}, command)]

    assert names == ["tests", "file-1", "command-2"]


def test_the_schema_has_every_kind_and_every_field_of_it() -> None:
    definitions = workflow_schema()["$defs"]

    assert definitions["proof"]["properties"]["kind"]["enum"] == list(PROOFS)
    for kind, struct in PROOFS.items():
        assert definitions[f"{kind}Proof"]["properties"].keys() == {"kind", *struct.__struct_encode_fields__}
        assert not is_valid_document(proved({"kind": kind})), "a kind alone proves nothing"


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"kind": "command", "use": "t"}, "stdout"),
        ({"kind": "command", "use": "t"}, "stderr"),
        ({"kind": "file", "path": "a"}, "text"),
        ({"kind": "http", "url": "http://localhost"}, "body"),
    ],
)
def test_criteria_in_a_proof_judge_a_text(entry: JsonObject, field: str) -> None:
    (proof,) = parsed({**entry, field: [{"type": "contains", "value": "ok", "message": "No ok."}]})
    judge = getattr(proof, field)

    assert not judge("all ok", ({},), Budget())
    assert [issue.message for issue in judge("nothing", ({},), Budget())] == ["No ok."]


def test_empty_criteria_are_met_by_everything() -> None:
    (proof,) = parsed({"kind": "file", "path": "a", "text": []})

    assert isinstance(proof, FileProof)
    assert proof.text is not None
    assert not proof.text("", ({},), Budget())


@pytest.mark.parametrize("criteria", [[{"type": "contians", "value": "x", "message": "m"}], 80, {"and": 3}])
def test_malformed_criteria_in_a_proof_load_with_a_warning_and_never_pass(criteria: Json) -> None:
    content = proved({"kind": "command", "use": "t", "stdout": criteria})

    assert is_valid_document(content)
    assert {finding.severity for finding in check(content)} == {Severity.WARNING}
    (proof,) = proofs_of(content["steps"][0])
    assert isinstance(proof, CommandProof)
    assert proof.stdout is not None
    with pytest.raises(InvalidCriteria):
        proof.stdout("x", ({},), Budget())


def test_a_pattern_in_a_proof_that_does_not_compile_is_a_warning() -> None:
    assert check(proved({"kind": "file", "path": "a", "text": ["("]})) == [
        Finding(
            severity=Severity.WARNING,
            path=("steps", 0, "proof", 0, "text", 0),
            message="The pattern '(' does not compile (a group is not closed: ')' is missing) in step 1 "
            "('first-step'), field 'proof[0].text[0]'",
            suggestion="Fix the rule: until then the proof cannot be judged",
        )
    ]


def test_what_is_wrong_beside_malformed_criteria_is_an_error() -> None:
    many = [{"type": "nonsense"}] * 150
    content = proved({"kind": "command", "use": "t", "stdout": many}, {"kind": "git"})

    assert not is_valid_document(content)


WRONG: list[tuple[Json, str, str]] = [
    (
        {"type": "command", "use": "test"},
        "A proof has no 'kind' in step 1 ('first-step'), field 'proof[0]'",
        'Write {"kind":"command","use":"test"}: its kind (command, file, git, http) and its fields side by side',
    ),
    (
        {"command": {"run": ["make"]}},
        "A proof has no 'kind' in step 1 ('first-step'), field 'proof[0]'",
        'Write {"kind":"command","run":["make"]}: its kind (command, file, git, http) and its fields side by side',
    ),
    (
        {"type": ["command"]},
        "A proof has no 'kind' in step 1 ('first-step'), field 'proof[0]'",
        'Write {"kind":"command","use":"test"}: its kind (command, file, git, http) and its fields side by side',
    ),
    (
        "make test",
        "Field 'proof[0]' must be an object; found 'make test' in step 1 ('first-step')",
        'Make \'steps[0].proof[0]\' an object, for example {"kind":"command","name":"tests","use":"test"}',
    ),
    (
        {"kind": "comand", "use": "test"},
        "Field 'proof[0].kind' must be one of 'command', 'file', 'git', 'http'; found 'comand' (did you mean "
        "'command'?) in step 1 ('first-step')",
        "Make 'steps[0].proof[0].kind' one of 'command', 'file', 'git', 'http'",
    ),
    (
        {"kind": "command"},
        "A command needs 'use' or 'run' in step 1 ('first-step'), field 'proof[0]'",
        'Add "use" with the name of a command in the settings, or "run" with a list such as ["make", "test"]',
    ),
    (
        {"kind": "command", "use": "test", "run": ["make"]},
        "A command has either 'use' or 'run', not both in step 1 ('first-step'), field 'proof[0]'",
        "Remove one of them",
    ),
    (
        {"kind": "command", "run": ["make"], "args": ["test"]},
        "'args' is only for 'use' in step 1 ('first-step'), field 'proof[0].args'",
        "Write the arguments into 'run'",
    ),
    (
        {"kind": "command", "run": "make test"},
        "Field 'proof[0].run' must be a list ('array'); found 'make test' in step 1 ('first-step')",
        "Make 'steps[0].proof[0].run' a list ('array'), for example [\"make\",\"test\"]",
    ),
    (
        {"kind": "command", "run": ["{{program}}", "test"]},
        "The program of 'run' contains a template in step 1 ('first-step'), field 'proof[0].run[0]'",
        "Write the program itself; arguments may have templates",
    ),
    (
        {"kind": "command", "use": "{{name}}"},
        "Field 'proof[0].use' must be the name of a command in the settings, such as test; found '{{name}}' in step 1 "
        "('first-step')",
        "Make 'steps[0].proof[0].use' the name of a command in the settings, such as test",
    ),
    (
        {"kind": "file", "path": "a", "at": "start"},
        "'at' is only for proofs of kind command, and this is of kind 'file' in step 1 ('first-step'), field "
        "'proof[0].at'",
        "Remove 'at'; allowed here: kind, name, condition, message, path, exists, changed, text, json",
    ),
    (
        {"kind": "command", "use": "t", "at": "start", "against": {"base": "run"}},
        "'against' does not go together with 'at' in step 1 ('first-step'), field 'proof[0].against'",
        "Remove one of them: a base commit is the same at the start and later",
    ),
    (
        {"kind": "command", "use": "t", "holds": {"var": "proof.tests.passed"}},
        "'holds' compares measures, and this command measures nothing in step 1 ('first-step'), field 'proof[0].holds'",
        'Add \'measure\', for example {"passed": {"pattern": "(\\\\d+) passed"}}, or remove \'holds\'',
    ),
    (
        {"kind": "command", "use": "t", "measure": {"passed": {"pattern": "("}}},
        "The pattern '(' does not compile (a group is not closed: ')' is missing) in step 1 ('first-step'), field "
        "'proof[0].measure.passed.pattern'",
        "Fix the pattern",
    ),
    (
        {"kind": "git", "branch": "["},
        "The pattern '[' does not compile (a class is not closed: ']' is missing) in step 1 ('first-step'), field "
        "'proof[0].branch'",
        "Fix the pattern",
    ),
    (
        {"kind": "git", "since": "step"},
        "A proof of kind 'git' checks nothing in step 1 ('first-step'), field 'proof[0]'",
        "Add at least one of: changed, unchanged, clean, commits, branch",
    ),
    (
        {"kind": "file", "path": "a", "json": {"type": "obect"}},
        "The JSON Schema in 'json' is malformed (\"obect\" is not valid under any of the schemas listed in the "
        "'anyOf' keyword) in step 1 ('first-step'), field 'proof[0].json'",
        "Fix the schema",
    ),
    (
        {"kind": "file", "path": "a", "exists": False, "text": "x"},
        "'text' says something about files that must not exist in step 1 ('first-step'), field 'proof[0].text'",
        "Remove 'text', or remove 'exists'",
    ),
    (
        {"kind": "http", "url": "http://localhost", "method": "HEAD", "body": "x"},
        "An answer to HEAD has no body in step 1 ('first-step'), field 'proof[0].body'",
        "Use GET, or remove 'body'",
    ),
    (
        {"kind": "http", "url": "http://me:secret@localhost/"},
        "The URL contains a user name or password in step 1 ('first-step'), field 'proof[0].url'",
        "Remove it from the URL",
    ),
]


@pytest.mark.parametrize(("entry", "message", "suggestion"), WRONG, ids=[str(row[0])[:70] for row in WRONG])
def test_a_wrong_proof_is_an_error_that_says_what_to_write(entry: Json, message: str, suggestion: str) -> None:
    problems = check(proved(entry))

    assert [(finding.severity, finding.message, finding.suggestion) for finding in problems] == [
        (Severity.ERROR, message, suggestion)
    ]


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "~/x", "C:\\x", "\\\\host\\x", "a\\..\\x"])
@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda path: {"kind": "command", "use": "t", "cwd": path}, "cwd"),
        (lambda path: {"kind": "command", "use": "t", "against": {"with": [path]}}, "against.with[0]"),
        (lambda path: {"kind": "file", "path": path}, "path"),
        (lambda path: {"kind": "git", "changed": [path]}, "changed[0]"),
        (lambda path: {"kind": "git", "unchanged": ["a", path]}, "unchanged[1]"),
    ],
)
def test_a_path_out_of_the_root_is_an_error(make: Json, field: str, path: str) -> None:
    assert [finding.message for finding in check(proved(make(path)))] == [
        f"The path '{path}' leads out of the root in step 1 ('first-step'), field 'proof[0].{field}'"
    ]


@pytest.mark.parametrize(
    "url", ["{{host}}/a", "http://{{host}}/a", "http://host{{port}}/a", "ftp://host/", "localhost"]
)
def test_a_url_names_its_host(url: str) -> None:
    assert [finding.message for finding in check(proved({"kind": "http", "url": url}))] == [
        "The URL has no scheme and host of its own in step 1 ('first-step'), field 'proof[0].url'"
    ]


def test_names_are_unique_in_a_step_but_not_in_a_workflow() -> None:
    tests = {"kind": "command", "name": "tests", "use": "test"}
    unnamed = {"kind": "file", "path": "a"}

    assert check(document(step("one", proof=[tests]), step("two", proof=[tests]))) == []
    assert [finding.message for finding in check(proved(tests, tests))] == [
        "Duplicate proof name 'tests' in step 1 ('first-step'), field 'proof[1].name'"
    ]
    assert [finding.message for finding in check(proved({**unnamed, "name": "file-2"}, unnamed))] == [
        "Duplicate proof name 'file-2' in step 1 ('first-step'), field 'proof[1].name'"
    ]


def test_only_steps_for_agents_have_proofs() -> None:
    proof = [{"kind": "command", "use": "test"}]
    call = {"id": "one", "title": "One", "call": {"server": "s", "tool": "t"}, "proof": proof}
    repeated = {**loop("the-loop", [step()], type="for", count=1), "proof": proof}

    assert [finding.message for finding in check(document(call))] == [
        "A step with 'call' cannot have 'proof' in step 1 ('one'), field 'proof'"
    ]
    assert [finding.message for finding in check(document(repeated))] == [
        "A loop cannot have 'proof' in step 1 ('the-loop')"
    ]
    assert [finding.message for finding in check(document(proof=proof))] == ["Unknown field 'proof'"]


def test_the_workflow_says_what_follows_from_an_unproved_output() -> None:
    assert build(document()).when_unproved == "refuse"
    assert build(document(whenUnproved="ask")).when_unproved == "ask"
    assert [finding.message for finding in check(document(whenUnproved="maybe"))] == [
        "Field 'whenUnproved' must be one of 'refuse', 'ask', 'note'; found 'maybe'"
    ]


def test_the_condition_of_a_proof_is_analysed_like_every_other() -> None:
    content = proved({"kind": "command", "use": "t", "condition": {"var": "n", "gt": "many"}})

    assert [finding.message for finding in check(content)] == [
        "The condition can never hold: 'gt' compares with 'many', which is not a number in step 1 ('first-step'), field "
        "'proof[0].condition.gt'"
    ]


WORDS: list[tuple[JsonObject, str]] = [
    ({"kind": "command", "use": "test"}, "The project's command `test` ends with exit code 0"),
    (
        {"kind": "command", "use": "test", "args": ["-k", "login"], "cwd": "backend", "exitCode": "nonzero"},
        "The project's command `test` with `-k login` in `backend` ends with an exit code other than 0",
    ),
    ({"kind": "command", "run": ["make", "test"], "exitCode": [0, 5]}, "`make test` ends with exit code 0 or 5"),
    (
        {"kind": "command", "use": "test", "stdout": ["passed"], "message": "Fix the code."},
        "The project's command `test` ends with exit code 0; its standard output meets this: Output must match the "
        "pattern passed: Fix the code.",
    ),
    (
        {
            "kind": "command",
            "name": "tests",
            "use": "test",
            "measure": {"passed": {"pattern": "(\\d+) passed"}},
            "holds": {"var": "proof.tests.passed", "gte": "{{proof.baseline.passed}}"},
        },
        "The project's command `test` ends with exit code 0; it measures passed; proof.tests.passed is at least "
        '"{{proof.baseline.passed}}"',
    ),
    (
        {"kind": "command", "use": "test", "at": "start", "measure": {"passed": {"pattern": "(\\d+) passed"}}},
        "When the step is handed out, the server runs the project's command `test`; it measures passed",
    ),
    (
        {"kind": "command", "use": "test", "against": {"base": "run", "with": ["tests/**"]}, "exitCode": "nonzero"},
        "The project's command `test` in a copy of the commit at the start of the run with the present files matching "
        "`tests/**` ends with an exit code other than 0",
    ),
    (
        {"kind": "command", "use": "test", "against": {"base": "main"}},
        "The project's command `test` in a copy of commit main ends with exit code 0",
    ),
    ({"kind": "file", "path": "a.md"}, "The file `a.md` exists"),
    ({"kind": "file", "path": "*.tmp", "exists": False}, "No file matches `*.tmp`"),
    (
        {"kind": "file", "path": "docs/*.md", "changed": "step"},
        "A file matches `docs/*.md`; every file that matches `docs/*.md` has changed since the step was handed out",
    ),
    (
        {"kind": "file", "path": "a.json", "json": {"type": "object"}},
        "The file `a.json` exists; it is JSON that is an object",
    ),
    (
        {"kind": "git", "changed": ["src/**"], "unchanged": ["tests/**"]},
        "A file matching `src/**` has changed since the run began; no file matching `tests/**` has changed since the "
        "run began",
    ),
    (
        {"kind": "git", "clean": True, "commits": 2, "branch": "^fix/", "since": "step"},
        "Git reports no uncommitted changes; there are at least 2 commits since the step was handed out; the branch "
        "matches /^fix//",
    ),
    ({"kind": "git", "clean": False}, "Git reports uncommitted changes"),
    (
        {"kind": "http", "url": "http://localhost:8000/", "body": ["ok"]},
        "GET http://localhost:8000/ answers with status 200 within 10 seconds; the body meets this: Output must match "
        "the pattern ok",
    ),
]


@pytest.mark.parametrize(("entry", "sentence"), WORDS, ids=[row[1][:70] for row in WORDS])
def test_a_proof_is_a_sentence_for_the_agent(entry: JsonObject, sentence: str) -> None:
    (proof,) = parsed(entry)

    assert proof.describe() == sentence


@pytest.mark.parametrize(
    "proof",
    [
        [{"kind": "git", "clean": True}] * 101,
        [{"kind": "command", "run": ["x"] * 257}],
        [{"kind": "command", "use": "t", "measure": {f"m{n}": {"pattern": "x"} for n in range(101)}}],
        [{"kind": "git", "changed": ["x"] * 101}],
        [{"kind": "command", "use": "t", "timeout": 86_401}],
        [{"kind": "file", "path": "x" * 1_025}],
    ],
    ids=["proofs", "words", "measures", "globs", "time", "path"],
)
def test_there_is_a_limit_on_everything(proof: Json) -> None:
    assert not is_valid_document(proved(*proof))


@pytest.mark.parametrize(
    "setter",
    [
        step("two", produces={"proof": {}}),
        step("two", produces=["proof.tests"]),
        {"id": "two", "title": "Two", "call": {"server": "s", "tool": "t", "saveAs": "proof"}},
        loop("two", [step("three")], type="forEach", items="xs", itemVar="proof"),
    ],
    ids=["captured", "sent", "saved", "item"],
)
def test_no_variable_hides_what_proofs_measured(setter: JsonObject) -> None:
    (finding,) = check(document(step("one", proof=[{"kind": "git", "clean": True}]), setter))

    assert finding.message.endswith("would hide what proofs have measured in step 2 ('two')")
    assert check(document(step("one"), setter)) == []
