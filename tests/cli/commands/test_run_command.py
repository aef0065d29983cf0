"""`workflowlookup run`: a person at a terminal, a pipe, an editor; and `run show`."""

import json
import re
import stat
from pathlib import Path

import pytest

from support.command_line import Cli, plain
from support.json_values import JsonObject
from support.make import document, loop, step, write

RULES = [{"type": "contains", "value": "done", "message": "Say that it is done."}]
STEPS = (
    step("plan-it", title="A plan for {{who}}", prompt="Plan **it** for {{who}}.", validationCriteria=RULES),
    step("large-only", runCondition={"var": "size", "equals": "large"}),
    step("sign-off", requireConfirmation=True),
    step("last-step"),
)


SAMPLE = document(*STEPS)


def start(cli: Cli, *words: str, stdin: str = "", workflow: str = "sample-workflow") -> JsonObject:
    result: JsonObject = json.loads(cli("run", workflow, "--json", *words, stdin=stdin.encode()).stdout)
    return result


# ── a person at a terminal ──────────────────────────────────────────────────────────────────────────────────────


def test_a_person_is_led_from_the_first_step_to_the_end(cli: Cli) -> None:
    sitting = cli.sit_down("run", "sample-workflow", "--context", "who=me")
    sitting.see("0 of 4 done").see("A plan for me").see("Plan it for me.").see("Say that it is done.").see(
        "single dot"
    ).see("> ")
    sitting.type("A plan.\n.\n").see("refused").see("attempt 1").see("Say that it is done.").see("> ")
    sitting.type("A plan,\nin two lines,\nis done.\n.\n").see("accepted").see("1 of 3 done").see("sign-off")
    sitting.see("> ").type("Signed.\n.\n").see("accepted").see("Do you agree").see("Signed.").see("[l]eave")
    sitting.type("y\n").see("2 of 3 done").see("last-step").see("> ").type("The end.\n.\n")

    code, seen = sitting.see("The run is completed").leave()

    assert code == 0
    run_id = re.findall(r"run show (\w+)", seen)[-1]
    assert cli.run_status(run_id)["results"] == {
        "plan-it": "A plan,\nin two lines,\nis done.",
        "sign-off": "Signed.",
        "last-step": "The end.",
    }


def test_ctrl_c_keeps_the_run_and_shows_how_to_resume(cli: Cli) -> None:
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("done\n.\n").see("sign-off")
    sitting.see("> ").type("half an out").see("half an out").interrupt().see("is saved").see("run --resume ")
    code, seen = sitting.leave()

    run_id = re.findall(r"run --resume (\w+)", seen)[-1]
    resumed = cli.sit_down("run", "--resume", run_id[:5]).see("1 of 3 done").see("sign-off").see("> ")

    assert code == 130
    assert resumed.type(":leave\n").see("It is saved").leave()[0] == 0


def test_ctrl_d_sends_what_was_typed_and_leaves_when_nothing_was(cli: Cli) -> None:
    sitting = cli.sit_down("run", "sample-workflow").see("> ")
    sitting.type("done\n").see("> ").type("\x04").see("accepted").see("> ").type("\x04")

    code, _ = sitting.see("It is saved").leave()

    assert code == 0


def test_a_line_may_be_longer_than_the_terminal_buffer(cli: Cli) -> None:
    sitting = cli.sit_down("run", "sample-workflow").see("> ")
    for _ in range(60):
        sitting.type("word " * 100)
    sitting.type("done\n.\n").see("accepted").see("> ").type(":leave\n")

    _, seen = sitting.see("It is saved").leave()

    output = cli.run_status(re.findall(r"run --resume (\w+)", seen)[-1])
    assert "resultsCut" in output


