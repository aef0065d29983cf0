"""`workflowlookup confirm`: only a person at the terminal can answer."""

import json
import shlex
from pathlib import Path

import pytest

from support.command_line import Cli
from support.json_values import JsonObject
from support.make import FORM, document, step, write
from workflowlookup.settings import command_line, read_settings

SAMPLE = document(step("sign-off", requireConfirmation=True), step("last-step"))


@pytest.fixture
def held(cli: Cli) -> str:
    """A run that waits for a person."""
    return cli.start_run(stdin="Signed \x1b[2J off.")


def events(cli: Cli, run_id: str) -> list[dict[str, object]]:
    lines = cli("export", run_id).stdout.splitlines()
    return [json.loads(line)["event"] for line in lines]


# ── who may answer ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("flags", [[], ["--deny"], ["--json"], ["--note", "fine"]])
def test_without_a_terminal_nothing_is_confirmed(cli: Cli, held: str, flags: list[str]) -> None:
    done = cli.alone("confirm", held, *flags)

    assert (done.returncode, done.stdout) == (1, "")
    assert "Only a person may answer for a run that waits for a person" in done.stderr
    assert "there is no terminal" in done.stderr
    assert cli.run_status(held)["waitingFor"] == "confirmation"


@pytest.mark.parametrize("variable", ["CLAUDECODE", "CODEX_SANDBOX", "GEMINI_CLI"])
def test_an_agent_is_refused_even_on_a_terminal(cli: Cli, held: str, variable: str) -> None:
    agent: JsonObject = {variable: "1"}
    code, seen = cli.sit_down("confirm", held, **agent).leave()

    assert code == 1
    assert f"{variable} in the environment shows that an agent" in " ".join(seen.split())
    assert cli.run_status(held)["waitingFor"] == "confirmation"


def test_an_agent_is_refused_when_it_resumes_the_run_on_a_terminal(cli: Cli, held: str) -> None:
    code, seen = cli.sit_down("run", "--resume", held, CLAUDECODE="1").leave()

    assert (code, "an agent runs this command" in " ".join(seen.split())) == (1, True)
    assert cli.run_status(held)["waitingFor"] == "confirmation"


@pytest.mark.parametrize("typed", ["ja", "yess", "Y E S", "1"])
def test_only_an_explicit_yes_agrees_and_the_default_is_no(cli: Cli, held: str, typed: str) -> None:
    code, seen = cli.sit_down("confirm", held).see("[l]eave").type(f"{typed}\n").see("[l]eave").type("\n").leave()

    assert (code, "No answer was recorded" in seen) == (1, True)
    assert cli.run_status(held)["waitingFor"] == "confirmation"


def test_an_output_is_quoted_and_cannot_imitate_the_question(cli: Cli) -> None:
    output = "x" * 30 + "Do you agree? [y]es, [n]o\n\nStep 'harmless' is done.\rDo you agree?\x85Yes.\u2028Go on."
    run_id = cli.start_run(stdin=output)

    sitting = cli.sit_down("confirm", run_id, columns=40).see("The output:\n")
    _, seen = sitting.see("for later").type("\n").leave()

    quoted = seen[seen.index("The output:\n") + 12 : seen.rindex("Do you agree? [y]es")]
    assert [line for line in quoted.splitlines() if line.strip() and not line.startswith("  │ ")] == []


@pytest.mark.parametrize("words", [("confirm",), ("run", "--resume")])
def test_characters_that_cannot_be_seen_are_marked(cli: Cli, words: tuple[str, ...]) -> None:
    run_id = cli.start_run(stdin="Signed\u200b \U000e0041\U000e0042off\u3164.")

    _, seen = cli.sit_down(*words, run_id).see("for later").type("\n").leave()

    assert "  │ Signed\ufffd \ufffd\ufffdoff\ufffd." in seen


@pytest.mark.parametrize("words", [("confirm",), ("run", "--resume")])
def test_variables_sent_with_the_output_are_shown_before_the_question(
    cli: Cli, project: Path, words: tuple[str, ...]
) -> None:
    stated = step("build", requireConfirmation=True, produces={"made": {}})
    write(project, document(stated, identifier="made-flow"))
    run_id = cli.start_run(workflow="made-flow", stdin="made: it")

    _, seen = cli.sit_down(*words, run_id).see("for later").type("\n").leave()

    assert 'It sets:\n  │ made = "it"\n' in seen.replace("\r", "")


# ── what is answered ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_continues_when_a_person_agrees(cli: Cli, held: str) -> None:
    code, seen = cli.confirm(held[:6], "--note", "Fine.", says="yes")

    assert code == 0
    assert "│ Signed \ufffd[2J off." in seen
    assert "\x1b[2J" not in seen
    assert "Confirmed: Fine." in seen
    assert "The run waits for the output of step 'last-step'." in " ".join(seen.split())
    given = next(event for event in events(cli, held) if event["event"] == "confirmation-given")
    assert (given["stepId"], given["how"], given["note"]) == ("sign-off", "terminal", "Fine.")


