"""`workflowlookup graph`."""

import json
import xml.etree.ElementTree as ET

import pytest

from support.command_line import Cli
from support.make import document, loop, step, write

STEPS = (
    step("plan-it", requireConfirmation=True),
    step("big-only", runCondition={"var": "size", "equals": "large"}),
    loop("each", [step("work"), step("check")], type="forEach", items="files"),
    step("last"),
)


SAMPLE = document(*STEPS)


def test_the_tree_is_plain_in_a_pipe(cli: Cli) -> None:
    done = cli("graph", "sample-workflow")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Sample workflow  sample-workflow · version 1.0.0",
        "├── 1 Title plan-it  plan-it  (asks for confirmation)",
        '├── 2 Title big-only  big-only  if size equals "large"',
        "├── 3 Loop each  each  (repeats for each currentItem of files, at most 10 times)",
        "│   ├── 3.1 Title work  work",
        "│   └── 3.2 Title check  check",
        "└── 4 Title last  last",
    ]


def test_a_context_marks_the_path(cli: Cli) -> None:
    done = cli("graph", "sample-workflow", "--context", "files=[1, 2]", "--context", "size=small")

    assert [line.split("Title")[0] for line in done.stdout.splitlines() if "Title" in line] == [
        "├── ✓ 1 ",
        "├── · 2 ",
        "│   ├── ✓ 3.1 ",
        "│   └── ✓ 3.2 ",
        "└── ✓ 4 ",
    ]
    assert '2 Title big-only  big-only  skipped, not true: size equals "large" (size is "small")\n' in done.stdout
    assert done.stdout.endswith("\n✓ taken, · skipped in this context\n")


def test_a_context_that_a_loop_cannot_use_is_reported(cli: Cli) -> None:
    done = cli("graph", "sample-workflow", "--context", "files=3")

    assert "## Warnings" in done.stdout
    assert "is 3: expected a list ('array'). Put files into the context" in done.stdout


def test_the_tree_on_a_terminal_has_colour_and_wraps(cli: Cli) -> None:
    code, seen = cli.on_terminal("graph", "sample-workflow", columns=50)

    assert code == 0
    assert "\x1b[" in seen
    assert "--output flow.svg" in seen.replace("\n", "")


def test_json_has_nodes_with_their_parents_and_edges(cli: Cli) -> None:
    answer = json.loads(cli("graph", "sample-workflow", "--json", "--context", "files=[1]").stdout)

    assert [(node["id"], node.get("parent")) for node in answer["nodes"]] == [
        ("plan-it", None),
        ("big-only", None),
        ("each", None),
        ("work", "each"),
        ("check", "each"),
        ("last", None),
    ]
    assert {"source": "big-only?", "target": "each", "label": "no"} in answer["edges"]
    assert answer["path"] == ["plan-it", "work@1", "check@1", "last"]
    assert answer["nodes"][1]["because"] == 'not true: size equals "large" (size is not set)'


def test_mermaid_and_svg_go_to_standard_output(cli: Cli) -> None:
    mermaid = cli("graph", "sample-workflow", "--format", "mermaid", PYTHONIOENCODING="ascii")
    svg = cli("graph", "sample-workflow", "--format", "svg")

    assert "flowchart TD\n" in mermaid.stdout
    assert ET.fromstring(svg.stdout).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(("name", "start"), [("flow.svg", "<svg"), ("flow.mmd", "---\ntitle:")])
def test_the_name_of_the_file_says_the_format(cli: Cli, name: str, start: str) -> None:
    done = cli("graph", "sample-workflow", "--output", name)

    assert (done.returncode, done.stdout) == (0, f"Wrote {name}\n")
    assert (cli.directory / name).read_text("utf-8").startswith(start)


def test_a_path_works_as_well_as_an_id(cli: Cli) -> None:
    write(cli.directory, document(step("mine"), identifier="my-own"), "mine.json")

    done = cli("graph", "mine.json")

    assert done.stdout.endswith("└── 1 Title mine  mine\n")


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("no-such-id",), 1, "No workflow has the id"),
        (("./no-such.json",), 1, "No such file"),
        (("sample-workflow", "--output", "flow.txt"), 2, "--format svg"),
        (("sample-workflow", "--output", "flow.png"), 2, "flow.png: the name must end in .svg or .mmd (Mermaid)"),
        (("sample-workflow", "--output", "no/such/flow.svg"), 1, "cannot be written"),
        (("sample-workflow", "--context", "files"), 2, "NAME=VALUE"),
    ],
)
def test_impossible_requests_are_refused_with_a_reason(
    cli: Cli, words: tuple[str, ...], code: int, problem: str
) -> None:
    done = cli("graph", *words)

    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr


def test_a_path_that_is_not_a_document_is_refused(cli: Cli) -> None:
    (cli.directory / "notes.txt").write_text("hello")

    done = cli("graph", "./notes.txt")

    assert (done.returncode, "must end in .json" in done.stderr) == (1, True)
