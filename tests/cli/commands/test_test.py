"""`workflowlookup test`."""

import json
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Cli
from support.json_values import Json
from support.make import document, step, write
from workflowlookup.language.formats.syntax import parse_yaml
from workflowlookup.language.formats.yaml_layout import text_of
from workflowlookup.language.forms import with_edits

RULE = {"type": "contains", "value": "ok", "message": "Say <ok> & more"}
FLOW = document(step("look", validationCriteria=[RULE]), step("repair", runCondition={"var": "broken"}), step("report"))
PASSING = """\
cases:
  - name: all is well
    outputs: {look: {accept: [ok], refuse: ["no"]}}
    steps: [look, report]
  - name: broken
    context: {broken: true}
    steps: [look, repair, report]
"""
FAILING = """\
# what we know
cases:
  - name: broken  # the usual one
    context: {broken: true}
    outputs:
      look:
        accept:
          - |
            nothing
            to see
    steps:  # the path
      - look
      - report
    # that was it
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """Where the fixture of the workflow belongs."""
    write(tmp_path / "flows", FLOW)
    return tmp_path / "flows" / "sample-workflow.test.yaml"


def test_a_fixture_that_passes_is_counted_with_its_coverage(cli: Cli, flow: Path) -> None:
    flow.write_text(PASSING)

    done = cli("test", "flows")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "WORKFLOW         CASES  STEPS  BRANCHES  RULES  RESULT",
        "sample-workflow  2      3/3    2/2       2/2    passed",
        "",
        "2 cases of 1 fixture, all passed",
    ]


@pytest.mark.parametrize("path", ["flows", "flows/sample-workflow.test.yaml", "flows/sample-workflow.json"])
def test_a_directory_a_fixture_and_a_document_select_the_same_suite(cli: Cli, flow: Path, path: str) -> None:
    flow.write_text(PASSING)

    assert cli("test", path, "flows").stdout.endswith("\n2 cases of 1 fixture, all passed\n")


def test_the_project_is_tested_when_nothing_is_named(cli: Cli, project: Path) -> None:
    write(project, FLOW)
    (project / "sample-workflow.test.yaml").write_text(PASSING)

    assert cli("test").returncode == 0


def test_a_difference_is_reported_with_its_case_and_field(cli: Cli, flow: Path) -> None:
    flow.write_text(FAILING)

    done = cli("test", "flows")

    assert done.returncode == 1
    assert done.stdout.splitlines()[:8] == [
        "flows/sample-workflow.test.yaml:3: failed: broken",
        "    steps: The path differs at step 2: expected 'report', got 'repair'",
        "        expected: look → report",
        "        got:      look → repair → report",
        "    outputs.look.accept[0]: The output 'nothing to see' of 'look' should be accepted and was refused: "
        "'Say <ok> & more'",
        "",
        "WORKFLOW         CASES  STEPS  BRANCHES  RULES  RESULT",
        "sample-workflow  1      3/3    1/2       1/2    1 failed",
    ]


def test_uncovered_parts_are_listed_by_name(cli: Cli, flow: Path) -> None:
    flow.write_text("cases: [{name: one}]")

    text = cli("test", "flows").stdout

    assert "sample-workflow: steps without a test\n  - repair\n" in text
    assert "  - repair: runCondition (broken is true) was never true\n" in text
    assert "  - look: rule 1 (Say <ok> & more) was never tried\n" in text


@pytest.mark.parametrize(("wanted", "code"), [("66", 0), ("67", 1)])
def test_coverage_can_be_demanded(cli: Cli, flow: Path, wanted: str, code: int) -> None:
    flow.write_text("cases: [{name: one}]")

    done = cli("test", "flows", "--min-coverage", wanted)

    assert done.returncode == code
    assert ("67% of the steps were offered (2 of 3); the minimum is 67%" in done.stdout) is bool(code)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("branches", "50% of the branches were taken (1 of 2); the minimum is 100%"),
        ("rules", "0% of the verdicts of rules occurred (0 of 2); the minimum is 100%"),
    ],
)
def test_coverage_of_branches_and_rules_can_be_demanded(cli: Cli, flow: Path, kind: str, problem: str) -> None:
    flow.write_text("cases: [{name: one, context: {broken: true}}]")
    every = ("--min-coverage", "100", "--min-branches", "100", "--min-rules", "100")

    alone, all_three = cli("test", "flows", f"--min-{kind}", "100"), cli("test", "flows", *every)
    flow.write_text(PASSING)
    passing = cli("test", "flows", *every)

    assert (alone.returncode, all_three.returncode, passing.returncode) == (1, 1, 0)
    assert f"sample-workflow: too little coverage: {problem}\n" in alone.stdout
    assert problem in all_three.stdout


def test_a_document_without_a_fixture_is_shown_and_counts_when_coverage_is_demanded(cli: Cli, flow: Path) -> None:
    flow.write_text(PASSING)
    write(flow.parent, document(identifier="other-flow"))

    usual, strict = cli("test", "flows"), cli("test", "flows", "--min-coverage", "1")

    assert "other-flow       0      0/1    0/0       0/0    no fixture\n" in usual.stdout
    assert (usual.returncode, strict.returncode) == (0, 1)


def test_json_has_all_results(cli: Cli, flow: Path) -> None:
    flow.write_text("cases: [{name: one, steps: [look]}]")

    done = cli("test", "flows", "--json")

    report = json.loads(done.stdout)
    [fixture], [workflow] = report["fixtures"], report["workflows"]
    [case] = fixture.pop("cases")
    assert (done.returncode, report["passed"], report["shortfalls"]) == (1, False, {})
    assert fixture == {
        "file": "flows/sample-workflow.test.yaml",
        "workflowId": "sample-workflow",
        "passed": False,
        "problems": [],
    }
    assert case.pop("seconds") >= 0
    assert [one.pop("field") for one in case.pop("differences")] == ["steps"]
    assert case == {
        "name": "one",
        "line": 1,
        "passed": False,
        "steps": ["look", "report"],
        "complete": True,
        "iterations": {},
        "warnings": [],
        "assumedProofs": [],
    }
    assert workflow["coverage"]["steps"] == {"seen": 2, "total": 3, "missing": ["repair"]}
    assert workflow["hasFixture"]


def test_junit_is_xml_with_a_suite_for_each_fixture(cli: Cli, flow: Path, tmp_path: Path) -> None:
    flow.write_text(PASSING + "  - {name: 'wrong \"<\\x1b', steps: [report]}\n")
    (flow.parent / "broken.test.yaml").write_text("cases: 5")

    cli("test", "flows", "--junit", "out.xml", "--min-coverage", "100")

    root = ET.parse(tmp_path / "out.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "4", "1", "1")
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [
        ("flows/broken.test.yaml", "1"),
        ("flows/sample-workflow.test.yaml", "3"),
    ]
    [error], [failure] = root.iter("error"), root.iter("failure")
    assert error.get("message") == "flows/broken.test.yaml:1:1: cases must be a list ('array'); found 5"
    assert str(failure.get("message")).startswith("steps: The path differs at step 1: expected 'report', got 'look'")


def test_junit_reports_too_little_coverage(cli: Cli, flow: Path, tmp_path: Path) -> None:
    flow.write_text("cases: [{name: one}]")

    cli("test", "flows", "--junit", "out.xml", "--min-coverage", "100")

    root = ET.parse(tmp_path / "out.xml").getroot()
    assert [(suite.get("name"), suite.get("failures")) for suite in root][-1] == ("coverage", "1")


def test_update_writes_the_actual_results_and_keeps_the_rest(cli: Cli, flow: Path) -> None:
    flow.write_text(FAILING)

    done = cli("test", "flows", "--update")

    assert done.returncode == 0
    assert "+      - repair\n" in done.stdout
    assert (
        flow.read_text()
        == """\