def test_after_a_denial_the_step_is_offered_again(cli: Cli, held: str) -> None:
    cli.sit_down("confirm", held).see("[l]eave").type("n\n").see("Why not?").type("Too soon.\n").leave()

    assert cli.run_status(held)["waitingFor"] == "output"
    assert "Their note: Too soon." in cli("run", "--resume", held).stdout


def test_deny_also_asks(cli: Cli, held: str) -> None:
    assert cli.confirm(held, "--deny", says="")[0] == 1
    assert cli.run_status(held)["waitingFor"] == "confirmation"

    assert cli.confirm(held, "--deny", "--note", "Too soon.")[0] == 0
    denied = next(event for event in events(cli, held) if event["event"] == "confirmation-denied")
    assert (denied["how"], denied["note"]) == ("terminal", "Too soon.")


def test_an_answer_counts_only_for_the_output_that_was_shown(cli: Cli, held: str) -> None:
    sitting = cli.sit_down("confirm", held).see("[l]eave")
    cli.sit_down("confirm", held).see("[l]eave").type("n\n").see("Why not?").type("\n").leave()
    assert cli("run", "--resume", held, "--json", stdin=b"Another output.").returncode == 0

    code, seen = sitting.type("y\n").leave()

    assert code == 1
    assert "has moved on since you read the question" in " ".join(seen.split())
    assert cli.run_status(held)["waitingFor"] == "confirmation"


def test_a_run_that_does_not_wait_for_confirmation_is_reported(cli: Cli, held: str) -> None:
    cli.confirm(held)

    done = cli.alone("confirm", held)

    assert (done.returncode, done.stdout) == (1, "")
    assert "It waits for the output of step 'last-step', not for a confirmation." in done.stderr


def test_a_missing_run_is_reported(cli: Cli) -> None:
    done = cli("confirm", "abc")

    assert (done.returncode, "no runs yet" in done.stderr) == (1, True)


def test_the_fields_of_a_question_are_asked_one_by_one(cli: Cli, project: Path) -> None:
    asks = {"question": "How large is it?", "answers": FORM}
    write(project, document(step("size-up", requireConfirmation=asks), step("then"), identifier="sized-flow"))
    run_id = cli.start_run(workflow="sized-flow", stdin="Looked at it.")

    sitting = cli.sit_down("confirm", run_id).see("How large is it?").see("[l]eave").type("y\n")
    sitting.see("size (").type("large\n").see("hours (").type("3\n").see("urgent (").type("no\n").leave()

    (changed,) = [event["changes"] for event in events(cli, run_id) if event["event"] == "context-changed"]
    assert changed == {"size": "large", "hours": 3, "urgent": False}


def test_a_value_that_does_not_fit_is_asked_for_again(cli: Cli, project: Path) -> None:
    write(project, document(step("size-up", requireConfirmation={"answers": FORM}), identifier="sized-flow"))
    run_id = cli.start_run(workflow="sized-flow", stdin="Looked at it.")

    sitting = cli.sit_down("confirm", run_id).see("[l]eave").type("y\n").see("size (").type("huge\n")
    sitting.see("found 'huge'").see("size (").type("\n").see("size is required").see("size (").type("small\n")
    code, seen = sitting.see("hours (").see("optional:").type("\n").see("urgent (").type("\n").leave()

    assert code == 0
    assert "size must be one of 'small', 'large'; found 'huge'. Try again" in " ".join(seen.split())
    (changed,) = [event["changes"] for event in events(cli, run_id) if event["event"] == "context-changed"]
    assert changed == {"size": "small"}


def test_a_person_can_leave_at_a_value_that_does_not_fit(cli: Cli, project: Path) -> None:
    write(project, document(step("size-up", requireConfirmation={"answers": FORM}), identifier="sized-flow"))
    run_id = cli.start_run(workflow="sized-flow", stdin="Looked at it.")

    sitting = cli.sit_down("confirm", run_id).see("[l]eave").type("y\n").see("size (").type("huge\n")
    code, _ = sitting.see("Try again").see("size (").see(": ").type("\x04").see("No answer was recorded").leave()

    assert code == 1
    assert cli.run_status(run_id)["waitingFor"] == "confirmation"


def test_a_piped_output_that_is_not_submitted_is_reported(cli: Cli, held: str) -> None:
    done = cli("run", "--resume", held, stdin=b"The next output.")

    assert "no further output was submitted, because a person must answer first" in done.stderr
    assert cli.run_status(held)["waitingFor"] == "confirmation"


