"""`workflowlookup run` on a terminal: commands, drafts, refusals and questions as a person meets them."""

import json
import os
import re
import signal
import stat
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Cli, Sitting, plain
from support.json_values import JsonObject
from support.make import document, loop, step, write

DONE = {"type": "contains", "value": "done", "message": "Say that it is done."}


@pytest.fixture
def put_workflow(project: Path) -> Any:
    """Puts a workflow `sample-workflow` with these steps into the project."""

    def put(*steps: JsonObject, **fields: Any) -> None:
        write(project, document(*steps, **fields))

    return put


def run_of(seen: str) -> str:
    return str(re.findall(r"run (?:--resume|show) (\w+)", seen)[-1])


def results(cli: Cli, run_id: str) -> dict[str, str]:
    results = json.loads(cli("run", "show", run_id, "--json").stdout)["results"]
    assert isinstance(results, dict)
    return results


def drafts(cli: Cli) -> list[Path]:
    return sorted((cli.home / ".local/state/workflowlookup/drafts").glob("*"))


def leave(sitting: Sitting) -> str:
    """The id of the run that is left."""
    return run_of(sitting.type(":leave\n").see("Continue with").leave()[1])


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (":hlep", "Did you mean :help?"),
        (":q", "Did you mean :quit?"),
        (":wq!", "The commands are :set, :edit,"),
        (":param x: what it is", "type two: ::param"),
    ],
)
def test_an_unknown_command_is_not_part_of_the_output(cli: Cli, put_workflow: Any, typed: str, message: str) -> None:
    put_workflow(step("first"), step("second"))
    sitting = cli.sit_down("run", "sample-workflow", columns=200).see("> ").type(f"{typed}\n")
    sitting.see(f"'{typed.split(maxsplit=1)[0]}' is not a command, and the line was not added.").see(message)

    run_id = leave(sitting.see("> ").type("An output.\n.\n").see("accepted").see("> "))

    assert results(cli, run_id) == {"first": "An output."}


def test_a_line_that_begins_with_a_colon_is_sent_with_two_of_them(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"), step("second"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ")

    run_id = leave(sitting.type("::param x\n  :indented\n:::\n.\n").see("accepted").see("> "))

    assert results(cli, run_id) == {"first": ":param x\n  :indented\n::"}


