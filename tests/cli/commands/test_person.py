"""`workflowlookup person`, and `confirm` for steps with `by: person`: answers that a person signs with a key."""

import base64
import contextlib
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from support.command_line import PROGRAM, Cli
from support.json_values import JsonObject
from support.make import FORM, document, step, write
from workflowlookup.runs.events import ConfirmationGiven
from workflowlookup.runs.fold import fold
from workflowlookup.store.journal import summarise
from workflowlookup.store.sqlite import SqliteJournal

PASSPHRASE = "correct horse battery"
BY_PERSON = {"by": "person"}


@pytest.fixture(autouse=True)
def own(cli: Cli, project: Path) -> Path:
    write(project, document(step("deploy", requireConfirmation=BY_PERSON), step("last-step")))
    return cli.own


def create(cli: Cli, name: str, passphrase: str = PASSPHRASE) -> tuple[int, str]:
    sitting = cli.sit_down("person", "create", name).see("New passphrase").type(f"{passphrase}\n")
    return sitting.see("again:").type(f"{passphrase}\n").leave()


@pytest.fixture
def ada(cli: Cli) -> str:
    assert create(cli, "ada")[0] == 0
    return "ada"


@pytest.fixture
def held(cli: Cli) -> str:
    return cli.start_run(stdin="Deployed.")


def people(cli: Cli) -> list[JsonObject]:
    listed: list[JsonObject] = json.loads(cli("person", "list", "--json").stdout)["people"]
    return listed


def answers(cli: Cli, run_id: str) -> list[JsonObject]:
    events = [json.loads(line)["event"] for line in cli("export", run_id).stdout.splitlines()]
    return [event for event in events if event["event"] in ("confirmation-given", "confirmation-denied")]


def sign(cli: Cli, run_id: str, *flags: str, passphrase: str = PASSPHRASE) -> tuple[int, str]:
    sitting = cli.sit_down("confirm", run_id, *flags).see("[y/N]" if "--deny" in flags else "[l]eave").type("y\n")
    return sitting.see("Passphrase of ada").type(f"{passphrase}\n").leave()


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_made_with_a_passphrase_that_is_never_shown(cli: Cli, own: Path) -> None:
    code, seen = create(cli, "ada")

    assert (code, PASSPHRASE in seen) == (0, False)
    assert "ada can sign answers now" in seen
    files = [own / "people.json", *(own / "keys").iterdir()]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    assert not any(PASSPHRASE.encode() in file.read_bytes() for file in files)
    (person,) = people(cli)
    assert (person["person"], person["kind"], person["signedForBy"]) == ("ada", "key", None)


def test_a_short_passphrase_is_refused_and_so_is_one_that_differs(cli: Cli) -> None:
    sitting = cli.sit_down("person", "create", "ada").see("New passphrase").type("short\n").see("It has 5 characters")
    sitting.see("New passphrase").type(f"{PASSPHRASE}\n").see("again:").type("another passphrase\n").see("They differ")
    code, seen = sitting.see("New passphrase").type("\n").leave()

    assert (code, "No key was made" in seen) == (1, True)
    assert people(cli) == []


def test_the_passphrase_comes_from_the_terminal_alone(cli: Cli, own: Path) -> None:
    alone = cli.alone("person", "create", "ada", WORKFLOWLOOKUP_PASSPHRASE=PASSPHRASE)
    piped = subprocess.run(
        [sys.executable, *PROGRAM, "person", "create", "ada"],
        input=f"{PASSPHRASE}\n{PASSPHRASE}\n",
        capture_output=True,
        text=True,
        cwd=cli.directory,
        env=cli._environment(),
        start_new_session=True,
        check=False,
    )

    assert [(done.returncode, "there is no terminal" in done.stderr) for done in (alone, piped)] == [(1, True)] * 2
    assert not (own / "people.json").exists()


def test_an_agent_makes_no_key(cli: Cli) -> None:
    code, seen = cli.sit_down("person", "create", "ada", CLAUDECODE="1").leave()

    assert (code, "an agent runs this command" in " ".join(seen.split())) == (1, True)


@pytest.mark.parametrize("name", ["-x", "a\nb", "", "x" * 65, "../ada"])
def test_a_name_that_could_confuse_is_refused(cli: Cli, name: str) -> None:
    done = cli("person", "create", "--", name)

    assert (done.returncode in (1, 2), people(cli)) == (True, [])


