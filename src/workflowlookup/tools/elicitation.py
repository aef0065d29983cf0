"""Questions to the person at the client: may this file's command run, and do you confirm this step?

Both are forms of MCP elicitation. Trust is asked for when a run that needs it is started, and by `workflow_refresh`.
Without a client that shows forms, the refusal says what the person can do instead.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Json
from workflowlookup.runs.questions import fields_of, question_of
from workflowlookup.runs.run import Run
from workflowlookup.tools.contract import Caller, Elicitation, Services

if TYPE_CHECKING:
    from workflowlookup.trust import TrustEntry

MAX_FORM_CHARACTERS: Final = 6_000
"""A longer question is not asked in a form, which might cut it, but in the terminal."""
TRUST_FORM: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "trust": {
            "type": "boolean",
            "title": "Let it run",
            "description": "Exactly what is shown, whenever a server is started in this project.",
            "default": False,
        }
    },
    "required": ["trust"],
}


def start_trusted(
    services: Services, workflow: Workflow, caller: Caller, start: Callable[[], Run]
) -> Run | Elicitation:
    """Start a run, or ask whether what it calls is trusted. Raises `Untrusted` if the answer was no."""
    if _may_elicit_trust(services, caller):
        elicitation = elicit_trust(services, services.consent.untrusted(workflow.origin, workflow.document), caller)
        if elicitation is not None:
            return elicitation
    return start()


def elicit_trust(services: Services, entries: "Sequence[TrustEntry]", caller: Caller) -> Elicitation | None:
    """The question whether to trust entries; None if it was answered or cannot be asked."""
    if not entries or not _may_elicit_trust(services, caller):
        return None
    from workflowlookup.trust import digests_of  # noqa: PLC0415 - only where something is not trusted

    consent, digests = services.consent, digests_of(entries)
    message = _trust_message(entries)
    key = consent.question_key(digests) if len(digests) == len(entries) and len(message) <= MAX_FORM_CHARACTERS else ""
    if not key:
        return None
    answer = caller.answers.get(key)
    if answer is None:
        return Elicitation(key=key, message=message, schema=TRUST_FORM)
    consent.note_answer(digests)
    content = answer.get("content")
    if answer["action"] == "accept" and isinstance(content, dict) and content.get("trust") is True:
        services.trust(digests, by=f"form of {caller.name}")
    return None


def _may_elicit_trust(services: Services, caller: Caller) -> bool:
    """Whether a person at the client may decide this. Over HTTP without tokens the caller could be anybody."""
    return caller.supports_elicitation and services.confirmation != "agent" and services.access.may_trust


def _trust_message(entries: "Sequence[TrustEntry]") -> str:
    from workflowlookup.trust import redacted_json  # noqa: PLC0415 - as above

    lines = ["This project wants to run something on your machine that came with its files. May it?"]
    for entry in entries:
        lines += ["", f"{entry}, in {entry.file!a}:", *(f"    {line}" for line in redacted_json(entry).splitlines())]
        lines += [f"    with the file {path!a} as it is now" for path in entry.programs]
    return "\n".join(lines)


# ── confirmation of a step ──────────────────────────────────────────────────────────────────────────────────────

_NOTE: Final[Mapping[str, Json]] = {
    "type": "string",
    "title": "Note (optional)",
    "description": "What the agent should know.",
}


def _key_prefix(run_id: str, question_id: str = "") -> str:
    """The prefix of the keys of a question; without a question, of all questions of the run."""
    return f"confirm-{run_id}-{question_id}-" if question_id else f"confirm-{run_id}-"


def question_key(run: Run) -> str:
    """The key of the open form. It is new each time the form is shown, so that an answer to a closed form, or to
    another question, does not count.
    """
    return f"{_key_prefix(run.id, run.question_id)}{run.dismissals}"


def may_elicit(services: Services, run: Run, caller: Caller) -> bool:
    """Whether the open question of a run may be asked through the client."""
    role = run.required_confirmer(services.confirmation)
    can_show = caller.supports_elicitation and all(field.is_flat for field in fields_of(run, Budget()))
    counts = not run.needs_person or "form" in services.person_confirmation
    return role != "agent" and can_show and counts and services.access.may_confirm(role)


def has_answer(run: Run, caller: Caller) -> bool:
    """Whether this call brings an answer to the open question, so that it must not be asked again."""
    return any(key.startswith(_key_prefix(run.id, run.question_id)) for key in caller.answers)


def answered_run(services: Services, run_id: str, caller: Caller) -> Run | None:
    """The run, if this call brings an answer to one of its questions; else None."""
    is_answered = any(key.startswith(_key_prefix(run_id)) for key in caller.answers)
    return services.runs.get(run_id) if is_answered else None


def elicit_confirmation(services: Services, run: Run, caller: Caller) -> Run | Elicitation:
    """The question that the run waits for, or the run after the person's answer.

    If the question was answered elsewhere meanwhile, the run as it is now.
    """
    now = services.runs.get(run.id)
    if now.question_id != run.question_id or now.open_question is None:
        return now
    key = question_key(now)
    answer: Mapping[str, Any] | None = caller.answers.get(key)
    if answer is None:
        return now if has_answer(now, caller) else Elicitation(key=key, message=form_message(now), schema=_form(now))
    identity: dict[str, Any] = {"question": now.question_id, "by": caller.name}
    if answer["action"] == "cancel":
        return services.runs.dismiss(now.id, now.current, **identity)
    if answer["action"] == "decline":
        return services.runs.deny(now.id, now.current, how="form", **identity)
    content: Mapping[str, Json] = answer.get("content") or {}
    names = {field.name for field in fields_of(now, Budget())}
    answers = {name: value for name, value in content.items() if name in names}
    note = str(content.get("note") or "") if "note" not in names else ""
    return services.runs.confirm(now.id, now.current, how="form", note=note, answers=answers, **identity)


def _form(run: Run) -> Mapping[str, Json]:
    """The form that the client shows. To accept it means yes, so its fields are only what the person may add."""
    fields = tuple(fields_of(run, Budget()))
    required = [field.name for field in fields if field.required]
    properties = {field.name: {"type": "string", **field.schema} if field.choices else field.schema for field in fields}
    return {
        "type": "object",
        "properties": {"note": _NOTE, **properties},
        **({"required": required} if required else {}),
    }


def form_message(run: Run) -> str:
    """The text of a form: what its buttons mean, and the question."""
    budget = Budget()
    buttons = f"Accept: yes. Decline: no, {question_of(run, budget).if_not}. Close the form to decide later."
    return f"{buttons}\n\n{question_text(run, budget)}"


def question_text(run: Run, budget: Budget, *, quotes_output: bool = True) -> str:
    """The question to the person, with the prompt or call that it is about, and the output unless its author asks."""
    return question_of(run, budget).message(rest=f"run://{run.id}", quotes_output=quotes_output)