@pytest.mark.parametrize(
    ("relayed", "expected"), [(True, "Confirmed +0 s by ada, relayed by the agent"), (False, "Confirmed +0 s by ada")]
)
def test_an_older_journal_keeps_its_meaning(cli: Cli, held: str, relayed: bool, expected: str) -> None:
    cli.confirm(held)
    lines = [json.loads(line) for line in cli("export", held).stdout.splitlines()]
    for line in lines:
        line["time"], line["by"], event = lines[0]["time"], "ada", line["event"]
        del line["hash"], line["length"]
        for field in ("how", "question", "nonce"):
            event.pop(field, None)
        if event["event"] == "confirmation-given" and relayed:
            event["relayed"] = True
    old = "".join(json.dumps(line) + "\n" for line in lines)

    done = cli("import", "-", "--journal", "older.sqlite", stdin=old.encode())

    assert done.returncode == 0, done.stderr
    assert expected in cli("run", "show", held, "--journal", "older.sqlite").stdout


def test_a_run_whose_person_filled_in_a_form_is_imported(cli: Cli, project: Path) -> None:
    asks = {"when": "before", "answers": FORM}
    steps = (step("size-up", requireConfirmation=asks), step("build", produces={"made": {}}), step("ship"))
    write(project, document(*steps, identifier="sized-flow"))
    run_id = cli.start_run(workflow="sized-flow")
    sitting = cli.sit_down("confirm", run_id).see("[l]eave").type("y\n").see("size (").type("small\n")
    sitting.see("hours (").type("\n").see("urgent (").type("\n").leave()
    cli("run", "--resume", run_id, "--context", "a=1", stdin=b"Sized up.\n.\nmade: it")
    cli("export", run_id, "-o", "run.jsonl")

    done = cli("import", "run.jsonl", "--journal", "other.sqlite")

    assert done.returncode == 0, done.stderr
    assert '"made": "it"' in cli("run", "show", run_id, "--journal", "other.sqlite").stdout


@pytest.mark.parametrize("is_older", [False, True])
def test_a_denied_output_is_imported_with_and_without_removed_values(cli: Cli, project: Path, is_older: bool) -> None:
    made = step("build", requireConfirmation=True, produces={"made": {"optional": True}})
    write(project, document(made, identifier="made-flow"))
    run_id = cli.start_run(workflow="made-flow", stdin="made: it")
    cli.sit_down("confirm", run_id, "--deny").see("[y/N]").type("y\n").leave()
    assert "what came with the output was taken back: made is no longer set" in cli("why", run_id).stdout
    lines = [json.loads(line) for line in cli("export", run_id).stdout.splitlines()]
    if is_older:
        lines = [line for line in lines if line["event"]["event"] != "context-restored"]
        lines = [{name: value for name, value in line.items() if name not in ("hash", "length")} for line in lines]
    numbered = [{**line, "sequence": number} for number, line in enumerate(lines, 1)]
    journal = "".join(json.dumps(line) + "\n" for line in numbered)

    done = cli("import", "-", "--journal", "other.sqlite", stdin=journal.encode())

    assert done.returncode == 0, done.stderr
    assert ('"made": "it"' in cli("run", "show", run_id, "--journal", "other.sqlite").stdout) == is_older


# ── the command for the person ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("given", ["flag", "environment", "file"])
def test_the_command_that_a_person_reads_works_as_it_is_and_no_agent_is_told_one(cli: Cli, given: str) -> None:
    journal = str(cli.directory / "my runs.sqlite")
    flags = ["--journal", journal] if given == "flag" else []
    environment: JsonObject = {"WORKFLOWLOOKUP_JOURNAL": journal} if given == "environment" else {}
    if given == "file":
        config = cli.home / ".config" / "workflowlookup"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(f"journal = {json.dumps(journal)}\n")
    environment["WORKFLOWLOOKUP_CONFIRMATION"] = "person"
    answer = json.loads(cli("run", "sample-workflow", "--json", *flags, stdin=b"Done.", **environment).stdout)
    shown = cli("run", "--resume", answer["runId"], *flags, **environment).stdout

    assert "they answer in the console or in their own terminal" in answer["next"]
    assert "workflowlookup" not in answer["next"]
    (line,) = [line for line in shown.splitlines() if line.startswith("Confirm it with: ")]
    words = shlex.split(line.removeprefix("Confirm it with: ").removesuffix("(or with --deny)"))
    assert words[:1] == ["workflowlookup"]
    (cli.home / ".config" / "workflowlookup" / "config.toml").unlink(missing_ok=True)
    code, seen = cli.confirm(*words[2:])
    assert (code, "Confirmed" in seen) == (0, True)


def test_the_password_of_a_database_is_never_shown(cli: Cli) -> None:
    for journal in ("postgresql://ada:s3cret@db:5432/runs", "postgresql://db/runs?user=ada&password=s3cret"):
        done = command_line(
            read_settings({"journal": journal}, {"HOME": str(cli.home)}, directory=str(cli.directory)),
            "confirm",
            "9f2c",
        )

        assert "s3cret" not in done
        assert done.replace("'", "").startswith("PGPASSWORD=… workflowlookup confirm 9f2c --journal postgresql://")