# what we know
cases:
  - name: broken  # the usual one
    context: {broken: true}
    outputs:
      look:
        refuse:
          - output: |
              nothing
              to see
            issues: [Say <ok> & more]
    steps:  # the path
      - look
      - repair
      - report
    # that was it
"""
    )


def test_update_does_not_change_a_passing_fixture(cli: Cli, flow: Path) -> None:
    flow.write_text(PASSING)

    done = cli("test", "flows", "--update")

    assert (flow.read_text(), "+++" in done.stdout) == (PASSING, False)


def test_update_of_json_writes_json(cli: Cli, flow: Path) -> None:
    fixture = flow.with_suffix(".json")
    fixture.write_text('{"cases": [{"name": "one"}]}')

    assert cli("test", "flows", "--update").returncode == 0
    assert json.loads(fixture.read_text()) == {"cases": [{"name": "one", "steps": ["look", "report"]}]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "cases: [{name: one, stesp: []}]",
            "1:21: error: case 1 ('one'): unknown field 'stesp' (did you mean 'steps'?)",
        ),
        ("cases: ]", "1:8: error: YAML syntax error"),
        ("cases: [{name: one}]\nworkflow: no-such-flow", "2:1: error: Workflow not found. No workflow has the id"),
        (
            "cases: [{name: one}]\nworkflow: ../gone.json",
            "2:1: error: Storage error. flows/../gone.json cannot be read",
        ),
        ("cases: [{name: one}]\nworkflow: ./notes.txt", "2:1: error: 'flows/./notes.txt' is not a document"),
        ("cases:\n  - name: one\n  - name: one", "3:5: error: case 2 ('one'): another case has this name already"),
        ("cases:\n  - name: one\n    complete: false", "3:5: error: case 1 ('one'): 'complete: false' needs 'steps'"),
    ],
    ids=["unknown field", "syntax", "unknown id", "no such file", "not a document", "twice", "no end"],
)
def test_a_fixture_that_cannot_be_run_is_reported_with_its_file(cli: Cli, flow: Path, text: str, problem: str) -> None:
    flow.write_text(text)

    done = cli("test", "flows")

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"flows/sample-workflow.test.yaml:{problem}")
    assert done.stdout.splitlines()[1].startswith("    ")  # the remedy
    assert done.stdout.endswith("0 cases of 1 fixture, nothing to run; 1 fixture could not be run\n")


@pytest.mark.parametrize("wanted", ["sample-workflow", "../flows/sample-workflow.json", "bug-investigation"])
def test_a_fixture_names_its_workflow_by_id_or_path(cli: Cli, flow: Path, wanted: str) -> None:
    (flow.parent / "other.test.yaml").write_text(f"workflow: {wanted}\ncases: [{{name: one}}]")

    done = cli("test", "flows/other.test.yaml")

    assert (done.returncode, done.stdout.splitlines()[1].split()[0]) == (0, Path(wanted).stem)


def test_a_fixture_without_a_workflow_says_what_to_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lonely.test.yaml").write_text("cases: [{name: one}]")

    assert (
        "none of lonely.json, lonely.yaml, lonely.yml, lonely.workflow.md is beside it"
        in cli("test", "lonely.test.yaml").stdout
    )


def test_an_invalid_workflow_is_reported(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, document(step(prompt=5)), "bad.json")
    (tmp_path / "bad.test.yaml").write_text("cases: [{name: one}]")

    done = cli("test", "bad.json")

    assert (done.returncode, "bad.test.yaml:1:1: error: Invalid workflow. bad.json" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "There is no .workflowlookup/workflows here"),
        (
            ["home"],
            "no fixture found in home. A fixture is a *.test.yaml beside its workflow; `workflowlookup test --ex",
        ),
    ],
    ids=["no project", "an empty directory"],
)
def test_nothing_to_test_is_a_problem_with_a_remedy(cli: Cli, words: list[str], problem: str) -> None:
    done = cli("test", *words)

    assert (done.returncode, problem in done.stderr) == (1, True)


@pytest.mark.parametrize("path", ["flows/sample-workflow.json", "gone.json", "gone.test.yaml"])
def test_a_path_without_a_fixture_is_a_problem(cli: Cli, flow: Path, path: str) -> None:
    done = cli("test", path)

    assert (done.returncode, f"{path}: error: " in done.stdout) == (1, True)


@pytest.mark.parametrize("wanted", ["bug-investigation", "flows/sample-workflow.json"])
def test_the_example_is_a_fixture_that_passes(cli: Cli, flow: Path, tmp_path: Path, wanted: str) -> None:
    example = cli("test", "--example", wanted)
    (flow.parent / "example.test.yaml").write_text(example.stdout)

    done = cli("test", "flows/example.test.yaml")

    assert (example.returncode, done.returncode) == (0, 0)
    assert "refuse:" in example.stdout


def test_an_invalid_percentage_is_wrong_usage(cli: Cli) -> None:
    assert cli("test", "--min-coverage", "all").returncode == 2


def test_a_report_that_cannot_be_written_is_an_error(cli: Cli, flow: Path) -> None:
    flow.write_text(PASSING)

    done = cli("test", "flows", "--junit", "no/such/dir.xml")

    assert (done.returncode, "no/such/dir.xml cannot be written" in done.stderr) == (1, True)


def test_a_terminal_has_a_progress_bar_and_colour(cli: Cli, flow: Path) -> None:
    flow.write_text(PASSING)

    code, seen = cli.on_terminal("test", "flows")

    assert code == 0
    assert "Testing" in seen
    assert "\x1b[32mpassed\x1b[0m" in seen


# ── the text of fixtures ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("a: 1 # one\nb: 2\n", ("a",), 3, "a: 3 # one\nb: 2\n"),
        ("a: [x] # why\n", ("a",), ["x", "z"], "a: [x, z] # why\n"),
        ("a:\n- x\n- y\n# end\n", ("a",), ["z"], "a:\n- z\n# end\n"),
        ("a:\n  - x\n", ("a",), [], "a: []\n"),
        ("a:\n  b: 1 # b\n# end\n", ("a", "c"), True, "a:\n  b: 1 # b\n  c: true\n# end\n"),
        ("a: {b: 1}\n", ("a", "c"), 2, "a: {b: 1, c: 2}\n"),
        ("b: 1\n", ("a", "c"), 2, "b: 1\na: {c: 2}\n"),
        ("a: &x [1]\nb: *x\n", ("a",), [2], "a: [2]\nb: [1]\n"),
        ("a: &x {c: [1]}\nb: *x\n", ("b", "c"), [2], "a: {c: [1]}\nb: {c: [2]}\n"),
        ("- a: |\n    text\n\n# end\n", (0, "b"), "yes", '- a: |\n    text\n  b: "yes"\n\n# end\n'),
        ("a: 1\r\nb: 2 # two\r\n", ("a",), ["x"], "a: [x]\r\nb: 2 # two\r\n"),
        ("a: 1\r\n", ("b",), "x\ny", "a: 1\r\nb: |-\r\n  x\r\n  y\r\n"),
        ("\ufeffa: 1\n", ("a",), 2, "\ufeffa: 2\n"),
    ],
)
def test_a_value_is_replaced_in_its_place(before: str, path: Any, value: Json, after: str) -> None:
    edited = with_edits(before, ".yaml", {path: value})

    assert parse_yaml(edited.encode()) == parse_yaml(after.encode())
    if "&" not in before:
        assert edited == after


@pytest.mark.parametrize(
    "value",
    [{"a": ["x\ny", "no", "1", "2024-01-01", "é ☃", " x ", "a: b", "#", "", "\n", "\x85", "a\n\n"]}, [{}], {"b": [[]]}],
)
def test_dumped_values_are_read_back_unchanged(value: Json) -> None:
    assert parse_yaml(text_of(value).encode()) == value
    assert parse_yaml(text_of(value, in_line=True).encode()) == value


def test_several_values_are_replaced_together_including_nested_ones() -> None:
    before = "a:\n  - x: {p: 1}  # first\n    z:\n      w: 1\n"
    edits = {("a", 0, "v"): 5, ("a", 0, "z", "u"): 4, ("a", 0, "x", "p"): 2, ("a", 0, "x", "q"): 3}

    after = with_edits(before, ".yaml", edits)

    assert after == "a:\n  - x: {p: 2, q: 3}  # first\n    z:\n      w: 1\n      u: 4\n    v: 5\n"


def test_thousands_of_values_are_replaced_in_bounded_time() -> None:
    text = "".join(f"k{number}:\n  - a\n" for number in range(2_000))
    began = time.process_time()

    after = with_edits(text, ".yaml", {(f"k{number}",): ["b"] for number in range(2_000)})

    assert (after.count("- b\n"), time.process_time() - began < 10) == (2_000, True)


def test_the_example_begins_with_what_the_contract_requires(cli: Cli, flow: Path) -> None:
    schema = {"properties": {"due": {"type": "string", "format": "date"}}, "required": ["due", "found"]}
    steps = [step("look", produces=["found"]), step("report", requires=["owner"])]
    write(flow.parent, document(*steps, contextSchema=schema), "sample-workflow.json")

    example = cli("test", "--example", "flows/sample-workflow.json")
    flow.write_text(example.stdout)

    assert parse_yaml(example.stdout.encode())["cases"][0]["context"] == {"due": "2026-01-31", "owner": "…"}
    assert cli("test", "flows").returncode == 0


@pytest.mark.parametrize("text", [FAILING.replace("\n", "\r\n"), "\ufeff" + FAILING], ids=["CRLF", "BOM"])
def test_update_keeps_line_breaks_and_the_mark_at_the_start(cli: Cli, flow: Path, text: str) -> None:
    flow.write_bytes(text.encode())

    done = cli("test", "flows", "--update")

    after = flow.read_bytes().decode()
    assert (done.returncode, after.count("\r\n") in (0, after.count("\n")), after[0]) == (0, True, text[0])


def test_update_keeps_the_mode_of_a_fixture_and_leaves_no_other_file(cli: Cli, flow: Path) -> None:
    flow.write_text(FAILING)
    flow.chmod(0o640)

    cli("test", "flows", "--update")

    assert flow.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in flow.parent.iterdir()) == ["sample-workflow.json", flow.name]


def test_proofs_that_no_fixture_mentions_are_said_to_be_assumed(cli: Cli, tmp_path: Path) -> None:
    proof = [{"kind": "command", "name": "tests", "use": "test"}, {"kind": "file", "path": "a"}]
    write(tmp_path / "flows", document(step("fix", proof=proof)))
    fixture = "cases: [{name: fixed, outputs: {fix: {accept: [done], proof: {file-1: pass}}}}]"
    (tmp_path / "flows" / "sample-workflow.test.yaml").write_text(fixture)

    done = cli("test", "flows")

    assert done.returncode == 0
    assert "sample-workflow: proofs assumed to pass\n  - fix: tests\n" in done.stdout


REAL = """\
cases:
  - name: one
    outputs:
      look:
        accept: [done]
        refuse: [{output: done, proof: {tests: fail}}]
