"""`workflowlookup check`."""

import json
from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, step, write

RULES = [
    {"type": "length", "min": 5, "max": 10, "message": "Five to ten characters."},
    {"type": "contains", "value": "ok", "message": "Say ok.", "condition": {"var": "size", "equals": "large"}},
]


SAMPLE = document(step("plan", validationCriteria=RULES), step("free"))


def test_an_output_that_passes_is_accepted_without_the_line_break_that_editors_add(cli: Cli) -> None:
    (cli.directory / "output.md").write_text("0123456789\n")

    by_file, by_pipe = cli("check", "sample-workflow", "plan", "output.md"), cli("check", "sample-workflow", "plan")
    piped = cli("check", "sample-workflow", "plan", "-", stdin=b"0123456789\n")

    assert [(done.returncode, done.stdout) for done in (by_file, piped)] == [(0, "plan: accepted\n")] * 2
    assert (by_pipe.returncode, by_pipe.stderr) == (1, "workflowlookup: the output is empty.\n")


def test_an_output_that_fails_gets_the_issues_in_its_context(cli: Cli) -> None:
    done = cli("check", "sample-workflow", "plan", "--context", "size=large", stdin=b"no")

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(
        "plan: refused\n\n## Issues\n\n- Five to ten characters.\n- Say ok.\n\n## Suggestions\n"
    )


def test_json_is_the_answer_of_the_tool(cli: Cli) -> None:
    done = cli("check", "sample-workflow", "plan", "--json", stdin=b"fine words")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"valid": True, "issues": [], "suggestions": []})


def test_a_step_without_criteria_accepts_and_says_why(cli: Cli) -> None:
    done = cli("check", ".workflowlookup/workflows/sample-workflow.json", "free", stdin=b"x")

    assert (done.returncode, done.stdout) == (0, "free: accepted; the step has no criteria, so any output is\n")


@pytest.mark.parametrize(
    ("words", "stdin", "problem"),
    [
        (("no-such", "plan"), b"x", "No workflow has the id 'no-such'. Run `workflowlookup list` to see every id."),
        (("sample-workflow", "plna"), b"x", "did you mean 'plan'?"),
        (("sample-workflow", "plan", "no.md"), b"", "no.md cannot be read: No such file"),
        (("sample-workflow", "plan"), b"\xff", "is not UTF-8 text"),
    ],
)
def test_an_output_that_cannot_be_judged_is_reported(
    cli: Cli, words: tuple[str, ...], stdin: bytes, problem: str
) -> None:
    done = cli("check", *words, stdin=stdin)

    assert (done.returncode, done.stdout) == (1, "")
    assert problem in done.stderr


def test_a_workflow_of_another_system_is_not_looked_for_in_the_list(cli: Cli) -> None:
    (cli.own / "workflowlookup.toml").write_text('[providers.svc]\nkind = "http"\nbase_url = "http://127.0.0.1:9"\n')

    done = cli("check", "svc.deploy", "plan", stdin=b"x")

    assert (done.returncode, done.stderr) == (
        1,
        "workflowlookup: Workflow not found. No workflow has the id 'svc.deploy'. "
        "Workflows of the provider 'svc' are for MCP clients; `workflowlookup tools` lists them.\n",
    )


def test_on_a_terminal_it_says_how_to_end(cli: Cli) -> None:
    code, seen = cli.on_terminal("check", "sample-workflow", "plan", typed="fine\nok\n\x04")

    assert code == 0
    assert "Ctrl-D" in seen
    assert "accepted" in seen


def test_proofs_are_listed_and_not_taken(cli: Cli, project: Path) -> None:
    proof = [{"kind": "file", "path": "{{report}}", "exists": False}]
    content = document(step("plan", proof=proof, produces={"report": {}}), identifier="proved")
    write(project, content)
    (cli.directory / "REPORT.md").write_text("It would fail.")

    done = cli("check", "proved", "plan", stdin=b"report: REPORT.md")
    as_json = cli("check", "proved", "plan", "--json", stdin=b"report: REPORT.md")

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "- No file matches `REPORT.md`")
    assert json.loads(as_json.stdout)["proofs"] == ["No file matches `REPORT.md`"]
