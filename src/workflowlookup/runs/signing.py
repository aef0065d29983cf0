"""What a person signs when they answer a question, and which answers count where a step says `by: person`.

Pure: the text that a signature covers follows from the run and the answer. A `People` at the edge has the public keys
and does the cryptography.
"""

import hashlib
from collections.abc import Collection
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from workflowlookup.access import SIGNED_KINDS
from workflowlookup.errors import RunStateError, SecurityError
from workflowlookup.language.values import Context, Json
from workflowlookup.runs.events import (
    ConfirmationDenied,
    ConfirmationGiven,
    OutputRefused,
    Record,
    Signature,
    describe_kind,
)
from workflowlookup.runs.run import Run

DOMAIN: Final = "workflowlookup confirmation v1"
"""The first line of the text, so that no signature for another purpose or version can be taken for an answer."""


class Verdict(StrEnum):
    """The result of checking a signature."""

    VALID = "valid"
    UNKNOWN = "unknown"
    """The public key is not known here, or the cryptography is not installed."""
    INVALID = "invalid"


class People(Protocol):
    """The people whose keys are known here."""

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of answers that are enough for `by: person`."""

    def judge(self, signature: Signature, text: bytes, time: int) -> Verdict:
        """Whether the signature covers the text, with a key that its person had at this time, in milliseconds."""


class NoPeople:
    """Nobody is known: no signature can be verified."""

    kinds: Collection[str] = SIGNED_KINDS

    def judge(self, signature: Signature, text: bytes, time: int) -> Verdict:  # noqa: ARG002 - as `People`
        return Verdict.UNKNOWN


def text_to_sign(run: Run, *, agrees: bool, note: str = "", answers: Context | None = None) -> bytes:
    """The text that a person signs to answer the open question of a run.

    It depends on stored data alone, not on the wording of the question, so that every later version can verify it.
    """
    reason = run.open_question.reason if run.open_question is not None else ""
    output, changes = _submitted(run, reason)
    content: dict[str, Json] = {
        "run": run.id,
        "workflow": run.hash,
        "step": run.current,
        "question": run.question_id,
        "reason": reason,
        "subject": hashlib.sha256(_subject(run, reason, output)).hexdigest(),
        "context": hashlib.sha256(_canonical([run.context, changes])).hexdigest(),
        "agrees": agrees,
        "note": note,
        "answers": answers or {},
    }
    return DOMAIN.encode() + b"\n" + _canonical(content)


def text_of_answer(run: Run, answer: ConfirmationGiven | ConfirmationDenied) -> bytes:
    """The text that the signature of an answer to the open question of a run covers."""
    answers = answer.answers if isinstance(answer, ConfirmationGiven) else {}
    return text_to_sign(run, agrees=isinstance(answer, ConfirmationGiven), note=answer.note, answers=answers)


class SignedAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `text_to_sign` says."""

    run: str
    workflow: str
    step: str
    question: str
    reason: str
    subject: str
    context: str
    agrees: bool
    note: str
    answers: dict[str, Json]


def parse_signed(text: str) -> SignedAnswer:
    """What a person signed. Raises `ValueError` for another text than `text_to_sign` makes."""
    domain, _, content = text.partition("\n")
    try:
        answer = msgspec.json.decode(content, type=SignedAnswer)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    if domain != DOMAIN or _canonical(msgspec.to_builtins(answer)) != content.encode():
        raise ValueError("it is not the text of an answer")
    return answer


def _submitted(run: Run, reason: str) -> tuple[str, Context]:
    """The output that the question is about, and the changes of the context that come with it if it is accepted."""
    if reason == "unproved" and run.proving is not None:
        return run.proving.request.output, run.proving.request.context
    last = run.last_submission
    return last.output if last is not None else "", last.context if isinstance(last, OutputRefused) else {}


def _subject(run: Run, reason: str, output: str) -> bytes:
    """What the question is about: the arguments of the call, the prompt as its author wrote it, or the output."""
    if reason == "call":
        return _canonical(run.call_arguments)
    if reason == "before":
        return _canonical([run.step.title, run.step.prompt])
    return output.encode()


def _canonical(value: Json) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse_unproven(people: People, run: Run, answer: ConfirmationGiven | ConfirmationDenied, time: int) -> None:
    """Raises unless an answer to the open question of a run counts: `RunStateError` for a kind that is not enough for
    `by: person`, `SecurityError` for a signature that does not verify.
    """
    if run.needs_person and answer.how not in people.kinds:
        raise RunStateError(
            f"Step '{run.current}' needs a person who proves to be one, and an answer{describe_kind(answer.how)} is "
            f"not enough (setting person_confirmation). {HOW_TO_PROVE}",
            runId=run.id,
            stepId=run.current,
        )
    if answer.signature is None and answer.how not in SIGNED_KINDS:
        return
    verdict = _judge(people, run, answer, time)
    if verdict is not Verdict.VALID:
        raise SecurityError(
            f"The signature of the answer to step '{run.current}' is {verdict}: it must be made for this question "
            "with a key of a person who is known here. Read the question again, and sign it again.",
            runId=run.id,
            stepId=run.current,
        )


HOW_TO_PROVE: Final = (
    "The person signs the answer: with a passkey in the console, or with their key in their own terminal."
)


def verify(people: People, run: Run, record: Record) -> Run:
    """The run before a stored answer, with a sentence in `unverified` if the answer is not proven. Raises
    `SecurityError` for an answer whose signature is wrong or missing: it was not written by this server.
    """
    answer = record.event
    if not isinstance(answer, ConfirmationGiven | ConfirmationDenied):
        return run
    name = f"The answer to step '{answer.step_id}' (event {record.sequence})"
    if answer.signature is None and answer.how not in SIGNED_KINDS:
        if not run.needs_person or answer.how in people.kinds:
            return run
        doubt = f"{name} is not signed: it was given{describe_kind(answer.how) or ' by an older version'}."
        return msgspec.structs.replace(run, unverified=(*run.unverified, doubt))
    match _judge(people, run, answer, record.time):
        case Verdict.VALID:
            return run
        case Verdict.UNKNOWN:
            signer = f"'{answer.signature.person}' (key {answer.signature.key})" if answer.signature else "nobody"
            doubt = f"{name} is signed by {signer}, whose public key is not known here: it is not verified."
            return msgspec.structs.replace(run, unverified=(*run.unverified, doubt))
        case Verdict.INVALID:
            raise SecurityError(
                f"{name} of run '{run.id}' does not match its signature: one of them, or the question, was changed "
                "after it was given.",
                runId=run.id,
            )


def _judge(people: People, run: Run, answer: ConfirmationGiven | ConfirmationDenied, time: int) -> Verdict:
    signature = answer.signature
    if signature is None or signature.method != answer.how or answer.question != run.question_id:
        return Verdict.INVALID
    if answer.step_id != run.current:
        return Verdict.INVALID
    return people.judge(signature, text_of_answer(run, answer), time)