def test_a_further_person_needs_the_signature_of_one_who_is_known(cli: Cli, ada: str) -> None:
    sitting = cli.sit_down("person", "create", "bob").see("Known already: ada").see("New passphrase")
    sitting.type("bobs own passphrase\n").see("again:").type("bobs own passphrase\n")
    code, _ = sitting.see("Passphrase of ada to add bob").type(f"{PASSPHRASE}\n").leave()

    assert code == 0
    assert [(one["person"], one["signedForBy"]) for one in people(cli)] == [("ada", None), ("bob", "ada")]


def test_without_that_signature_nobody_is_added(cli: Cli, ada: str) -> None:
    sitting = cli.sit_down("person", "create", "eve").see("New passphrase").type("eves own passphrase\n")
    sitting.see("again:").type("eves own passphrase\n")
    for _ in range(3):
        sitting.see("Passphrase of ada").type("eves own passphrase\n").see("does not open the key")
    code, _ = sitting.leave()

    assert code == 1
    assert [one["person"] for one in people(cli)] == ["ada"]
    assert len(list((cli.own / "keys").iterdir())) == 1


@pytest.mark.parametrize("endorsed_by", ["nobody", "itself", "ada"])
def test_a_key_that_somebody_wrote_into_the_file_does_not_count(
    cli: Cli, ada: str, held: str, tmp_path_factory: pytest.TempPathFactory, endorsed_by: str
) -> None:
    other = Cli(tmp_path_factory.mktemp("elsewhere"))
    forged, genuine = other.own, cli.own
    assert create(other, "eve", "eves own passphrase")[0] == 0
    shutil.copytree(forged / "keys", genuine / "keys", dirs_exist_ok=True)
    stored, new = (json.loads((own / "people.json").read_text()) for own in (genuine, forged))
    key = new["keys"][0]
    if endorsed_by != "nobody":
        signer = key if endorsed_by == "itself" else stored["keys"][0]
        signature = base64.urlsafe_b64encode(bytes(64)).decode().rstrip("=")
        key["endorsement"] = {
            "method": "key",
            "person": signer["person"],
            "key": signer["id"],
            "signature": signature,
        }
    stored["keys"].append(key)
    (genuine / "people.json").write_text(json.dumps(stored))

    listed = cli("person", "list")
    sitting = cli.sit_down("confirm", held).see("[l]eave").type("y\n").see("Passphrase of ada")
    code, seen = sitting.type("eves own passphrase\n").see("does not open").see("Passphrase of ada").type("\n").leave()

    assert (listed.returncode, "entries that no known person signed: 'eve'" in listed.stderr) == (1, True)
    assert "no known person signed" in cli("doctor").stdout
    assert (code, "Who are you" in seen) == (1, False)
    assert cli.run_status(held)["waitingFor"] == "confirmation"


def test_the_last_key_cannot_be_removed_and_another_can(cli: Cli, ada: str) -> None:
    code, seen = cli.sit_down("person", "remove", "ada").see("Passphrase of ada").type(f"{PASSPHRASE}\n").leave()
    assert (code, "This is the last key" in seen) == (1, True)
    sitting = cli.sit_down("person", "create", "bob").see("New passphrase").type("bobs own passphrase\n")
    sitting.see("again:").type("bobs own passphrase\n").see("to add bob").type(f"{PASSPHRASE}\n").leave()

    sitting = cli.sit_down("person", "remove", "ada").see("Who are you?").type("bob\n").see("Passphrase of bob")
    code, _ = sitting.type("bobs own passphrase\n").leave()

    assert code == 0
    assert [(one["person"], one["removed"] is not None) for one in people(cli)] == [("ada", True), ("bob", False)]
    assert len(list((cli.own / "keys").iterdir())) == 1


def test_doctor_lists_people(cli: Cli, ada: str) -> None:
    report = cli("doctor").stdout

    assert "ada" in report
    assert "nobody: the first key" in report


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_signed_answer_counts_and_says_who_signed(cli: Cli, ada: str, held: str) -> None:
    code, seen = sign(cli, held, "--note", "Fine.")

    assert (code, "Confirmed: Fine." in seen, PASSPHRASE in seen) == (0, True, False)
    assert cli.run_status(held)["waitingFor"] == "output"
    (answer,) = answers(cli, held)
    assert (answer["how"], answer["signature"]["person"], answer["signature"]["method"]) == ("key", "ada", "key")
    assert "signed by ada with a key" in cli("run", "show", held).stdout
    assert "signed by ada with a key" in cli("why", held).stdout