def test_variables_are_set_with_an_output_and_those_that_a_step_produces_are_asked_for(cli: Cli, project: Path) -> None:
    schema = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}}
    steps = (step("triage", produces=["size"]), step("large-only", runCondition={"var": "size", "equals": "large"}))
    write(project, document(*steps, contextSchema=schema, identifier="asks-for-it"))

    sitting = cli.sit_down("run", "asks-for-it").see("Variables to set with the output").see("> ")
    sitting.type(":set colour=3\n").see("colour will be set").type("A triage.\n.\n").see("size (").type("huge\n")
    sitting.see("size must be one of 'small', 'large'").see("size (")
    sitting.type("large\n").see("accepted").see("large-only").see("> ").type(":leave\n")
    _, seen = sitting.see("It is saved").leave()

    assert cli.run_status(re.findall(r"run --resume (\w+)", seen)[-1])["step"]["id"] == "large-only"


def test_a_loop_can_be_ended_with_a_command(cli: Cli, project: Path) -> None:
    again = loop("again", [step("turn")], type="while", conditionSource={"kind": "elsewhere"})
    write(project, document(again, identifier="goes-round"))

    sitting = cli.sit_down("run", "goes-round").see("turn@1").see(":end").see("> ").type("one\n.\n")
    sitting.see("turn@2").see("> ").type(":help\n").see("end the loop").type(":end\n")

    assert sitting.see("The run is completed").leave()[0] == 0


def test_after_a_denial_the_step_is_offered_again_with_the_reason(cli: Cli) -> None:
    sitting = cli.sit_down("run", "sample-workflow").see("> ").type("done\n.\n").see("> ")
    sitting.type("Signed.\n.\n").see("[l]eave").type("perhaps\n").see("[l]eave").type("n\n").see("Why not")
    sitting.type("Too soon.\n").see("sign-off").see("did not agree").see("Their note: Too soon.").see("> ")

    assert sitting.type("\x04").leave()[0] == 0


def test_a_run_that_ended_meanwhile_is_reported(cli: Cli) -> None:
    sitting = cli.sit_down("run", "sample-workflow").see("> ")
    run_id = json.loads(cli("runs", "--json").stdout)["runs"][0]["runId"]
    cli("cancel", run_id, "--reason", "No need.")

    code, _ = sitting.type("done\n.\n").see("Run state error").see("The run is cancelled: No need.").leave()

    assert code == 1


def test_a_database_serves_as_well_as_a_file(cli: Cli, database: str) -> None:
    run_id = str(start(cli, "--journal", database, stdin="done")["runId"])

    sitting = cli.sit_down("run", "--resume", run_id[:6], "--journal", database).see("1 of 3 done").see("> ")
    sitting.type("Signed.\n.\n").see("[l]eave").type("y\n").see("last-step").see("> ").type(":leave\n")

    assert sitting.see("It is saved").leave()[0] == 0
    assert f"There is no run '{run_id}x'" in cli("why", f"{run_id}x", "--journal", database).stderr


def test_a_narrow_terminal_that_wants_no_colour_gets_none(cli: Cli) -> None:
    code, seen = cli.on_terminal("run", "sample-workflow", typed=":leave\n", columns=30, NO_COLOR="1")

    assert code == 0
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m", seen) is None
    assert "Plan it for {{who}}." in plain(seen)


def test_control_characters_of_outputs_do_not_reach_the_terminal(cli: Cli) -> None:
    run_id = str(start(cli, stdin="done \x1b[2J\x9b0m\x07\n.\nSigned \x1b]0;title\x07\n")["runId"])

    seen = cli.on_terminal("run", "show", run_id)[1] + cli.on_terminal("run", "--resume", run_id, typed="l\n")[1]

    assert "\x1b[2J" not in seen
    assert not {"\x9b", "\x07"} & set(seen)
    assert "\x1b]0;" not in seen


# ── pipes and files ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_piped_output_is_submitted_and_the_next_step_is_shown(cli: Cli) -> None:
    done = cli("run", "sample-workflow", stdin=b"It is\n\n  done.\n")

    assert (done.returncode, done.stderr) == (0, "")
    assert "accepted" in done.stdout
    assert "# Title sign-off" in done.stdout
    run_id = re.findall(r"run --resume (\w+)", done.stdout)[-1]
    assert cli.run_status(run_id)["results"] == {"plan-it": "It is\n\n  done."}


