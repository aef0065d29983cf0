"""`workflowlookup validate`."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import BOUND, Cli
from support.json_values import JsonObject
from support.make import document, loop, step, write

BAD_JSON = """\
{
  "id": "bad-one", "name": "Bad \\"one\\" [{",
  "description": "Two things are wrong",
  "steps": [
    {"id": "first", "title": "First", "prompt": "Do it."},
    {
      "id": "second",
      "title": 7,
      "agentRole": "short", "prompt": "Do it."
    }
  ]
}
"""

BAD_YAML = """\
# a comment
id: bad-one
name: Bad one
description: Two things are wrong
steps:
  - {id: first, title: First, prompt: Do it.}
  - id: second
    title: Second
    agentRole: short
"""


def lines_of(text: str) -> list[str]:
    """The findings, without their suggestions."""
    return [line for line in text.splitlines() if not line.startswith("    ")]


def test_a_valid_document_is_only_counted(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, document())

    done = cli("validate", "sample-workflow.json")

    assert (done.returncode, done.stdout, done.stderr) == (0, "1 document, no problems\n", "")


def test_a_folder_that_cannot_be_served_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, document())
    (tmp_path / "sample-workflow.files").mkdir()
    (tmp_path / "sample-workflow.files" / "out").symlink_to("/etc/passwd")

    done = cli("validate", "sample-workflow.json")

    assert done.returncode == 1
    assert done.stdout == (
        "sample-workflow.json: warning: sample-workflow.files/out is a link, which is not followed\n"
        "    Copy the file instead; until then the workflow has neither files nor a skill\n"
        "1 document, 1 with problems\n"
    )


def test_a_file_of_a_workflow_that_cannot_be_read_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, document())
    (tmp_path / "sample-workflow.files").mkdir()
    (tmp_path / "sample-workflow.files" / "own").touch(mode=0)

    done = cli("validate", "sample-workflow.json", program=BOUND)

    assert done.returncode == 1
    assert "warning: sample-workflow.files/own cannot be read: Permission denied" in done.stdout


def test_a_finding_in_json_has_its_line_and_column_and_what_to_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(BAD_JSON)

    done = cli("validate", "bad.json")

    assert done.returncode == 1
    assert lines_of(done.stdout) == [
        "bad.json:8:7: error: Field 'title' must be text ('string'); found 7 in step 2 ('second')",
        "bad.json:9:7: error: Field 'agentRole' must be at least 10 characters long; found 'short' in step 2 ('second')",
        "1 document, 1 with problems",
    ]
    assert "\n    Write 'agentRole' as 10 to 1024 characters that say who the agent should be\n" in done.stdout


def test_a_finding_in_yaml_has_its_line_and_column_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD_YAML)

    done = cli("validate", "bad.yaml")

    assert [line.partition(": ")[0] for line in lines_of(done.stdout)] == [
        "bad.yaml:7:5",
        "bad.yaml:9:5",
        "1 document, 1 with problems",
    ]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("broken.json", '{\n  "id": "x",\n}', "broken.json:3:1"),
        ("broken.yaml", "id: x\nname: [\n", "broken.yaml:3:1"),
        ("empty.json", "", "empty.json:1:1"),
        ("list.json", "[]", "list.json:1:1"),
    ],
)
def test_a_syntax_error_has_its_position(cli: Cli, tmp_path: Path, name: str, text: str, place: str) -> None:
    (tmp_path / name).write_text(text)

    done = cli("validate", name)

    assert (done.returncode, done.stdout.partition(": error: ")[0]) == (1, place)


def test_a_directory_is_read_as_the_library_reads_it(cli: Cli, tmp_path: Path) -> None:
    for name in ("a.json", "deep/er/b.json", ".hidden/c.json", ".d.json", "e.test.json"):
        write(tmp_path / "flows", document(identifier=f"id-{name[-6]}"), name)
    (tmp_path / "flows" / "README.md").write_text("not a workflow")

    done = cli("validate", "flows")

    assert (done.returncode, done.stdout) == (0, "2 documents, no problems\n")


def test_a_directory_without_documents_is_a_problem(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()

    done = cli("validate", "flows")

    assert done.returncode == 1
    assert lines_of(done.stdout) == ["flows: error: No workflow document found", "0 documents, none to check"]


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        (json.dumps(document()), 0, "1 document, no problems\n"),
        ("\ufeff" + json.dumps(document(), indent="\t"), 0, "1 document, no problems\n"),
        ('{"id": ', 1, "-:1:8: error: JSON syntax error: Unexpected end of JSON input\n"),
        ("a: 1\na: 2\n", 1, "-:2:1: error: YAML syntax error: the field 'a' is written twice\n"),
        ("id: a-b-c\nname: N\ndescription: D\nsteps: 5\n", 1, "-:4:1: error: Field 'steps'"),
        ("", 1, "-:1:1: error: JSON syntax error: the document is empty"),
        (" " * 2_000_000, 1, "-: error: The file is larger than 1,048,576 bytes"),
    ],
    ids=["sound", "with a mark", "broken json", "broken yaml", "yaml", "nothing", "too much"],
)
def test_standard_input_is_a_document_in_json_or_yaml(cli: Cli, text: str, code: int, problem: str) -> None:
    done = cli("validate", "-", stdin=text.encode())

    assert (done.returncode, done.stdout[: len(problem)]) == (code, problem)


def test_a_duplicate_id_is_reported_for_the_file_with_another_name(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "flows", document(), "a-copy.json")
    write(tmp_path / "flows", document())

    done = cli("validate", "flows")

    assert lines_of(done.stdout)[0].startswith("flows/a-copy.json:1:2: error: flows/sample-workflow.json has the id")


def test_warnings_count_as_they_do_for_the_tool_and_notes_do_not(cli: Cli, tmp_path: Path) -> None:
    rule = {"type": "regex", "pattern": "(", "message": "m"}
    write(tmp_path, document(step(validationCriteria=[rule])), "warned.json")
    write(tmp_path, document(step(notesOptional=True)), "noted.json")

    warned, noted = cli("validate", "warned.json"), cli("validate", "noted.json")

    assert (warned.returncode, noted.returncode) == (1, 0)
    assert lines_of(warned.stdout)[-1] == "1 document, 1 with problems"
    assert ": note: 'notesOptional' is loaded but not acted on" in noted.stdout


def test_an_id_that_two_files_share_is_a_problem_but_a_file_named_twice_is_not(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "flows", document(), "a.json")
    twice = cli("validate", "flows", "flows/a.json")
    write(tmp_path / "flows", document(), "b.json")

    shared = cli("validate", "flows")

    assert (twice.returncode, twice.stdout) == (0, "1 document, no problems\n")
    assert (shared.returncode, lines_of(shared.stdout)[0]) == (
        1,
        "flows/b.json:1:2: error: flows/a.json has the id 'sample-workflow' as well, and only one of them would be used",
    )


def test_json_has_every_finding_with_its_position(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path, document(loop("each-one", "nowhere", type="for", count=2)))

    done = cli("validate", "--json", "sample-workflow.json")

    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "valid": False,
        "documents": [
            {
                "file": "sample-workflow.json",
                "valid": False,
                "findings": [
                    {
                        "severity": "error",
                        "message": "Loop 'each-one' has the body 'nowhere', a step that does not exist "
                        "in step 1 ('each-one')",
                        "suggestion": "Refer to a step at the top level of this workflow, or write the steps into 'body'",
                        "path": "steps[0].body",
                        "line": 1,
                        "column": file.read_text().index('"body"') + 1,
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("words", "environment"), [(["--format", "github"], {}), ([], {"GITHUB_ACTIONS": "true"})], ids=["asked", "in CI"]
)
def test_annotations_for_github_are_escaped(
    cli: Cli, tmp_path: Path, words: list[str], environment: JsonObject
) -> None:
    write(tmp_path, document(step(title="100%\nsure" * 20)), "a,b:c.json")

    done = cli("validate", *words, "a,b:c.json", **environment)

    annotation, summary = done.stdout.splitlines()
    assert (done.returncode, summary) == (1, "1 document, 1 with problems")
    assert annotation.startswith("::error file=a%2Cb%3Ac.json,line=1,col=")
    assert "found '100%25%0Asure100%25%0Asure" in annotation


def test_text_format_can_be_requested_in_ci(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")

    done = cli("validate", "--format", "text", "bad.json", GITHUB_ACTIONS="true")

    assert done.stdout.startswith("bad.json:1:2: error: ")


BOMB = "x0: &x0 [lol]\n" + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 9))

HOSTILE: dict[str, Callable[[Path], object]] = {
    "pipe.json": os.mkfifo,
    "link-out.json": lambda path: path.symlink_to("/etc/passwd"),
    "link-to-itself.json": lambda path: path.symlink_to(path),
    "bytes.json": lambda path: path.write_bytes(bytes(range(256))),
    "bytes.yaml": lambda path: path.write_bytes(bytes(range(256))),
    "large.json": lambda path: path.write_bytes(b" " * ((1 << 20) + 1)),
    "deep.json": lambda path: path.write_text("[" * 100_000),
    "deep-and-closed.json": lambda path: path.write_text("[" * 500 + "]" * 500),
    "deep.yaml": lambda path: path.write_text("[" * 5_000),
    "bomb.yaml": lambda path: path.write_text(BOMB),
    "circle.yaml": lambda path: path.write_text("&a [*a]"),
    "tag.yaml": lambda path: path.write_text("!!python/object/apply:os.system ['true']"),
    "number.json": lambda path: path.write_text('{"id": 1e999, "steps": 123456789012345678901234567890}'),
    "surrogate.json": lambda path: path.write_text('{"id": "\\ud800"}'),
    "merged.yaml": lambda path: path.write_text("a: &a {id: 5}\n<<: *a\n"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_a_finding_and_never_a_traceback(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "flows").mkdir()
    HOSTILE[name](tmp_path / "flows" / name)

    done = cli("validate", "flows")

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"flows/{name}")
    assert done.stdout.endswith("\n1 document, 1 with problems\n")


@pytest.mark.parametrize("name", ["gone.json", "gone/away.yaml", "notes.txt", "noextension", "a" * 300 + ".json", ""])
def test_a_path_without_a_document_is_a_finding(cli: Cli, name: str) -> None:
    done = cli("validate", name)

    assert (done.returncode, done.stderr) == (1, "")
    assert ": error: " in done.stdout


def test_a_link_named_on_the_command_line_may_point_anywhere(cli: Cli, tmp_path: Path) -> None:
    target = write(tmp_path / "elsewhere", document())
    (tmp_path / "link.json").symlink_to(target)

    assert cli("validate", "link.json").returncode == 0


@pytest.mark.skipif(os.geteuid() == 0 and sys.platform != "linux", reason="root is not bound by permissions here")
def test_a_file_that_may_not_be_read_is_a_finding(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, document()).chmod(0)

    done = cli("validate", "sample-workflow.json", program=BOUND)

    assert (done.returncode, "The file cannot be read: Permission denied" in done.stdout) == (1, True)


def test_a_file_name_that_is_not_text_can_be_printed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.json")).write_text("{")

    as_text, as_json = cli("validate", "."), cli("validate", "--json", ".")

    assert as_text.stdout.startswith("./\\xff.json:1:2: error: ")
    assert json.loads(as_json.stdout)["documents"][0]["file"] == "./\\xff.json"


@pytest.mark.parametrize("command", ["validate", "lint"])
def test_a_file_name_cannot_look_like_another_line(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "a\n1 document, no problems\r\u2028.json").write_text("{")

    done = cli(command, str(tmp_path))

    assert r"/a\n1 document, no problems\r\u2028.json:1:" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("1 document")] == [
        "1 document, 1 with problems"
    ]


def test_a_file_name_in_a_refusal_cannot_look_like_another_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a\nworkflowlookup: all is well.json").write_text('{"id": "broken-one"')

    done = cli("show", "broken-one", "--directories", str(tmp_path))

    assert done.returncode == 1
    assert "Invalid workflow" in done.stderr
    assert "\nworkflowlookup: all is well" not in done.stderr


def test_a_terminal_has_colour(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")

    code, seen = cli.on_terminal("validate", "bad.json")

    assert code == 1
    assert "\x1b[1mbad.json:1:2\x1b[0m: \x1b[1;31merror\x1b[0m: JSON syntax error" in seen


def test_every_bundled_workflow_passes(cli: Cli) -> None:
    shown = cli("show", "bug-investigation", "--mode", "full", "--json").stdout

    assert cli("validate", "-", stdin=shown.encode()).returncode == 0


def test_what_short_forms_were_read_as_is_shown(cli: Cli, tmp_path: Path) -> None:
    page = '---\nid: small-fix\nname: N\ndescription: D\n---\n## One {#one}\nDo.\n### Criteria\n- contains "a": M\n'
    (tmp_path / "a.workflow.md").write_text(f"{page}### Proof\n- tests: `make test` passes\n")

    text, in_json = cli("validate", "a.workflow.md"), cli("validate", "a.workflow.md", "--json")

    assert text.stdout == (
        'a.workflow.md:9:1: read as: The output contains the text "a" (with this case)\n'
        "a.workflow.md:11:1: read as: `make test` ends with exit code 0\n"
        "1 document, no problems\n"
    )
    (checked,) = json.loads(in_json.stdout)["documents"]
    assert [(read["path"], read["line"]) for read in checked["read"]] == [
        ("steps[0].validationCriteria[0]", 9),
        ("steps[0].proof[0]", 11),
    ]
    assert "read as" not in cli("lint", "a.workflow.md").stdout


def test_problems_of_a_page_are_at_its_lines(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.workflow.md").write_text("---\nid: x\n---\n## One\n```step\nrunCondition: {vra: a}\n```\n## One\n")

    done = cli("validate", "a.workflow.md")

    lines = [line.partition(": ")[0] for line in done.stdout.splitlines() if line.startswith("a.workflow")]
    assert (done.returncode, set(lines)) == (
        1,
        {f"a.workflow.md:{place}" for place in ("1:1", "2:1", "4:1", "6:1", "6:16", "8:1")},
    ), done.stdout
