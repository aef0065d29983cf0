"""Signatures of answers: what they cover, which ones count, and what happens to a stored one that was changed."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.clocks import TickingClock
from support.json_values import Json, JsonObject
from support.make import FORM, document, step
from workflowlookup.errors import InvalidParams, RunDamaged, RunStateError, SecurityError
from workflowlookup.language.document.building import build
from workflowlookup.people import keys
from workflowlookup.people.keys import SealedKey, WrongPassphrase, create_key, decode, encode, sign
from workflowlookup.people.store import PeopleStore, PersonKey, active_keys, new_key, text_to_add, text_to_remove
from workflowlookup.receipts.keys import load_or_make_key
from workflowlookup.receipts.statement import Signer, Statement, parse_statement, state_run
from workflowlookup.receipts.verification import confirmation_problems, person_problems
from workflowlookup.runs.events import (
    ConfirmationAsked,
    ConfirmationDenied,
    ConfirmationGiven,
    OutputAccepted,
    Record,
    Signature,
)
from workflowlookup.runs.run import Run
from workflowlookup.runs.signing import DOMAIN, parse_signed, text_to_sign
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

PASSPHRASE = "correct horse battery"
DEPLOY = document(step("deploy", requireConfirmation={"by": "person", "answers": FORM}), step("last-step"))
NO_KEY: Any = None
ANSWERS: JsonObject = {"size": "large", "hours": 3}


class World:
    """A journal, and a person who can sign."""

    def __init__(self, directory: Path) -> None:
        self.clock = TickingClock()
        self.directory = directory
        self.people = PeopleStore(str(directory / "config"))
        self.ada = self.join("ada")
        self.runs = self.open("runs.sqlite")

    def open(self, name: str) -> Runs:
        return Runs(SqliteJournal(str(self.directory / name)), clock=self.clock, people=self.people)

    def join(self, name: str) -> PersonKey:
        private = create_key(PASSPHRASE)
        key = new_key(name, private.public, self.clock())
        signers = self.people.active()
        endorsement = self.people.sign(signers[0], PASSPHRASE, text_to_add(key)) if signers else None
        self.people.add(key, endorsement, private)
        return key

    def held(self, run_id: str = "r1", content: JsonObject = DEPLOY, output: str = "Deployed.") -> Run:
        """A run that waits for a person."""
        run = self.runs.start(build(content), {}, {}, run_id=run_id)
        return self.runs.submit(run_id, run.current, output, {}) if run.open_question is None else run

    def sign(self, run: Run, key: PersonKey | None = None, **answer: Any) -> Signature:
        return self.people.sign(key or self.ada, PASSPHRASE, text_to_sign(run, **{"agrees": True, **answer}))

    def confirm(self, run: Run, signature: Signature | None, note: str = "", **fields: Any) -> Run:
        how = signature.method if signature else "console"
        return self.runs.confirm(run.id, how=how, note=note, answers=ANSWERS, signature=signature, **fields)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setitem(keys._SCRYPT, "n", 1 << 10)  # as slow as it must be only for those who guess
    return World(tmp_path)


# ── the text ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_text_says_what_is_answered(world: World) -> None:
    run = world.held()

    first, _, rest = text_to_sign(run, agrees=True, note="Fine.", answers=ANSWERS).partition(b"\n")

    content = json.loads(rest)
    assert first.decode() == DOMAIN
    assert {name: content[name] for name in ("run", "step", "agrees", "note", "answers")} == {
        "run": "r1",
        "step": "deploy",
        "agrees": True,
        "note": "Fine.",
        "answers": ANSWERS,
    }
    assert content["question"] == run.question_id
    assert content["subject"] == hashlib.sha256(b"Deployed.").hexdigest()


def test_the_text_is_the_same_when_the_run_is_read_again(world: World) -> None:
    run = world.held()

    assert text_to_sign(world.open("runs.sqlite").get("r1"), agrees=True) == text_to_sign(run, agrees=True)


@pytest.mark.parametrize(
    "confirmation", [{"by": "person"}, {"by": "person", "when": "before"}], ids=["after", "before"]
)
def test_another_question_has_another_text(world: World, confirmation: JsonObject) -> None:
    content = document(step("deploy", requireConfirmation=confirmation), step("last-step"))
    first, second = world.held("r1", content), world.held("r2", content)
    renamed = msgspec.structs.replace(second, id="r1")

    texts = {text_to_sign(run, agrees=True) for run in (first, second, renamed)}

    assert len(texts) == 3, "each question has an id of its own"


# ── answers that count ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_signed_answer_counts_and_is_verified_when_the_run_is_read(world: World) -> None:
    run = world.held()

    after = world.confirm(run, world.sign(run, answers=ANSWERS, note="Fine."), "Fine.")

    again = world.open("runs.sqlite").get("r1")
    assert (after.current, again.current, again.unverified) == ("last-step", "last-step", ())


@pytest.mark.parametrize("how", ["terminal", "form", "console", "relayed", "key", "passkey"])
def test_an_answer_without_a_signature_does_not_count(world: World, how: Any) -> None:
    run = world.held()

    with pytest.raises((RunStateError, SecurityError)):
        world.runs.confirm(run.id, how=how, answers=ANSWERS)
    with pytest.raises((RunStateError, SecurityError)):
        world.runs.deny(run.id, how=how)
    assert world.runs.get("r1").open_question is not None


def test_a_signature_is_also_checked_where_none_is_needed(world: World) -> None:
    run = world.held(content=document(step("deploy", requireConfirmation=True), step("last-step")))
    wrong = msgspec.structs.replace(world.sign(run), signature=encode(bytes(64)))

    with pytest.raises(SecurityError, match="signature"):
        world.runs.confirm(run.id, how="key", signature=wrong)
    assert world.runs.confirm(run.id, how="key", signature=world.sign(run)).current == "last-step"


@pytest.mark.parametrize(
    "signed",
    [{"agrees": False}, {"note": "Another."}, {"answers": {"size": "small"}}, {}],
    ids=["no", "note", "answers", "no answers"],
)
def test_a_signature_of_another_answer_does_not_count(world: World, signed: Mapping[str, Json]) -> None:
    run = world.held()
    signature = world.sign(run, **{"answers": ANSWERS, **signed} if signed else {})

    with pytest.raises(SecurityError, match="is invalid"):
        world.confirm(run, signature)


def test_a_signature_cannot_be_replayed(world: World) -> None:
    """To another run, another question of the same run, or another output."""
    run, other = world.held(), world.held("r2")
    signature = world.sign(run, answers=ANSWERS)
    with pytest.raises(SecurityError):
        world.confirm(other, signature)
    no = world.sign(run, agrees=False)
    world.runs.deny("r1", how="key", signature=no)

    again = world.runs.submit("r1", "deploy", "Deployed.", {})
    with pytest.raises(SecurityError):
        world.confirm(again, signature, question=again.question_id)
    with pytest.raises(SecurityError):
        world.runs.deny("r1", how="key", question=again.question_id, signature=no)
    assert world.runs.get("r1").open_question is not None


def test_a_person_who_is_not_known_signs_nothing(world: World, tmp_path: Path) -> None:
    run, stranger = world.held(), World(tmp_path / "elsewhere")

    with pytest.raises(SecurityError, match="is unknown"):
        world.confirm(run, stranger.sign(run, answers=ANSWERS))


def test_the_name_in_a_signature_must_be_that_of_the_key(world: World) -> None:
    run = world.held()
    world.join("bob")

    with pytest.raises(SecurityError, match="is invalid"):
        world.confirm(run, msgspec.structs.replace(world.sign(run, answers=ANSWERS), person="bob"))


def test_what_a_removed_key_signs_later_does_not_count_and_earlier_does(world: World) -> None:
    bob = world.join("bob")
    first, second = world.held(), world.held("r2")
    world.confirm(first, world.sign(first, world.ada, answers=ANSWERS))
    late = world.sign(second, world.ada, answers=ANSWERS)
    time = world.clock()
    world.people.remove(world.ada, time, world.people.sign(bob, PASSPHRASE, text_to_remove(world.ada, time)))

    with pytest.raises(SecurityError, match="is invalid"):
        world.confirm(second, late)
    assert world.open("runs.sqlite").get("r1").unverified == ()


# ── stored answers that were changed ────────────────────────────────────────────────────────────────────────────


def signed_records(world: World) -> list[Record]:
    run = world.held()
    world.confirm(run, world.sign(run, answers=ANSWERS, note="Fine."), "Fine.")
    return world.runs.history("r1")


def edited(records: list[Record], kind: type[Any], **changes: Any) -> list[Record]:
    """The records, with these fields of the events of a kind changed; those of a signature as a mapping."""
    result = []
    for record in records:
        event: Any = record.event
        if isinstance(event, kind):
            if isinstance(changes.get("signature"), dict):
                changes = {"signature": msgspec.structs.replace(event.signature, **changes["signature"])}
            event = msgspec.structs.replace(event, **changes)
        result.append(msgspec.structs.replace(record, event=event))
    return result


EDITS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "note": (ConfirmationGiven, {"note": "Changed."}),
    "answers": (ConfirmationGiven, {"answers": {"size": "small", "hours": 3}}),
    "question": (ConfirmationGiven, {"question": "0123456789abcdef"}),
    "nonce": (ConfirmationAsked, {"nonce": "0123456789abcdef"}),
    "output": (OutputAccepted, {"output": "Deployed, honestly."}),
    "no signature": (ConfirmationGiven, {"signature": None}),
    "method": (ConfirmationGiven, {"how": "passkey"}),
    "person": (ConfirmationGiven, {"signature": {"person": "eve"}}),
    "signature": (ConfirmationGiven, {"signature": {"signature": encode(bytes(64))}}),
    "nonsense": (ConfirmationGiven, {"signature": {"signature": "%%%"}}),
}


@pytest.mark.parametrize("name", EDITS)
def test_each_part_of_a_stored_answer_is_covered(world: World, name: str) -> None:
    kind, changes = EDITS[name]
    records = edited(signed_records(world), kind, **changes)
    runs = world.open("other.sqlite")

    with pytest.raises(RunDamaged, match="does not match its signature"):
        runs._cache.fold("r1", records)


def test_an_answer_cannot_be_moved_to_another_run(world: World) -> None:
    records = signed_records(world)

    with pytest.raises(InvalidParams, match="does not match its signature"):
        world.open("other.sqlite").store_import("r2", records)


def test_an_answer_made_into_its_opposite_is_noticed(world: World) -> None:
    run = world.held(content=document(step("deploy", requireConfirmation={"by": "person"}), step("last-step")))
    world.runs.deny("r1", how="key", signature=world.sign(run, agrees=False))
    records = [
        msgspec.structs.replace(
            record,
            event=ConfirmationGiven(
                step_id="deploy", how="key", question=record.event.question, signature=record.event.signature
            ),
        )
        if isinstance(record.event, ConfirmationDenied)
        else record
        for record in world.runs.history("r1")
    ]

    with pytest.raises(RunDamaged):
        world.open("other.sqlite")._cache.fold("r1", records)


def test_where_nobody_is_known_a_signed_answer_is_shown_as_not_verified(world: World) -> None:
    signed_records(world)
    stranger = Runs(SqliteJournal(str(world.directory / "runs.sqlite")), clock=world.clock)

    (doubt,) = stranger.get("r1").unverified

    assert doubt == (
        f"The answer to step 'deploy' (event 5) is signed by 'ada' (key {world.ada.id}), whose public key is not known "
        "here: it is not verified."
    )


def test_an_unsigned_answer_of_an_older_journal_is_shown_as_such(world: World) -> None:
    allowing = Runs(
        SqliteJournal(str(world.directory / "runs.sqlite")),
        clock=world.clock,
        people=PeopleStore(str(world.directory / "config"), ("terminal",)),
    )
    world.held()
    allowing.confirm("r1", how="terminal", answers=ANSWERS)

    allowing.submit("r1", "last-step", "Done.", {})
    assert allowing.get("r1").unverified == ()
    assert world.open("runs.sqlite").get("r1").unverified == (
        "The answer to step 'deploy' (event 5) is not signed: it was given in the terminal.",
    )
    with pytest.raises(RunStateError, match="can have no receipt here"):
        state_run(world.open("runs.sqlite").get("r1"), world.runs.history("r1"), "a" * 40, "b" * 40, NO_KEY)


# ── receipts ────────────────────────────────────────────────────────────────────────────────────────────────────


def signed_statement(world: World) -> Statement:
    """Of a run in which a person said no to one output, and yes to the next."""
    run = world.held()
    refused = world.sign(run, agrees=False, note="Not yet.")
    world.runs.deny(run.id, how="key", note="Not yet.", signature=refused)
    run = world.runs.submit(run.id, "deploy", "Deployed again.", {})
    world.confirm(run, world.sign(run, answers=ANSWERS, note="Fine."), "Fine.")
    run = world.runs.submit(run.id, "last-step", "done", {})
    people = world.people.all_keys()
    installation = load_or_make_key(str(world.directory / "data" / "signing-key.pem")).public
    return parse_statement(state_run(run, world.runs.history(run.id), "c", "t", installation, people=people))


def with_answer(statement: Statement, position: int, **changes: Any) -> Statement:
    answers = list(statement.predicate.confirmations)
    answers[position] = msgspec.structs.replace(answers[position], **changes)
    predicate = msgspec.structs.replace(statement.predicate, confirmations=tuple(answers))
    return msgspec.structs.replace(statement, predicate=predicate)


def problems(statement: Statement, *, is_in_journal: bool = False) -> list[str]:
    return list(confirmation_problems(statement, is_in_journal=is_in_journal))


def test_a_receipt_has_what_people_signed_and_it_is_verified_without_the_journal(world: World) -> None:
    statement = signed_statement(world)

    no, yes = statement.predicate.confirmations
    assert [(one.answer, one.reason, one.how) for one in (no, yes)] == [("no", "step", "key"), ("yes", "step", "key")]
    assert (parse_signed(no.signed).note, parse_signed(yes.signed).answers) == ("Not yet.", ANSWERS)
    assert problems(statement) == []


@pytest.mark.parametrize(
    ("part", "changes", "reason"),
    [
        ("run", {"id": "r2"}, "it is about another run, workflow, step or answer"),
        ("workflow", {"sha256": "0" * 64}, "it is about another run, workflow, step or answer"),
        ("answer", {"answer": "no"}, "it is about another run, workflow, step or answer"),
        ("answer", {"reason": "unproved"}, "it is about another run, workflow, step or answer"),
        ("answer", {"how": "passkey"}, "the signature does not match the key and the text"),
        ("note", {}, "the signature does not match the key and the text"),
        ("signer", {}, "the signature does not match the key and the text"),
        ("answer", {"signed": "ada said yes"}, "the key or the text cannot be read"),
        ("output", {}, "it is about another output"),
    ],
)
def test_a_receipt_cannot_say_that_a_person_signed_something_else(
    world: World, part: str, changes: dict[str, Any], reason: str
) -> None:
    statement = signed_statement(world)
    predicate, yes = statement.predicate, statement.predicate.confirmations[1]
    match part:
        case "run" | "workflow":
            changed = msgspec.structs.replace(getattr(predicate, part), **changes)
            forged = msgspec.structs.replace(statement, predicate=msgspec.structs.replace(predicate, **{part: changed}))
        case "note":
            forged = with_answer(statement, 1, signed=yes.signed.replace("Fine.", "Good."))
        case "signer":
            forged = with_answer(statement, 1, signer=Signer(public=create_key(PASSPHRASE).public))
        case "output":
            steps = tuple(msgspec.structs.replace(one, output_sha256="0" * 64) for one in predicate.steps)
            forged = msgspec.structs.replace(statement, predicate=msgspec.structs.replace(predicate, steps=steps))
        case _:
            forged = with_answer(statement, 1, **changes)

    assert any(problem.endswith(f"is not what ada signed: {reason}.") for problem in problems(forged)), problems(forged)


def test_a_receipt_is_verified_for_the_people_that_are_named(world: World) -> None:
    statement = signed_statement(world)
    eve = world.join("eve")
    unsigned = with_answer(statement, 1, signature=None, how="console")
    silent = msgspec.structs.replace(
        statement, predicate=msgspec.structs.replace(statement.predicate, confirmations=())
    )

    assert list(person_problems(statement, {world.ada.id: ""})) == []
    known = active_keys(Path(world.people.path).read_bytes())
    assert list(person_problems(statement, {key.id: key.public for key in known})) == []
    assert list(person_problems(statement, {eve.id: eve.public})) == [
        f"The answer 'yes' to step 'deploy' is signed by ada with key {world.ada.id}, which --person does not name."
    ]
    assert len(list(person_problems(statement, {world.ada.id: eve.public}))) == 1
    assert list(person_problems(unsigned, {world.ada.id: ""})) == [
        "The answer 'yes' to step 'deploy' is not signed (--person)."
    ]
    assert list(person_problems(silent, {world.ada.id: ""})) == ["No person agreed to anything (--person)."]


def test_a_signature_of_another_run_does_not_count_in_a_receipt(world: World) -> None:
    statement = signed_statement(world)
    other = world.held("r2", output="Deployed again.")
    replayed = with_answer(
        statement,
        1,
        signature=world.sign(other, answers=ANSWERS),
        signed=text_to_sign(other, agrees=True, answers=ANSWERS).decode(),
    )

    (problem,) = problems(replayed)

    assert problem.endswith("is not what ada signed: it is about another run, workflow, step or answer.")


def test_an_answer_whose_signature_is_missing_or_cannot_be_checked_is_refused(world: World) -> None:
    statement = signed_statement(world)
    unsigned = with_answer(statement, 1, signature=None)
    of_an_older_version = with_answer(statement, 1, signed="", signer=None)

    assert problems(unsigned) == ["The answer 'yes' to step 'deploy' should be signed, and is not."]
    assert problems(of_an_older_version, is_in_journal=True) == []
    assert "only where the run is in the journal" in problems(of_an_older_version)[0]


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_opens_with_its_passphrase_alone() -> None:
    key = create_key(PASSPHRASE)

    assert sign(key, PASSPHRASE, b"text")
    for wrong in ("correct horse batter", PASSPHRASE.upper(), ""):
        with pytest.raises(WrongPassphrase):
            sign(key, wrong, b"text")


@pytest.mark.parametrize("field", ["public", "salt", "nonce", "sealed"])
def test_a_key_file_that_was_changed_opens_not_at_all(field: str) -> None:
    key = create_key(PASSPHRASE)
    flipped = bytes([decode(getattr(key, field))[0] ^ 1, *decode(getattr(key, field))[1:]])

    with pytest.raises(WrongPassphrase):
        sign(msgspec.structs.replace(key, **{field: encode(flipped)}), PASSPHRASE, b"text")


def test_the_file_of_people_is_ignored_if_others_can_write_to_it(world: World) -> None:
    (world.directory / "config" / "people.json").chmod(0o666)

    assert world.people.active() == []
    assert "others can write to it" in world.people.problem


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version": 2}', b'{"keys": [{"id": "x"}]}', b"\xff", b'{"x":' * 5_000]
)
def test_a_file_of_people_that_cannot_be_read_makes_nobody_known(world: World, content: bytes) -> None:
    (world.directory / "config" / "people.json").write_bytes(content)

    assert world.people.active() == []
    assert "cannot be used, so nobody is known" in world.people.problem
    with pytest.raises(SecurityError, match="delete it to start over"):
        world.join("eve")


def test_a_removal_that_nobody_signed_does_not_count(world: World) -> None:
    world.join("bob")
    path = world.directory / "config" / "people.json"
    stored = json.loads(path.read_text())
    stored["keys"][0]["removed"] = 1
    path.write_text(json.dumps(stored))

    assert [key.person for key in world.people.active()] == ["ada", "bob"]
    assert "the removal of 'ada'" in world.people.problem


def test_two_people_with_the_first_key_are_not_possible(world: World) -> None:
    private: SealedKey = create_key(PASSPHRASE)

    with pytest.raises(SecurityError, match="one of them has to sign"):
        world.people.add(new_key("eve", private.public, 1), None, private)
    assert [key.person for key in world.people.active()] == ["ada"]