def test_a_dot_separates_piped_outputs_and_a_pipe_confirms_nothing(cli: Cli) -> None:
    done = cli("run", "sample-workflow", stdin=b"done\n.\nSigned.\n.\nyes\n")

    assert done.returncode == 0
    assert "The run waits for a person to confirm step 'sign-off'." in done.stdout
    assert "workflowlookup confirm " in done.stdout


def test_a_piped_output_that_is_refused_ends_the_command_with_1(cli: Cli) -> None:
    done = cli("run", "sample-workflow", stdin=b"no\n.\ndone\n")

    assert done.returncode == 1
    assert "Say that it is done." in done.stdout
    assert "accepted" not in done.stdout


def test_without_input_the_first_step_is_shown_and_the_run_stays(cli: Cli) -> None:
    done = cli("run", "sample-workflow")

    assert (done.returncode, done.stderr) == (0, "")
    assert "The run waits for the output of step 'plan-it'. It is saved." in done.stdout


def test_json_is_what_the_tools_answer(cli: Cli) -> None:
    first = start(cli, "--context", "size=large")
    refused = cli("run", "--resume", str(first["runId"]), "--json", stdin=b"no")

    assert (first["state"], first["step"]["id"], first["progress"]) == ("waiting", "plan-it", {"done": 0, "total": 4})
    assert (refused.returncode, json.loads(refused.stdout)["verdict"]["valid"]) == (1, False)


def test_a_file_is_submitted_unchanged_including_lines_with_a_dot(cli: Cli) -> None:
    (cli.directory / "out.md").write_text("done\n.\nmore\n")
    run_id = start(cli)["runId"]

    answer = json.loads(cli("run", "--resume", str(run_id), "--output", "out.md", "--json").stdout)

    assert answer["step"]["id"] == "sign-off"
    assert cli.run_status(run_id)["results"] == {"plan-it": "done\n.\nmore"}


def test_the_context_of_a_resumed_run_goes_with_its_next_output(cli: Cli) -> None:
    run_id = str(start(cli)["runId"])

    done = cli("run", "--resume", run_id, "--json", "--context", "size=large", stdin=b"done")

    assert json.loads(done.stdout)["step"]["id"] == "large-only"


def test_input_is_checked_against_the_schema_of_the_workflow(cli: Cli, project: Path) -> None:
    schema = {"type": "object", "properties": {"ticket": {"type": "string"}}, "required": ["ticket"]}
    write(project, document(step("use-it", prompt="See {{ticket}}."), inputSchema=schema, identifier="with-input"))

    without = cli("run", "with-input")
    given = cli("run", "with-input", "--input", "ticket=BUG-7")

    assert (without.returncode, without.stdout) == (1, "")
    assert "ticket" in without.stderr
    assert "Set it with --input NAME=VALUE." in without.stderr
    assert "See BUG-7." in given.stdout


def test_a_run_id_or_a_provider_workflow_instead_of_a_workflow_gets_a_hint(cli: Cli, tmp_path: Path) -> None:
    run_id = start(cli)["runId"]
    config = cli.own / "mine.toml"
    config.write_text('[providers.shop]\nkind = "http"\nbase_url = "http://127.0.0.1:9"\n')

    old = cli("run", str(run_id))
    far = cli("run", "shop.restock", "--config", str(config))
    unknown = cli("run", "shop.restock")

    assert f"It is a run: `workflowlookup run --resume {run_id}`" in old.stderr
    assert "provider 'shop' are for MCP clients; `workflowlookup tools` lists them." in far.stderr
    assert "Run `workflowlookup list` to see every id." in unknown.stderr
    assert [done.returncode for done in (old, far, unknown)] == [1, 1, 1]


# ── the editor ──────────────────────────────────────────────────────────────────────────────────────────────────