def test_end_without_a_loop_and_again_without_an_earlier_output_say_so(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"), step("second"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type(":end\n").see("not in a loop that can be ended now")
    sitting.see("> ").type(":again\n").see("no earlier output").see("> ").type(":set nonsense\n").see("not NAME=VALUE")

    run_id = leave(sitting.see("> ").type("Text.\n.\n").see("accepted").see("> "))

    assert results(cli, run_id) == {"first": "Text."}


def test_help_names_every_command(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type(":help\n")
    for word in (":set NAME=VALUE", ":edit", ":again", ":show", ":clear", ":end", ":leave", ":help", "::text"):
        sitting.see(word)

    leave(sitting.see("> "))


def test_show_has_the_step_and_clear_begins_with_nothing(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"), step("second"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("A line.\n").see("> ").type(":show\n")
    sitting.see("Do first.").see("│ A line.").see("> ").type(":clear\n").see("The draft is empty now").see("> ")

    run_id = leave(sitting.type("Another.\n.\n").see("accepted").see("> "))

    assert results(cli, run_id) == {"first": "Another."}


# ── words wrap ──────────────────────────────────────────────────────────────────────────────────────────────────

PROSE = "Explain thoroughly whatever consequences a reconsideration of responsibilities would have for everybody."
WIDE = "出力には原因と対策を必ず書いてください。短すぎる説明は受け付けられませんのでご注意ください。"
COMBINED = " ".join(["e\u0301le\u0300ve"] * 30)


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("text", [PROSE, WIDE, COMBINED], ids=["prose", "wide", "combining"])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(
    cli: Cli, put_workflow: Any, text: str, columns: int
) -> None:
    put_workflow(step("first", title="T", prompt=text, validationCriteria=[{**DONE, "message": text}]), name="N")
    code, seen = cli.on_terminal("run", "sample-workflow", typed=f"{text[:20]}\n.\n:leave\n", columns=columns)

    lines = [
        line for line in plain(seen).splitlines() if not line.startswith(("Continue with", "> ", "workflowlookup:"))
    ]
    assert code == 0
    assert [line for line in lines if cells(line) > columns] == []
    assert words_of(text) <= set(" ".join(lines).split()) or text == WIDE
    assert sum(line.strip() in text for line in lines if len(line.strip()) > 3) >= 2 * cells(text) // columns


def words_of(text: str) -> set[str]:
    return set(text.split())


def cells(text: str) -> int:
    """How many columns a text takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def test_an_error_message_is_wrapped_and_a_command_is_not(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"))
    journal = str(cli.directory / "a-directory-with-a-long-name" / "runs.sqlite")
    sitting = cli.sit_down("run", "sample-workflow", "--journal", journal, columns=40).see("> ").type(":nonsense\n")
    sitting.see("workflowlookup: ':nonsense' is not a\ncommand, and the line was not added. The\n").see("> ")

    _, seen = sitting.type(":leave\n").see("Continue with").leave()

    assert f"workflowlookup run --resume {run_of(seen)} --journal {journal}" in seen


def test_quoted_text_cannot_leave_its_quotation(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", requireConfirmation=True))
    output = "x" * 36 + "Do you agree? [y]es" + "\u00a0" * 40 + "all is well"
    sitting = cli.sit_down("run", "sample-workflow", columns=40).see("> ").type(f"{output}\n.\n").see("for later")
    seen = plain(sitting.type("l\n").leave()[1])

    quoted = re.split(r"done\s+again\.\n", seen)[1].partition("Do you agree? [y]es, [n]o")[0]
    assert [line for line in quoted.splitlines() if line.strip() and not line.startswith("  │ ")] == []
    assert "".join(quoted.replace("  │ ", "").split()) == "".join(output.split())


def test_output_after_a_resize_has_the_new_width(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", prompt=PROSE), step("second", prompt=PROSE))
    sitting = cli.sit_down("run", "sample-workflow", columns=100).see(PROSE[:97].rpartition(" ")[0]).see("> ")

    sitting.resize(40).type("Text.\n.\n").see("accepted").see("\n".join(wrapped(PROSE, 40))).see("> ")

    leave(sitting)


def wrapped(text: str, columns: int) -> Sequence[str]:
    rows = [""]
    for word in text.split():
        if len(rows[-1]) + len(word) + 1 > columns + 1:
            rows[-1] = rows[-1].ljust(columns + 1)[:columns]
            rows.append("")
        rows[-1] += f"{word} "
    return [row[:columns] for row in rows[:-1]]


# ── drafts ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_keeps_the_draft_and_the_partial_line(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"), step("second"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type(":set size=3\nOne line.\n").see("> ").see("> ")
    code, seen = sitting.type("and half").see("and half").interrupt().see("So is your draft.").leave()

    (draft,) = drafts(cli)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (draft, draft.parent)]
    again = cli.sit_down("run", "--resume", run_of(seen)).see("Your draft so far:")
    again.see("│ One line.").see("│ and half").see("> ")
    run_id = leave(again.type("The rest.\n.\n").see("accepted").see("> "))

    assert (code, modes) == (130, [0o600, 0o700])
    assert results(cli, run_id) == {"first": "One line.\nand half\nThe rest."}
    assert '"changes":{"size":3}' in cli("export", run_id).stdout.replace(" ", "")
    assert drafts(cli) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_draft_survives_a_terminated_command(cli: Cli, put_workflow: Any, number: int) -> None:
    put_workflow(step("first"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("One line.\n").see("> ").type("half").see("half")
    sitting.end(number)

    run_id = json.loads(cli("runs", "--json").stdout)["runs"][0]["runId"]

    assert leave(cli.sit_down("run", "--resume", run_id).see("│ One line.\n  │ half").see("> ")) == run_id


@pytest.mark.parametrize("number", [0, signal.SIGKILL], ids=["the terminal goes away", "killed"])
def test_nothing_is_sent_and_no_line_is_lost_when_the_terminal_ends(cli: Cli, put_workflow: Any, number: int) -> None:
    put_workflow(step("first"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("One line.\n").see("> ").type("half").see("half")
    sitting.end(number)

    run_id = json.loads(cli("runs", "--json").stdout)["runs"][0]["runId"]

    assert results(cli, run_id) == {}
    assert leave(cli.sit_down("run", "--resume", run_id).see("│ One line.").see("> ")) == run_id


def test_a_draft_belongs_to_its_run_and_its_step(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"), step("second"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("A draft.\n").see("> ").interrupt()
    run_id = run_of(sitting.see("Continue with").leave()[1])

    other = cli.sit_down("run", "sample-workflow").see("> ").type(":leave\n").see("It is saved").leave()[1]
    cli("run", "--resume", run_id, stdin=b"Piped.")
    later = (
        cli.sit_down("run", "--resume", run_id).see("second").see("> ").type(":leave\n").see("It is saved").leave()[1]
    )

    assert "A draft." not in other + later


def test_the_drafts_of_a_run_are_purged_with_it(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"))
    sittings = [cli.sit_down("run", "sample-workflow").see("> ").type("A draft.\n").see("> ") for _ in range(2)]
    ended, _ = (leave(sitting) for sitting in sittings)
    cli("cancel", ended)

    done = cli("purge", "--older-than", "0m", "--yes")

    assert done.stdout.endswith("Deleted 1 run.\n")
    assert [path.name.startswith(ended) for path in drafts(cli)] == [False]


def test_a_draft_that_cannot_be_stored_is_reported_and_can_be_sent(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"), step("second"))
    (cli.home / ".local").mkdir()
    (cli.home / ".local" / "state").write_text("in the way")
    sitting = cli.sit_down("run", "sample-workflow", columns=200).see("> ").type("Text.\n").see("cannot be saved in")

    run_id = leave(sitting.see("> ").type(".\n").see("accepted").see("> "))

    assert results(cli, run_id) == {"first": "Text."}


def test_an_editor_that_fails_loses_nothing(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first"), step("second"))
    editor = cli.directory / "editor"
    editor.write_text('#!/bin/sh\nsed -i "1s/.*/From the editor./" "$1"; exit 3\n')
    editor.chmod(0o700)
    sitting = cli.sit_down("run", "sample-workflow", EDITOR=str(editor)).see("> ").type("Text.\n").see("> ")
    sitting.type(":edit\n").see("ended with code 3").see("> ").interrupt().see("Continue with")

    again = cli.sit_down("run", "--resume", run_of(sitting.leave()[1])).see("│ From the editor.").see("> ")

    assert results(cli, leave(again.type(".\n").see("accepted").see("> "))) == {"first": "From the editor."}


# ── resume, refusals, and a person's no ─────────────────────────────────────────────────────────────────────────


def test_resume_shows_a_line_of_state_and_the_last_verdict_and_the_editor_has_the_refused_text(
    cli: Cli, put_workflow: Any
) -> None:
    put_workflow(step("first", validationCriteria=[DONE]), step("second"))
    run_id = cli.start_run(stdin=b"One.\nTwo.")
    editor = cli.directory / "editor"
    editor.write_text('#!/bin/sh\ncp "$1" seen; sed -i "1s/$/ It is done./" "$1"\n')
    editor.chmod(0o700)

    sitting = cli.sit_down("run", "--resume", run_id, columns=200, EDITOR=str(editor))
    sitting.see("Sample workflow  0 of 2 done · waits for the output of step 'first' · refused once\n")
    sitting.see("Do first.").see("refused  (attempt 1)").see("- Say that it is done.").see(":edit opens").see("> ")
    leave(sitting.type(":edit\n").see("accepted").see("> "))

    assert (cli.directory / "seen").read_text().startswith("One.\nTwo.\n# ----")
    assert results(cli, run_id) == {"first": "One. It is done.\nTwo."}


def test_again_adds_to_the_refused_text_with_the_variables_that_were_set(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", validationCriteria=[DONE]), step("second"))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type(":set size=3\nOne.\n.\n").see("refused").see("> ")

    run_id = leave(sitting.type(":again\n").see("│ One.").see("> ").type("It is done.\n.\n").see("accepted").see("> "))

    assert results(cli, run_id) == {"first": "One.\nIt is done."}
    assert '"changes":{"size":3}' in cli("export", run_id).stdout.replace(" ", "")


def test_a_refusal_is_a_line_for_each_problem_and_shows_no_pattern(cli: Cli, put_workflow: Any) -> None:
    criteria = [
        {"type": "regex", "pattern": "^## (?:Cause|Remedy)$", "flags": "m", "message": ""},
        {"type": "regex", "pattern": "PASS|FAIL", "message": ""},
        {"type": "regex", "pattern": r"^\d+(?=x)", "message": ""},
        {"type": "regex", "pattern": r"v\d+\.\d+", "message": "Name the version."},
        {"type": "length", "min": 100, "message": "Say more."},
        {"not": {"type": "regex", "pattern": "TODO", "message": ""}},
    ]
    put_workflow(step("first", validationCriteria={"and": criteria}))
    sitting = cli.sit_down("run", "sample-workflow", columns=160).see("> ").type("TODO.\n.\n").see("refused")

    seen = sitting.see("> ").type(":leave\n").see("It is saved").leave()[1].partition("refused")[2]

    assert [line for line in seen.splitlines() if line.startswith("  - ")] == [
        '  - The output must have a line that is "## Cause" or "## Remedy".',
        '  - The output must contain "PASS" or "FAIL".',
        '  - The output must have the form that the step describes under "The output must meet".',
        "  - Name the version.",
        "  - Say more. Add at least 95 more characters (now 5, at least 100 are needed).",
        '  - The output must not meet this: The output may contain "TODO"',
    ]


def test_a_pattern_that_was_filled_from_the_context_is_not_shown_either(cli: Cli, put_workflow: Any) -> None:
    put_workflow(
        step("first", validationCriteria=[{"type": "regex", "pattern": r"^{{size}} done \d+$", "message": ""}])
    )
    sitting = cli.sit_down("run", "sample-workflow", "--context", "size=small", columns=160).see("> ").type("No.\n.\n")
    sitting.see('- The output must have the form that the step describes under "The output must meet".\n')

    leave(sitting.see("> "))


def test_why_and_a_list_of_refusals_show_no_pattern(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", validationCriteria=[{"type": "regex", "pattern": r"v\d+", "message": ""}]))
    run_id = json.loads(cli("run", "sample-workflow", "--json", stdin=b"No.").stdout)["runId"]

    seen = cli("why", run_id).stdout

    assert "refused once: The output must have the form that the step describes" in seen
    assert r"v\d+" not in seen


def test_criteria_that_cannot_be_judged_end_the_command_and_keep_the_draft(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", validationCriteria=[{"type": "regex", "pattern": "(", "message": "Ask me."}]))
    sitting = (
        cli.sit_down("run", "sample-workflow", columns=200).see("> ").type("Text.\n.\n").see("Invalid regex pattern")
    )

    code, seen = sitting.see("So is your draft.").leave()

    (run_id,) = re.findall(r"Cancel it with:  workflowlookup cancel (\w+)", seen)
    assert (code, "--resume" in seen) == (1, False)
    assert leave(cli.sit_down("run", "--resume", run_id).see("│ Text.").see("> ")) == run_id


def test_a_run_that_waits_for_a_list_asks_for_it_until_it_is_one(cli: Cli, put_workflow: Any) -> None:
    put_workflow(loop("each", [step("turn")], type="forEach", items="names"))
    sitting = cli.sit_down("run", "sample-workflow").see("names (a list ('array')").type("Ada\n")
    sitting.see("names must be a list").see("names (").type('["Ada"]\n').see("turn@1").see("> ").type("One.\n.\n")

    assert sitting.see("The run is completed").leave()[0] == 0


@pytest.mark.parametrize("typed", ["\x04", "\n"])
def test_a_missing_list_leaves_the_run_unchanged(cli: Cli, put_workflow: Any, typed: str) -> None:
    put_workflow(loop("each", [step("turn")], type="forEach", items="names"))
    sitting = cli.sit_down("run", "sample-workflow").see("names (a list ('array')").type(typed)

    assert sitting.see("The run waits for the variable 'names'").leave()[0] == 0


def test_a_denial_is_recorded_even_if_the_reason_is_aborted(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", requireConfirmation=True))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("Text.\n.\n").see("[l]eave").type("n\n")
    code, seen = sitting.see("Why not? (may be empty) ").interrupt().see("waits for the output of step 'first'").leave()

    again = cli.sit_down("run", "--resume", run_of(seen)).see("A person did not agree to this step").see("> ")

    assert code == 130
    assert '"event":"confirmation-denied"' in cli("export", run_of(seen)).stdout.replace(" ", "")
    leave(again)


def test_after_a_denial_the_output_and_the_question_are_shown_again(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", requireConfirmation=True))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("Text.\n.\n").see("[l]eave").type("n\n")
    sitting.see("Why not?").type("Too short.\n").see("Their note: Too short.").see(":again").see("> ").type(":again\n")
    sitting.see("│ Text.").see("> ").type("And more.\n.\n").see("to an earlier output of this step: Too short.").see(
        "[l]eave"
    )

    sitting.type("y\n").see("The run is completed")

    assert sitting.leave()[0] == 0


@pytest.mark.parametrize("typed", ["\x04", "l\n"])
def test_the_end_of_input_at_a_question_decides_nothing(cli: Cli, put_workflow: Any, typed: str) -> None:
    put_workflow(step("first", requireConfirmation=True))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("Text.\n.\n").see("[l]eave").type(typed)
    code, seen = sitting.see("waits for a person to confirm step 'first'").leave()

    assert code == 0
    assert "confirmation-given" not in cli("export", run_of(seen)).stdout
    assert "confirmation-denied" not in cli("export", run_of(seen)).stdout


def test_an_aborted_form_does_not_confirm(cli: Cli, put_workflow: Any) -> None:
    answers = {"type": "object", "properties": {"region": {"type": "string"}}}
    put_workflow(step("first", requireConfirmation={"when": "before", "question": "Deploy it?", "answers": answers}))
    sitting = cli.sit_down("run", "sample-workflow").see("Deploy it?").see("[l]eave").type("y\n").see("region")

    code, seen = sitting.see(": ").type("\x04").see("waits for a person to confirm step 'first'").leave()

    assert code == 0
    assert "confirmation-given" not in cli("export", run_of(seen)).stdout


def test_a_question_wraps_between_words(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", requireConfirmation={"when": "before"}))
    sitting = cli.sit_down("run", "sample-workflow", columns=40)
    sitting.see("Do you agree? [y]es, [n]o, [l]eave it\nfor later (Enter): ").type("l\n")

    assert sitting.see("Continue with").leave()[0] == 0


def test_ctrl_c_at_a_question_decides_nothing(cli: Cli, put_workflow: Any) -> None:
    put_workflow(step("first", requireConfirmation=True))
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("Text.\n.\n").see("for later").interrupt()
    code, seen = sitting.see("waits for a person to confirm step 'first'").leave()

    assert code == 130
    assert "confirmation-given" not in cli("export", run_of(seen)).stdout
    assert "confirmation-denied" not in cli("export", run_of(seen)).stdout


def test_a_value_that_is_asked_for_fits_its_type(cli: Cli, put_workflow: Any) -> None:
    schema = {"type": "object", "properties": {"ticket": {"type": "string"}, "count": {"type": "integer"}}}
    put_workflow(step("first", produces=["ticket", "count"]), step("second"), contextSchema=schema)
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("Text.\n.\n").see("ticket (").type("4711\n")
    sitting.see("count (").type("many\n").see("count must be").see("count (").type("3\n").see("accepted").see("> ")

    run_id = leave(sitting)

    assert '"changes":{"ticket":"4711","count":3}' in cli("export", run_id).stdout.replace(" ", "")


def test_a_loop_shows_its_iteration_and_drafts_are_of_one_iteration(cli: Cli, put_workflow: Any) -> None:
    put_workflow(loop("each", [step("turn")], type="forEach", items="names"), step("last"))
    sitting = cli.sit_down("run", "sample-workflow", "--context", 'names=["a","b"]').see("turn@1").see("> ")
    sitting.type("One.\n.\n").see("accepted").see("turn@2").see("> ").type("Half.\n").see("> ").interrupt()
    run_id = run_of(sitting.see("Continue with").leave()[1])

    again = cli.sit_down("run", "--resume", run_id).see("turn@2").see("│ Half.").see("> ")

    assert results(cli, leave(again.type(".\n").see("accepted").see("> "))) == {"turn@1": "One.", "turn@2": "Half."}
    assert os.listdir(cli.home / ".local/state/workflowlookup/drafts") == []
