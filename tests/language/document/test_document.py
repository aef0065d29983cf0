"""Documents: what is wrong with them, in plain words."""

import json

import msgspec
import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from support.narrowing import instance_of
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check, is_valid_document
from workflowlookup.language.document.findings import Severity
from workflowlookup.language.formats import syntax
from workflowlookup.language.formats.schemas import compile_schema_text, expected_by
from workflowlookup.language.formats.syntax import RepeatedField, SyntaxProblem, TooDeep, parse_json, parse_yaml
from workflowlookup.language.model import LoopStep

RULE = {"type": "length", "min": 3, "message": "m"}


def findings(content: JsonObject, severity: Severity = Severity.ERROR) -> list[str]:
    return [finding.message for finding in check(content) if finding.severity is severity]


BAD = [
    (
        "nothing but a name",
        {"id": "abc", "name": "n"},
        ["Missing required property 'description'", "Missing required property 'steps'"],
    ),
    ("not an object", [1], ["The document must be an object; found a list"]),
    ("a short id", document(identifier="ab"), ["Field 'id' must be at least 3 characters long; found 'ab'"]),
    ("name of the wrong type", document(name=5), ["Field 'name' must be text ('string'); found 5"]),
    ("no steps", {**document(), "steps": []}, ["Field 'steps' must be a list of at least 1; found an empty list"]),
    ("a typo", document(step(promt="x")), ["Unknown field 'promt' (did you mean 'prompt'?) in step 1 ('first-step')"]),
    ("an unknown field at the top", document(autor="me"), ["Unknown field 'autor'"]),
    ("no prompt", document({"id": "one", "title": "One"}), ["Missing required property 'prompt' in step 1 ('one')"]),
    (
        "an unknown operator",
        document(step(runCondition={"var": "a", "between": 3})),
        ["Unknown field 'between' in step 1 ('first-step'), field 'runCondition'"],
    ),
    (
        "an operator without a variable",
        document(step(runCondition={"equals": 3})),
        ["Missing required property 'var' in step 1 ('first-step'), field 'runCondition'"],
    ),
    (
        "an empty condition deeper down",
        document(step(runCondition={"not": {}})),
        [
            "Field 'runCondition.not' must be an object with at least 1 field; found an empty object in step 1 ('first-step')"
        ],
    ),
    (
        "while without a condition",
        document(loop("a-loop", "first-step", type="while"), step()),
        ["Missing required property 'condition' in step 1 ('a-loop'), field 'loop'"],
    ),
    (
        "too many iterations",
        document(loop("a-loop", "first-step", type="for", count=1, maxIterations=1001), step()),
        ["Field 'loop.maxIterations' must be at most 1000; found 1001 in step 1 ('a-loop')"],
    ),
    (
        "a step inside a body",
        document(loop("a-loop", [{"id": "one"}], type="for", count=1)),
        [
            "Missing required property 'title' in step 1.1 ('one')",
            "Missing required property 'prompt' in step 1.1 ('one')",
        ],
    ),
    ("duplicate ids", document(step("one"), step("one")), ["Duplicate step id 'one' in step 2 ('one')"]),
    (
        "duplicate ids inside a body",
        document(step("one"), loop("a-loop", [step("one")], type="for", count=1)),
        ["Duplicate step id 'one' in step 2.1 ('one')"],
    ),
    (
        "a body that leads nowhere",
        document(loop("a-loop", "frist-step", type="for", count=1), step()),
        [
            "Loop 'a-loop' has the body 'frist-step' (did you mean 'first-step'?), a step that does not exist "
            "in step 1 ('a-loop')"
        ],
    ),
    (
        "a loop around itself",
        document(loop("a-loop", "a-loop", type="for", count=1)),
        ["The body of loop 'a-loop' leads back to the loop itself (a circular reference) in step 1 ('a-loop')"],
    ),
    (
        "two loops around each other",
        document(loop("a-loop", "b-loop", type="for", count=1), loop("b-loop", "a-loop", type="for", count=1)),
        [
            "The body of loop 'a-loop' leads back to the loop itself (a circular reference) in step 1 ('a-loop')",
            "The body of loop 'b-loop' leads back to the loop itself (a circular reference) in step 2 ('b-loop')",
        ],
    ),
    (
        "one body, two loops",
        document(loop("a-loop", "one", type="for", count=1), loop("b-loop", "one", type="for", count=1), step("one")),
        ["Step 'one' is the body of two loops, 'a-loop' and 'b-loop' in step 2 ('b-loop')"],
    ),
    (
        "a call of no function",
        document(step(functionCalls=[{"name": "nope", "args": {}}])),
        ["Call of undefined function 'nope' in step 1 ('first-step')"],
    ),
    (
        "an argument of the wrong type",
        document(
            step(functionCalls=[{"name": "save", "args": {"title": 5}}]),
            functionDefinitions=[
                {
                    "name": "save",
                    "definition": "d",
                    "parameters": [
                        {"name": "title", "type": "string"},
                        {"name": "n", "type": "number", "required": True},
                    ],
                }
            ],
        ),
        [
            "Parameter 'title' must be of type 'string' in the call of 'save' in step 1 ('first-step')",
            "Missing required parameter 'n' in the call of 'save' in step 1 ('first-step')",
        ],
    ),
]