def editor(cli: Cli, script: str) -> str:
    path = cli.directory / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_editor_is_opened_for_each_step_and_what_is_below_the_line_is_left_out(cli: Cli) -> None:
    command = editor(cli, 'cat "$1" >> seen; { echo "done in vi"; cat "$1"; } > new; mv new "$1"')

    done = cli("run", "sample-workflow", "--editor", "--context", "who=me", EDITOR=command)

    assert done.returncode == 0
    assert "# A plan for me\n\nPlan **it** for me." in (cli.directory / "seen").read_text()
    run_id = re.findall(r"run --resume (\w+)", done.stdout)[-1]
    assert cli.run_status(run_id)["results"] == {"plan-it": "done in vi", "sign-off": "done in vi"}


def test_an_empty_file_leaves_the_run(cli: Cli) -> None:
    done = cli("run", "sample-workflow", "--editor", EDITOR=editor(cli, "true"))

    assert (done.returncode, "It is saved." in done.stdout) == (0, True)


def test_a_refused_output_from_the_editor_can_be_corrected(cli: Cli) -> None:
    command = editor(
        cli, 'cat "$1" >> seen; if [ -e second ]; then echo done > "$1"; else echo no > "$1"; fi; touch second'
    )
    sitting = cli.sit_down("run", "sample-workflow", "--editor", VISUAL=command).see("refused").see("Edit it again?")

    sitting.type("y\n").see("accepted").see("[l]eave").type("l\n")

    assert sitting.leave()[0] == 0
    assert "The last output was refused:\n- Say that it is done." in (cli.directory / "seen").read_text()


@pytest.mark.parametrize(
    ("command", "problem"),
    [("", "export EDITOR="), ("no-such-editor", "cannot be started"), ("false", "ended with code 1")],
)
def test_a_failing_editor_is_reported_and_the_run_stays(cli: Cli, command: str, problem: str) -> None:
    done = cli("run", "sample-workflow", "--editor", EDITOR=command, VISUAL="")

    assert done.returncode == 1
    assert problem in done.stderr
    assert "It is saved." in done.stdout


# ── run show, and what cannot be done ───────────────────────────────────────────────────────────────────────────


def test_show_has_the_report_and_a_unique_beginning_of_the_id_is_enough(cli: Cli) -> None:
    run_id = str(start(cli, stdin="done")["runId"])

    done = cli("run", "show", run_id[:4])

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"# Sample workflow\n\nRun `{run_id}` of `sample-workflow`")
    assert "size equals" in done.stdout


def test_a_failed_run_ends_with_1_and_its_reason(cli: Cli, project: Path) -> None:
    write(project, document(step("once", validationCriteria=RULES, maxAttempts=1), identifier="one-try"))

    done = cli("run", "one-try", stdin=b"no")

    assert done.returncode == 1
    assert "The run is failed: The output of step 'once' was refused once" in done.stdout
    assert "Start a new one with `workflowlookup run`." in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        pytest.param((), 2, "run ID", id="nothing to run"),
        pytest.param(("show",), 2, "run show RUN", id="nothing to show"),
        pytest.param(("sample-workflow", "extra"), 2, "one word too many", id="a word too many"),
        pytest.param(("sample-workflow", "--resume", "x"), 2, "--resume RUN", id="both"),
        pytest.param(("--resume", "x", "--input", "a=1"), 2, "--input is for a new run", id="input of an old run"),
        pytest.param(("sample-workflow", "--editor", "--json"), 2, "--editor", id="an editor for a program"),
        pytest.param(("no-such-workflow",), 1, "workflowlookup list", id="an unknown workflow"),
        pytest.param(("--resume", "abc"), 1, "There are no runs yet", id="no journal yet"),
        pytest.param(("show", "abc"), 1, "workflowlookup run ID", id="no journal to show from"),
        pytest.param(("sample-workflow", "--output", "no-such-file"), 1, "cannot be read", id="no such file"),
    ],
)
def test_impossible_requests_are_refused_with_a_reason(
    cli: Cli, words: tuple[str, ...], code: int, problem: str
) -> None:
    done = cli("run", *words)

    assert done.returncode == code
    assert problem in done.stderr