def test_a_no_is_signed_too(cli: Cli, ada: str, held: str) -> None:
    assert sign(cli, held, "--deny", "--note", "No.")[0] == 0

    (answer,) = answers(cli, held)
    assert (answer["event"], answer["how"]) == ("confirmation-denied", "key")
    assert cli.run_status(held)["waitingFor"] == "output"


def test_what_the_person_fills_in_is_signed(cli: Cli, project: Path, ada: str) -> None:
    asks = {"by": "person", "when": "before", "answers": FORM}
    write(project, document(step("size-up", requireConfirmation=asks), step("then"), identifier="sized-flow"))
    run_id = cli.start_run(workflow="sized-flow")

    sitting = cli.sit_down("confirm", run_id).see("[l]eave").type("y\n").see("size (").type("large\n")
    sitting.see("hours (").type("3\n").see("urgent (").type("no\n").see("Passphrase of ada")
    code, _ = sitting.type(f"{PASSPHRASE}\n").leave()

    assert code == 0
    assert "signed by ada" in cli("run", "show", run_id).stdout


def test_a_run_that_is_resumed_asks_for_the_signature(cli: Cli, ada: str, held: str) -> None:
    sitting = cli.sit_down("run", "--resume", held).see("[l]eave").type("y\n").see("Passphrase of ada")
    sitting.type(f"{PASSPHRASE}\n").see("last-step").type("\x03").leave()

    assert [answer["how"] for answer in answers(cli, held)] == ["key"]


def test_a_wrong_passphrase_answers_nothing(cli: Cli, ada: str, held: str) -> None:
    sitting = cli.sit_down("confirm", held).see("[l]eave").type("y\n")
    for _ in range(3):
        sitting.see("Passphrase of ada").type("wrong passphrase\n").see("does not open the key")
    code, seen = sitting.leave()

    assert (code, "Nothing was signed" in seen) == (1, True)
    assert cli.run_status(held)["waitingFor"] == "confirmation"


def test_without_a_key_the_command_says_how_to_make_one(cli: Cli, held: str) -> None:
    code, seen = cli.sit_down("confirm", held).leave()

    text = " ".join(seen.split())
    assert code == 1
    assert "counts only if a person signs it" in text
    assert "`workflowlookup person create NAME`" in text


def test_an_agent_with_a_shell_confirms_nothing(cli: Cli, ada: str, held: str) -> None:
    """In a session of its own, with and without a terminal that it made itself, and without its variables."""
    setsid = subprocess.run(
        ["setsid", "--wait", sys.executable, *PROGRAM, "confirm", held],
        input="y\n",
        capture_output=True,
        text=True,
        cwd=cli.directory,
        env=cli._environment(),
        check=False,
    )
    code, _ = cli.sit_down("confirm", held).see("[l]eave").type("y\n").see("Passphrase of ada").type("\n").leave()

    assert (setsid.returncode, "there is no terminal" in setsid.stderr) == (1, True)
    assert code == 1
    assert cli.run_status(held)["waitingFor"] == "confirmation"


def test_the_answer_to_an_agent_names_no_command(cli: Cli, held: str) -> None:
    advice = str(cli.run_status(held)["next"])

    assert "Only a person may answer this, not you." in advice
    assert "in the console with their passkey or in their own terminal with their key" in advice
    assert "workflowlookup confirm" not in advice
    assert "`" not in advice


@pytest.mark.parametrize("kinds", ["terminal", "key, terminal"])
def test_the_setting_allows_answers_that_are_not_signed(cli: Cli, held: str, kinds: str) -> None:
    allowed: JsonObject = {"WORKFLOWLOOKUP_PERSON_CONFIRMATION": kinds}
    code, _ = cli.confirm(held, **allowed)

    assert code == 0
    assert [answer["how"] for answer in answers(cli, held)] == ["terminal"]
    assert "Not proven" not in cli("run", "show", held, **allowed).stdout
    assert "is not signed: it was given in the terminal" in cli("run", "show", held).stdout