@pytest.mark.parametrize(("content", "expected"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_an_error_says_what_and_where(content: JsonObject, expected: Json) -> None:
    assert findings(content) == expected
    assert not is_valid_document(content)


GOOD = [
    ("the least there can be", {"id": "abc", "name": "n", "description": "d", "steps": [step()]}),
    ("dots and underscores in ids", document(identifier="wr.some_thing")),
    ("data of one's own", document({**step(), "x-note": 1}) | {"x-team": "core"}),
    ("an empty condition at the top", document(step(runCondition={}))),
    ("nested loops", document(loop("a-loop", [loop("b-loop", [step()], type="for", count=1)], type="for", count=1))),
]


@pytest.mark.parametrize("content", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_a_valid_document_has_no_findings(content: JsonObject) -> None:
    assert check(content) == []
    assert is_valid_document(content)


LOADS_WITH_WARNING = [
    (
        "gt with text",
        step(runCondition={"var": "n", "gt": "big"}),
        "The condition can never hold: 'gt' compares with 'big'",
    ),
    (
        "in of nothing",
        step(runCondition={"var": "n", "in": []}),
        "The condition can never hold: 'in' has an empty list",
    ),
    ("a bad pattern", step(validationCriteria=["["]), "The pattern '[' does not compile"),
    (
        "a bad schema",
        step(validationCriteria=[{"type": "schema", "schema": {"type": "x"}, "message": "m"}]),
        "The JSON Schema of a rule is malformed",
    ),
    (
        "a length beyond all outputs",
        step(validationCriteria={"type": "length", "min": 1e30, "message": "m"}),
        "Field 'validationCriteria.min' must be at most 1000000000; found 1e30",
    ),
    (
        "criteria of no form",
        step(validationCriteria=[{"type": "nonsense", "message": "m"}]),
        "Field 'validationCriteria[0].type'",
    ),
]


@pytest.mark.parametrize(
    ("one", "words"), [row[1:] for row in LOADS_WITH_WARNING], ids=[row[0] for row in LOADS_WITH_WARNING]
)
def test_a_fault_that_harms_one_step_is_a_warning_and_the_document_loads(one: JsonObject, words: str) -> None:
    content = document(one)

    assert findings(content) == []
    assert findings(content, Severity.WARNING)[0].startswith(words)
    assert is_valid_document(content)
    assert build(content).steps["first-step"].title == "Title first-step"


def test_fields_without_effect_are_named() -> None:
    content = document(step(outputContract={"contractRef": "x"}), features=["wr.features.x"])

    assert findings(content, Severity.NOTE) == [
        "'features' is loaded but not acted on",
        "'outputContract' is loaded but not acted on in step 1 ('first-step')",
    ]


def test_version_and_category_have_defaults() -> None:
    content = document()
    del content["version"]

    assert (build(content).version, build(content).category) == ("1.0.0", "workflow")


SYNTAX = [
    ('{"a": 1', "Unexpected end of JSON input at position 7 (line 1, column 8)", "the text ends where } is expected"),
    ('{"a": "b', "Unexpected end of JSON input at position 8 (line 1, column 9)", 'the text ends where "} is expected'),
    ('{"a": 1,\n}', "(line 2, column 1)", "Remove the comma before '}'"),
    ('{"a" 1}', "Expecting ':' delimiter at position 5", "Add the missing ':'"),
    ('{"a": 1 "b": 2}', "Expecting ',' delimiter at position 8", "Add the missing ','"),
    ("{'a': 1}", "at position 1", 'Use double quotes (")'),
    ("{a: 1}", "at position 1", "Put the name of the field in double quotes"),
    ('{"a": True}', "at position 6", "Write true, false and null in lower case"),
    ('{"a": 1} // done', "Extra data at position 9", "Remove the comment"),
    ('{"a": "x\ny"}', "Invalid control character", "Write line breaks inside text as \\n"),
    ('{"a": NaN}', "JSON syntax error", "Use only what JSON has"),
    ('"\\ud800"', "JSON syntax error", "Use only what JSON has"),
]


@pytest.mark.parametrize(("text", "position", "fix"), SYNTAX, ids=[row[0] for row in SYNTAX])
def test_a_syntax_error_has_its_position_and_a_hint(text: str, position: str, fix: str) -> None:
    with pytest.raises(SyntaxProblem) as problem:
        parse_json(text.encode())

    assert position in problem.value.message
    assert fix in problem.value.suggestions[0]


def test_text_that_is_not_utf8_is_reported_with_its_position() -> None:
    with pytest.raises(SyntaxProblem, match="not UTF-8: bad byte at line 2, column 2"):
        parse_json(b'{\n"\xff": 1}')


@pytest.mark.parametrize("levels", [65, 500, 100_000])
def test_nesting_over_the_limit_is_refused(levels: int) -> None:
    with pytest.raises(TooDeep):
        parse_json(b"[" * levels + b"]" * levels)
    with pytest.raises(TooDeep):
        parse_yaml(b"[" * levels + b"]" * levels)


def test_nesting_at_the_limit_is_fine() -> None:
    assert parse_json(b"[" * 64 + b"]" * 64) == parse_yaml(b"[" * 64 + b"]" * 64)


def test_yaml_reads_as_json_types_only() -> None:
    text = b"yes: no\n2: 1.5\nday: 2026-01-02\nflag: true\nnone: null\nlong: |\n  a\nat: 12:30\noct: 010\nbig: 1e3\nn: -7\n"

    assert parse_yaml(text) == {
        "yes": "no",
        "2": 1.5,
        "day": "2026-01-02",
        "flag": True,
        "none": None,
        "long": "a\n",
        "at": "12:30",
        "oct": "010",
        "big": 1000.0,
        "n": -7,
    }


def test_whole_numbers_may_be_written_as_fractions() -> None:
    content = document(
        loop(
            "a-loop",
            [step(validationCriteria=[{"type": "length", "min": 3.0, "message": "m"}])],
            type="for",
            count=2.0,
            maxIterations=5.0,
        )
    )

    workflow = build(content)

    assert check(content) == []
    assert instance_of(LoopStep, workflow.steps["a-loop"]).loop.max_iterations == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: [1, 2", "at line 2, column 1"),
        (b"a: 1\na: 2", "the field 'a' is written twice at line 2, column 1"),
        (b"a: !!python/object:os.system x", "could not determine a constructor"),
        (b"a: !!float .inf", "without a counterpart in JSON"),
        (b"a: !!binary aGk=", "without a counterpart in JSON"),
        (b"a: &x [*x]", "nests deeper"),
        (b"\xff\xfe\x00", "YAML syntax error"),
        (
            b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%b]\n" % (n + 1, n + 1, b",".join([b"*%c" % n] * 10)) for n in range(97, 105)),
            "once its aliases are expanded",
        ),
    ],
    ids=["open", "twice", "object", "infinity", "binary", "recursive", "bytes", "bomb"],
)
def test_yaml_that_is_not_a_document_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(SyntaxProblem, match=words.replace("(", r"\(")):
        parse_yaml(text)


def test_json_and_yaml_of_a_document_mean_the_same() -> None:
    content = document(step("one", runCondition={"var": "n", "gt": 3}), step("two", requireConfirmation=True))

    assert parse_yaml(json.dumps(content).encode()) == parse_json(json.dumps(content).encode()) == content


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a: 1\nsteps:\n\t- id: x\n", (3, 1), "Indent with spaces"),
        ("a:\n  - id: x\n\ttitle: y\n", (3, 1), "Indent with spaces"),
        (
            "a: 1\ntitle: {{table}} x\n",
            (2, 18),
            "Put text that begins with '{' in quotes, as in title: \"{{table}} x\"",
        ),
        ("a: 1\ntitle: {{table}}\n", (2, 9), "Put text that begins with '{' in quotes"),
        ("- [a] b\n", (1, 7), "Put text that begins with '[' in quotes"),
        ("a: @x\n", (1, 4), "Put text that begins with '@' in quotes"),
        ("a: *x y\n", (1, 7), "Put text that begins with '*' in quotes"),
        ("a: !important x\n", (1, 4), "Put text that begins with '!' in quotes"),
        ("- title: Announce: the end\n", (1, 18), "Put text that contains ': ' in quotes"),
        ("a: 1\n  b: 2\n", (2, 4), "Check the indentation"),
        ('a: 1\nb: "open\nc: 3\n', (2, 4), "Close the quote that opens at line 2, column 4"),
        ("title: 'Don't'\nb: 1\n", (1, 13), "The text ends at the second ': write ' within it as ''"),
        ('title: "a" b\n', (1, 12), 'The text ends at the second ": write " within it as \\"'),
        (
            "id: a\nname: b\nid: c\n",
            (3, 1),
            "Remove one of the two, or rename it; the first is at line 1, column 1",
        ),
        ("a: [1, 2\nb: 3\n", (2, 2), "Close the bracket that opens at line 1, column 4"),
        ("a: | text\n", (1, 6), "Begin the text on a new line below '|'"),
        ('a: "\\d"\n', (1, 5), "Use single quotes"),
        ("a: 1\nfoo\nb: 2\n", (2, 1), "Check the indentation"),
        ("a: 1\n---\nb: 2\n", (2, 1), "Keep one document per file"),
    ],
)
def test_a_yaml_error_has_its_position_and_a_hint(text: str, position: tuple[int, int], words: str) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse_yaml(text.encode())

    problem = caught.value
    assert (problem.line, problem.column) == position
    assert words in problem.suggestions[0]
    assert problem.message == f"{problem.reason} at line {position[0]}, column {position[1]}"