"""


@pytest.mark.parametrize(("content", "code"), [("all well", 0), ("all bad", 1)])
def test_proofs_are_taken_in_the_project_if_asked_for(cli: Cli, project: Path, content: str, code: int) -> None:
    proof = [{"kind": "file", "name": "tests", "path": "report.txt", "text": ["well"]}]
    write(project, document(step("look", proof=proof)))
    (project / "sample-workflow.test.yaml").write_text(REAL)
    (cli.directory / "report.txt").write_text(content)

    done = cli("test", "--real")

    assert done.returncode == code, done.stdout
    assert ("report.txt: Output must match the pattern well" in done.stdout) is bool(code)
    assert "assumed to pass" not in done.stdout
    assert cli("test").returncode == 0


def test_a_command_that_came_with_a_repository_is_not_run_for_a_test_either(cli: Cli, project: Path) -> None:
    (cli.directory / ".git").mkdir()
    write(project, document(step("look", proof=[{"kind": "command", "name": "tests", "run": ["touch", "ran"]}])))
    (project / "sample-workflow.test.yaml").write_text(REAL)

    done = cli("test", "--real")

    assert done.returncode == 1
    assert "'tests' is unproved" in done.stdout
    assert "not trusted, because it came with a repository" in " ".join(done.stdout.split())
    assert not (cli.directory / "ran").exists()