def test_what_an_agent_allowed_itself_does_not_count_for_others(cli: Cli, held: str) -> None:
    """With a setting of its own, and a terminal that it made: the run goes on for nobody else, and says why."""
    allowed: JsonObject = {"WORKFLOWLOOKUP_PERSON_CONFIRMATION": "terminal"}
    assert cli.confirm(held, **allowed)[0] == 0

    refused = cli("run", "--resume", held, "--json", stdin=b"The last output.")
    assert (refused.returncode, "the run cannot go on here" in refused.stderr) == (1, True)
    assert cli("run", "--resume", held, "--json", stdin=b"The last output.", **allowed).returncode == 0
    assert "Not proven" in cli("run", "show", held).stdout

    other = cli.start_run(stdin="Deployed.")
    assert cli.confirm(other, **allowed)[0] == 0
    assert cli("cancel", other).returncode == 0, "it can still be cancelled"


def test_a_repository_cannot_allow_more(cli: Cli, held: str) -> None:
    (cli.directory / "workflowlookup.toml").write_text('person_confirmation = ["terminal"]\n')

    code, seen = cli.sit_down("confirm", held).leave()

    assert (code, "counts only if a person signs it" in " ".join(seen.split())) == (1, True)


def test_a_step_that_anyone_may_confirm_is_as_before(cli: Cli, project: Path, ada: str) -> None:
    write(project, document(step("sign-off", requireConfirmation=True), identifier="easy-flow"))
    run_id = cli.start_run(workflow="easy-flow", stdin="Deployed.")

    assert cli.confirm(run_id)[0] == 0
    assert [answer["how"] for answer in answers(cli, run_id)] == ["terminal"]


# ── what was tampered with ──────────────────────────────────────────────────────────────────────────────────────


def rewrite(cli: Cli, run_id: str, change: Callable[[JsonObject], None]) -> str:
    """Export a run, change its signed answer, and import it into another journal: what that says."""
    lines = [json.loads(line) for line in cli("export", run_id).stdout.splitlines()]
    for line in lines:
        del line["hash"], line["length"]  # as a file of a version that had none
        if line["event"]["event"] in ("confirmation-given", "confirmation-denied"):
            change(line["event"])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = cli("import", "-", "--journal", "other.sqlite", stdin=text.encode())
    return " ".join(done.stderr.split()) if done.returncode else ""


def test_a_signed_run_is_imported_and_verified_again(cli: Cli, ada: str, held: str) -> None:
    sign(cli, held)

    assert rewrite(cli, held, lambda _: None) == ""
    assert "Not proven" not in cli("run", "show", held, "--journal", "other.sqlite").stdout


@pytest.mark.parametrize(
    "change",
    [{"note": "Changed."}, {"how": "key", "signature": None}, {"signature": {"person": "eve"}}],
    ids=["note", "without signature", "another person"],
)
def test_an_answer_that_was_changed_is_not_imported(cli: Cli, ada: str, held: str, change: JsonObject) -> None:
    sign(cli, held)

    def apply(event: JsonObject) -> None:
        for name, value in change.items():
            event[name] = {**event[name], **value} if isinstance(value, dict) else value

    assert "does not match its signature" in rewrite(cli, held, apply)


def test_where_the_key_is_not_known_the_answer_is_not_proven(cli: Cli, ada: str, held: str) -> None:
    sign(cli, held)
    (cli.own / "people.json").unlink()

    shown = cli("run", "show", held).stdout

    assert "Not proven" in shown
    assert "signed by 'ada'" in shown
    assert "whose public key is not known here" in shown


def test_a_run_whose_answer_was_changed_in_the_journal_is_damaged(cli: Cli, ada: str, held: str) -> None:
    sign(cli, held, "--note", "Not on Fridays.")
    path = cli.home / ".local" / "share" / "workflowlookup" / "runs.sqlite"
    with contextlib.closing(SqliteJournal(str(path))) as journal:  # who can write to it can also compute its hashes
        records = journal.read(held)
        edited = [
            msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, note="Go on."))
            if isinstance(record.event, ConfirmationGiven)
            else record
            for record in records
        ]
        journal.delete(held)
        journal.append(held, 0, edited, summarise(fold(held, edited)))

    for command in (("run", "show", held), ("why", held), ("run", "--resume", held)):
        done = cli(*command)
        assert (done.returncode, "does not match its signature" in done.stderr) == (1, True)
    assert "does not match its signature" in " ".join(cli("doctor").stdout.split())