@pytest.mark.parametrize("text", [b"", b"# to do\n", b"---\n...\n", b"\xef\xbb\xbf\n"])
def test_a_yaml_document_without_content_is_empty(text: bytes) -> None:
    with pytest.raises(SyntaxProblem, match="YAML syntax error: the document is empty"):
        parse_yaml(text)


@pytest.mark.parametrize("end", ["\r", "\x85", "\u2028"])
def test_a_yaml_error_has_its_position_with_any_line_ending(end: str) -> None:
    with pytest.raises(SyntaxProblem, match="syntax error"):
        parse_yaml(f"a: 1{end}b: 'c{end}'d".encode())


def test_json_may_begin_with_a_byte_order_mark() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        (
            {"validationCriteria": [RULE, {"type": "regex", "pattern": "(", "message": "m"}]},
            ("validationCriteria", 1, "pattern"),
        ),
        ({"validationCriteria": {"or": ["(", RULE]}}, ("validationCriteria", "or", 0)),
        (
            {"validationCriteria": [{"type": "schema", "schema": {"type": "text"}, "message": "m"}]},
            ("validationCriteria", 0, "schema"),
        ),
        (
            {"validationCriteria": [{**RULE, "condition": {"var": "n", "gt": "x"}}]},
            ("validationCriteria", 0, "condition", "gt"),
        ),
        ({"runCondition": {"and": [{"var": "n", "matches": "("}]}}, ("runCondition", "and", 0, "matches")),
    ],
    ids=["pattern", "plain pattern", "schema", "condition of a rule", "pattern of a condition"],
)
def test_what_does_not_compile_is_reported_with_its_path(fields: JsonObject, path: tuple[str | int, ...]) -> None:
    (finding,) = check(document(step(**fields)))

    assert finding.path == ("steps", 0, *path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (document(loop("again", [step()], type="untill", condition={"var": "x"})), "'untill' (did you mean 'until'?)"),
        (document(step(validationCriteria=[{**RULE, "type": "lenght"}])), "'lenght' (did you mean 'length'?)"),
    ],
)
def test_a_mistyped_value_comes_with_a_suggestion(content: JsonObject, words: str) -> None:
    assert words in check(content)[0].message