def test_reading_creates_no_journal(cli: Cli) -> None:
    cli("run", "show", "abc")
    cli("runs")

    assert list(cli.home.rglob("runs.sqlite")) == []


def test_a_missing_run_is_reported_with_similar_ids(cli: Cli) -> None:
    run_id = str(start(cli)["runId"])
    typo = run_id[:5] + ("0" if run_id[5] != "0" else "1") + run_id[6:]

    done = cli("run", "show", typo)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"Did you mean {run_id}?" in done.stderr


def test_an_ambiguous_id_prefix_is_refused_with_the_matching_ids(cli: Cli) -> None:
    runs = {str(start(cli)["runId"]) for _ in range(17)}  # of sixteen possible first characters
    first = next(one[0] for one in runs if sum(run.startswith(one[0]) for run in runs) > 1)

    done = cli("run", "show", first)

    assert done.returncode == 1
    assert f"runs have an id that begins with '{first}': " in done.stderr


def test_text_that_is_not_utf_8_is_refused(cli: Cli) -> None:
    done = cli("run", "sample-workflow", stdin=b"\xff\xfe done")

    assert (done.returncode, "not UTF-8" in done.stderr) == (1, True)


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_waits_for_a_call_says_what_the_server_calls(cli: Cli) -> None:
    call = {"id": "call-it", "title": "Call it", "call": {"server": "nowhere", "tool": "make", "saveAs": "made"}}
    (cli.own / "workflowlookup.toml").write_text('directories = ["workflows"]\n')
    write(cli.own / "workflows", document(call, step("last-step"), identifier="with-a-call"))

    text = cli("run", "with-a-call").stdout

    assert "The server calls tool 'make' of MCP server 'nowhere'." in text


# ── a loop without its list ─────────────────────────────────────────────────────────────────────────────────────

EACH = document(loop("each", [step("look-at")], type="forEach", items="files"), step("last"), identifier="each-file")


def test_a_person_is_asked_for_the_list_of_a_loop(cli: Cli, project: Path) -> None:
    write(project, EACH)
    sitting = cli.sit_down("run", "each-file").see("files is not set: expected a list").see("files (a list")
    sitting.type("a.py\n").see("files must be a list").see("files (a list")
    sitting.type('["a.py"]\n').see("look-at@1").see("> ").type(":leave\n")

    code, seen = sitting.see("It is saved").leave()

    assert code == 0
    assert "The run waits for the output of step 'look-at@1'." in plain(seen)


def test_a_missing_list_is_asked_for_and_can_be_given_with_resume(cli: Cli, project: Path) -> None:
    write(project, EACH)
    run = start(cli, workflow="each-file")

    assert run["waitingFor"] == "context"
    done = cli("run", "--resume", str(run["runId"]))
    assert "The run waits for the variable 'files', which loop 'each' needs." in done.stdout
    resumed = cli("run", "--resume", str(run["runId"]), "--context", 'files=["a"]', "--json")
    assert json.loads(resumed.stdout)["step"]["id"] == "look-at@1"
    for command in (["why", str(run["runId"])], ["run", "show", str(run["runId"])], ["stats"], ["runs"]):
        assert cli(*command).returncode == 0


def test_a_run_whose_output_cannot_be_judged_is_to_be_cancelled_and_not_resumed(cli: Cli, project: Path) -> None:
    criteria = [{"type": "regexp", "pattern": "a", "message": "m"}]
    write(project, document(step(validationCriteria=criteria), identifier="broken"))

    done = cli("run", "broken", stdin=b"an output")

    assert done.returncode == 1
    assert "correct the document, cancel this run, and start a new one" in done.stderr
    assert re.search(r"\nCancel it with:  workflowlookup cancel \w+\n$", done.stdout)
