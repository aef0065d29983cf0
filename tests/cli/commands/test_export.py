"""`workflowlookup export` and `import`."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write

RULES = [{"type": "contains", "value": "done", "message": "Say that it is done."}]


EACH = loop("each", [step("work")], type="forEach", items="files")
STEPS = (step("triage", validationCriteria=RULES), EACH, step("sign-off", requireConfirmation=True))
SAMPLE = document(*STEPS, name="Größe")


@pytest.fixture
def held(cli: Cli) -> str:
    run_id = cli.start_run("--context", "files=[1, 2]", stdin=b"no")
    cli("run", "--resume", run_id, stdin="done \x9b0m\n.\none\n.\ntwo\n.\nSigned.".encode())
    return run_id


def lines(text: str) -> list[JsonObject]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_journal_is_exported_as_one_line_per_event(cli: Cli, held: str) -> None:
    done = cli("export", held[:6])

    events = lines(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert {event["runId"] for event in events} == {held}
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert [event["event"]["event"] for event in events][:4] == [
        "started",
        "step-offered",
        "output-refused",
        "step-offered",
    ]
    assert events[0]["event"]["document"]["name"] == "Größe"


def test_an_exported_run_is_imported_elsewhere_and_continues(cli: Cli, held: str) -> None:
    cli("export", held, "-o", "run.jsonl")

    done = cli("import", "run.jsonl", "--journal", "other.sqlite")
    again = cli("import", "run.jsonl", "--journal", "other.sqlite", "--json")

    assert (done.returncode, done.stdout) == (0, f"Imported 1 run: {held}\n")
    assert json.loads(again.stdout) == {"imported": [], "unchanged": [held], "refused": []}
    here, there = lines(cli("export", held).stdout), lines(cli("export", held, "--journal", "other.sqlite").stdout)
    here[0]["event"] |= {"origin": "imported", "importedFrom": "run.jsonl", "importedHead": here[-1]["hash"]}
    assert here[0]["event"].pop("root") == str(cli.directory.resolve()), "it is not known whether it is there as well"
    del here[0]["event"]["machine"]
    assert [line.pop("hash") for line in there] != [line.pop("hash") for line in here], "a chain of its own"
    assert there == here
    assert "The run is completed" in cli.confirm(held, "--journal", "other.sqlite")[1]


def test_an_import_from_a_pipe_of_several_runs(cli: Cli, held: str) -> None:
    other = cli.start_run()
    exported = cli("export", held, other).stdout.encode()

    done = cli("import", "-", "--journal", "other.sqlite", stdin=exported)

    assert done.stdout == f"Imported 2 runs: {held}, {other}\n"


def test_importing_other_events_for_an_existing_run_is_refused(cli: Cli, held: str) -> None:
    cli("export", held, "-o", "run.jsonl")
    cli("cancel", held)
    before = cli("export", held).stdout

    done = cli("import", "run.jsonl")

    assert (done.returncode, done.stdout) == (1, "")
    assert f"There is a run '{held}' already, with other events." in done.stderr
    assert cli("export", held).stdout == before


def test_the_report_is_for_people(cli: Cli, held: str) -> None:
    done = cli("export", held, "--markdown", "--output", "report.md")

    assert (done.returncode, done.stdout) == (0, "Wrote 1 run to report.md\n")
    file = cli.directory / "report.md"
    assert file.read_text("utf-8").startswith("# Größe\n\nRun `")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_control_characters_do_not_reach_the_terminal(cli: Cli, held: str) -> None:
    for words in (("export", held), ("export", held, "--markdown")):
        code, seen = cli.on_terminal(*words)

        assert (code, "\x9b" in seen) == (0, False)


def without_hash(line: JsonObject) -> JsonObject:
    """A line as a version without hashes wrote it."""
    del line["hash"], line["length"]
    return line


def altered(text: str, **changes: Json) -> bytes:
    """The journal with the last event changed, by somebody who knows that hashes are optional."""
    *others, last = map(without_hash, lines(text))
    return "".join(json.dumps(line) + "\n" for line in (*others, {**last, **changes})).encode()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"sequence": 99}, "cannot happen in a run", id="a gap"),
        pytest.param({"time": -1}, "an impossible time", id="a time before time"),
        pytest.param({"time": 10**18}, "an impossible time", id="a time after time"),
        pytest.param({"event": {"event": "danced"}}, "line ", id="no event of ours"),
        pytest.param(
            {"event": {"event": "step-offered", "stepId": "no-such"}}, "cannot happen in a run", id="no such step"
        ),
        pytest.param(
            {"event": {"event": "confirmation-asked", "stepId": "triage"}},
            "cannot happen in a run",
            id="not its turn",
        ),
        pytest.param(
            {"event": {"event": "loop-left", "loopId": "each", "why": ""}},
            "cannot happen in a run",
            id="unfinished",
        ),
        pytest.param({"event": {"event": "completed"}, "runId": "../x"}, "", id="an id that is none"),
    ],
)
def test_a_journal_that_no_server_wrote_is_refused(cli: Cli, held: str, changes: JsonObject, problem: str) -> None:
    text = cli("export", held).stdout

    done = cli("import", "-", "--journal", "other.sqlite", stdin=altered(text, **changes))

    assert done.returncode == 1
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def edited(events: list[JsonObject]) -> None:
    events[2]["event"]["output"] = "yes"


def hash_removed(events: list[JsonObject]) -> None:
    edited(events)
    del events[2]["hash"]


def moved_to_another_run(events: list[JsonObject]) -> None:
    for line in events:
        line["runId"] = "another"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (edited, "event 3 of run 'RUN' was changed after it was written"),
        (hash_removed, "event 3 of run 'RUN' was changed after it was written"),
        (lambda events: events.pop(3), "event 5 of run 'RUN' was changed after it was written"),
        (lambda events: events.insert(3, events[2]), "event 3 of run 'RUN' was changed after it was written"),
        (lambda events: events.insert(3, events.pop(2)), "event 4 of run 'RUN' was changed after it was written"),
        (lambda events: events[5].update(by="judge"), "event 6 of run 'RUN' was changed after it was written"),
        (moved_to_another_run, "event 1 of run 'another' was changed after it was written"),
        (lambda events: events.pop(), "of the NUMBER events of run 'RUN' only"),
    ],
)
def test_a_change_of_an_exported_file_is_named(
    cli: Cli, held: str, change: Callable[[list[JsonObject]], object], problem: str
) -> None:
    events = lines(cli("export", held).stdout)
    number = str(len(events))
    change(events)
    text = "".join(json.dumps(line) + "\n" for line in events)

    done = cli("import", "-", "--journal", "other.sqlite", stdin=text.encode())

    assert (done.returncode, done.stdout) == (1, "")
    assert problem.replace("RUN", held).replace("NUMBER", number) in done.stderr


def test_a_document_that_was_changed_is_refused(cli: Cli, held: str) -> None:
    text = cli("export", held).stdout.replace("Do triage.", "Do harm.")

    done = cli("import", "-", "--journal", "other.sqlite", stdin=text.encode())

    assert (done.returncode, done.stdout) == (1, "")
    assert "is not what it was when the run was started" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("export", "abc"), 1, "no runs yet"),
        (("export", "abc", "--markdown", "--json"), 2, "not allowed with argument"),
        (("import", "no-such-file"), 1, "cannot be read"),
        (("import", "-"), 1, "has no events"),
    ],
)
def test_impossible_requests_are_refused_with_a_reason(
    cli: Cli, words: tuple[str, ...], code: int, problem: str
) -> None:
    done = cli(*words)

    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr


def test_a_file_that_cannot_be_written_is_reported(cli: Cli, held: str) -> None:
    done = cli("export", held, "-o", "no/such/run.jsonl")

    assert (done.returncode, "cannot be written" in done.stderr) == (1, True)


# ── runs that no server has led ─────────────────────────────────────────────────────────────────────────────────


def forged(cli: Cli, run_id: str, change: Callable[[list[JsonObject]], object]) -> tuple[int, str]:
    """What becomes of a journal that somebody has changed: the exit code, and what is said."""
    events = lines(cli("export", run_id).stdout)
    change(events)
    for sequence, line in enumerate(map(without_hash, events), 1):
        line["sequence"] = sequence
    text = "".join(json.dumps(line) + "\n" for line in events)
    done = cli("import", "-", "--journal", "other.sqlite", stdin=text.encode())
    return done.returncode, done.stderr


def index_of(events: list[JsonObject], kind: str, which: int = 0) -> int:
    return [index for index, line in enumerate(events) if line["event"]["event"] == kind][which]


def accept_what_was_refused(events: list[JsonObject]) -> None:
    refused = events[index_of(events, "output-refused")]["event"]
    accepted = {"event": "output-accepted", "stepId": "triage", "output": refused["output"], "key": refused["key"]}
    events[index_of(events, "output-refused")]["event"] = accepted


def skip_the_second_iteration(events: list[JsonObject]) -> None:
    start = index_of(events, "loop-iterated")
    del events[start : index_of(events, "loop-left")]
    events.insert(start - 1, events.pop(start - 1))


def skip_the_person(events: list[JsonObject]) -> None:
    events[index_of(events, "confirmation-asked")]["event"] = {"event": "completed"}


def lengthen_the_list(events: list[JsonObject]) -> None:
    events[index_of(events, "loop-entered")]["event"]["items"] = [1, 2, 3]


def move_a_moment(events: list[JsonObject]) -> None:
    events[1]["time"] += 1
    for line in events[2:]:
        line["time"] += 10


def slip_in_a_variable(events: list[JsonObject]) -> None:
    change = {"event": "context-changed", "changes": {"files": [1]}}
    events.insert(1, {**events[0], "event": change})


def skip_a_step(events: list[JsonObject]) -> None:
    skipped = {"event": "step-skipped", "stepId": "triage", "condition": {"var": "x"}}
    events.insert(1, {**events[0], "event": skipped})


def show_another_item(events: list[JsonObject]) -> None:
    index = index_of(events, "loop-entered")
    events[index + 1]["event"]["loop"]["item"] = "another"


@pytest.mark.parametrize(
    "change",
    [
        accept_what_was_refused,
        show_another_item,
        skip_the_second_iteration,
        skip_the_person,
        lengthen_the_list,
        move_a_moment,
        slip_in_a_variable,
        skip_a_step,
    ],
)
def test_impossible_events_are_refused(cli: Cli, held: str, change: Callable[[list[JsonObject]], object]) -> None:
    code, problem = forged(cli, held, change)

    assert code == 1
    assert "cannot happen in a run" in problem
    assert "An older version may have allowed what is refused now" in problem
    assert "The file is unchanged, and can be read as JSON lines" in problem
    assert not lines(cli("runs", "--journal", "other.sqlite", "--json").stdout.replace("\n", ""))[0]["runs"]


def test_a_run_from_the_future_is_refused(cli: Cli, held: str) -> None:
    def move(events: list[JsonObject]) -> None:
        for line in events:
            line["time"] += 10 * 86_400_000

    code, problem = forged(cli, held, move)

    assert (code, "event 1 of run" in problem, "it is in the future" in problem) == (1, True, True)


def test_a_number_is_not_accepted_for_a_captured_boolean(cli: Cli, project: Path) -> None:
    ready = step("look", produces={"ready": {"type": "boolean"}})
    write(project, document(ready, step("end"), identifier="ready-or-not"))
    run_id = cli.start_run(workflow="ready-or-not", stdin=b"ready: false")

    def count(events: list[JsonObject]) -> None:
        events[index_of(events, "output-accepted")]["event"]["captured"] = {"ready": 0}
        events[index_of(events, "context-changed")]["event"]["changes"] = {"ready": 0}

    assert forged(cli, run_id, count)[0] == 1
    assert forged(cli, run_id, lambda events: None) == (0, "")


def test_a_run_says_that_it_was_imported_and_from_where(cli: Cli, held: str) -> None:
    cli("export", held, "-o", "run.jsonl")
    cli("import", "run.jsonl", "--journal", "other.sqlite")
    there = ("--journal", "other.sqlite")

    assert "(imported from run.jsonl)" in cli("runs", *there).stdout
    assert "- Imported from `run.jsonl`" in cli("run", "show", held, *there).stdout
    assert json.loads(cli("run", "show", held, "--json", *there).stdout)["importedFrom"] == "run.jsonl"
    assert "imported" not in cli("runs").stdout