def test_max_attempts_has_no_effect_on_a_call() -> None:
    call = {"id": "one", "title": "One", "call": {"server": "s", "tool": "t"}, "maxAttempts": 3}

    assert [(finding.severity.value, finding.message) for finding in check(document(call))] == [
        ("note", "'maxAttempts' is loaded but not acted on in step 1 ('one')")
    ]


def test_an_error_behind_a_hundred_warnings_is_an_error() -> None:
    malformed = step(validationCriteria=[{"type": "regexp"}] * 150)
    untitled = {"id": "second-step", "prompt": "p"}

    assert not is_valid_document(document(malformed, untitled))
    assert not is_valid_document(document(malformed, *[step(f"step-{n}") for n in range(600)], untitled))


@pytest.mark.parametrize(
    "text", ['{"x" \n: {"ab": 1, "ab": 1}}', r'[{"a\u0062": 1, "ab": 2}]', r'{"ab": "\u0022:", "ab": "\":"}']
)
def test_a_repeated_field_is_found_in_any_spelling(text: str) -> None:
    with pytest.raises(RepeatedField, match="the field 'ab' is written twice"):
        parse_json(text.encode())


def test_texts_that_look_like_fields_do_not_slow_down_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    content = document(step(prompt='Write {"a": 1, "a" : 2} \N{EM DASH} as it is.'))
    monkeypatch.setattr(syntax, "_refuse_repeated", None)

    assert parse_json(json.dumps(content, ensure_ascii=False, indent=2).encode()) == content


def test_a_long_list_of_choices_is_shortened_in_every_message() -> None:
    options = [f"c{number}" for number in range(1_000)]
    functions = [{"name": "f", "definition": "d", "parameters": [{"name": "p", "type": "string", "enum": options}]}]
    content = document(step(functionCalls=[{"name": "f", "args": {"p": "none"}}]), functionDefinitions=functions)
    constants = {"anyOf": [{"const": option} for option in options]}
    refused = [
        next(iter(compile_schema_text(msgspec.json.encode(schema)).misfits("none"))).expected
        for schema in ({"enum": options}, constants)
    ]

    messages = [*findings(content), expected_by({"enum": options}), *refused]

    assert [words.count("c2") for words in messages] == [11] * 4  # c2 and c20 to c29
    assert [words.count(" and 970 more") for words in messages] == [1] * 4
