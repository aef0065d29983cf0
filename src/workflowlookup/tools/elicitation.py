"""The question to the person at the client whether something that a repository brought may run.

It is asked where it is needed: when a run is started that would do it, and when somebody looks for workflows again.
Only a person answers it, through a form of the client; without one, the refusal says what a person can do.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workflowlookup.language.model import Workflow
from workflowlookup.language.patterns import Budget
from workflowlookup.language.values import Json
from workflowlookup.runs.questions import fields_of, question_of
from workflowlookup.runs.run import Run
from workflowlookup.tools.contract import Caller, Elicitation, Services

if TYPE_CHECKING:
    from workflowlookup.trust import TrustEntry

MAX_SHOWN: Final = 6_000
"""How many characters a form shows. What is longer cannot be shown whole, and is left to the terminal."""
FORM: Final[dict[str, Json]] = {
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
    """A run, or the question whether what it would do may be done. Raises `Untrusted` when the answer is no."""
    if _may_elicit_trust(services, caller):
        question = elicit_trust(services, services.consent.untrusted(workflow.origin, workflow.document), caller)
        if question is not None:
            return question
    return start()


def elicit_trust(services: Services, entries: "Sequence[TrustEntry]", caller: Caller) -> Elicitation | None:
    """The question about entries; None when there is none, because it was answered or cannot be put."""
    if not entries or not _may_elicit_trust(services, caller):
        return None
    from workflowlookup.trust import digests_of  # noqa: PLC0415 - only where something is not trusted

    consent, digests = services.consent, digests_of(entries)
    message = _message(entries)
    key = consent.question_key(digests) if len(digests) == len(entries) and len(message) <= MAX_SHOWN else ""
    if not key:
        return None
    answer = caller.answers.get(key)
    if answer is None:
        return Elicitation(key=key, message=message, schema=FORM)
    consent.note_answer(digests)
    content = answer.get("content")
    if answer["action"] == "accept" and isinstance(content, dict) and content.get("trust") is True:
        services.trust(digests, by=f"form of {caller.name}")
    return None


def _may_elicit_trust(services: Services, caller: Caller) -> bool:
    """Whether there is a person at the client who may decide this. Over HTTP without tokens, it could be anybody."""
    return caller.supports_elicitation and services.confirmation != "agent" and services.access.may_trust


def _message(entries: "Sequence[TrustEntry]") -> str:
    from workflowlookup.trust import redacted_json  # noqa: PLC0415 - as above

    lines = ["This project wants to run something on your machine that came with its files. May it?"]
    for entry in entries:
        lines += ["", f"{entry}, in {entry.file!a}:", *(f"    {line}" for line in redacted_json(entry).splitlines())]
        lines += [f"    with the file {path!a} as it is now" for path in entry.programs]
    return "\n".join(lines)


# ── a person's word ─────────────────────────────────────────────────────────────────────────────────────────────

_NOTE: Final[Mapping[str, Json]] = {
    "type": "string",
    "title": "Note (optional)",
    "description": "What the agent should know.",
}


def _key_of(run_id: str, question_id: str = "") -> str:
    """The beginning of the keys of a question; of all questions of a run when none is named."""
    return f"confirm-{run_id}-{question_id}-" if question_id else f"confirm-{run_id}-"


def question_key(run: Run) -> str:
    """The key of the form that is open now. Each time the form is shown it has another, so that the answer to one that
    was closed, or to another question, does not count.
    """
    return f"{_key_of(run.id, run.question_id)}{run.dismissals}"


def may_elicit(services: Services, run: Run, caller: Caller) -> bool:
    """Whether the person is asked through the client."""
    whose = run.required_confirmer(services.confirmation)
    can_show = caller.supports_elicitation and all(field.is_flat for field in fields_of(run, Budget()))
    return whose != "agent" and can_show and services.access.may_confirm(whose)


def has_answer(run: Run, caller: Caller) -> bool:
    """Whether this call has put the open question to the person already."""
    return any(key.startswith(_key_of(run.id, run.question_id)) for key in caller.answers)


def answered_run(services: Services, run_id: str, caller: Caller) -> Run | None:
    """The run as it is now, when this call led to a question that is answered now; None when it did not."""
    is_asked = any(key.startswith(_key_of(run_id)) for key in caller.answers)
    return services.runs.get(run_id) if is_asked else None


def elicit_confirmation(services: Services, run: Run, caller: Caller) -> Run | Elicitation:
    """The run after the person's answer to what it waits for; the question, as long as there is no answer.

    The run as it is now, when the question was answered elsewhere meanwhile.
    """
    now = services.runs.get(run.id)
    if now.question_id != run.question_id or now.open_question is None:
        return now
    key = question_key(now)
    said: Mapping[str, Any] | None = caller.answers.get(key)
    if said is None:
        return now if has_answer(now, caller) else Elicitation(key=key, message=form_message(now), schema=_form(now))
    pinned: dict[str, Any] = {"question": now.question_id, "by": caller.name}
    if said["action"] == "cancel":
        return services.runs.dismiss(now.id, now.current, **pinned)
    if said["action"] == "decline":
        return services.runs.deny(now.id, now.current, how="form", **pinned)
    content: Mapping[str, Json] = said.get("content") or {}
    names = {field.name for field in fields_of(now, Budget())}
    answers = {name: value for name, value in content.items() if name in names}
    note = str(content.get("note") or "") if "note" not in names else ""
    return services.runs.confirm(now.id, now.current, how="form", note=note, answers=answers, **pinned)


def _form(run: Run) -> Mapping[str, Json]:
    """What a client shows: accepting it is a yes, so that it holds only what the person may add."""
    fields = tuple(fields_of(run, Budget()))
    required = [field.name for field in fields if field.required]
    properties = {field.name: {"type": "string", **field.schema} if field.choices else field.schema for field in fields}
    return {
        "type": "object",
        "properties": {"note": _NOTE, **properties},
        **({"required": required} if required else {}),
    }


def form_message(run: Run) -> str:
    """The question for a form, with what its buttons mean."""
    budget = Budget()
    asked = question_of(run, budget)
    buttons = f"Accept: yes. Decline: no, {asked.if_not}. Close the form to decide later."
    return f"{buttons}\n\n{question(run, budget)}"


def question(run: Run, budget: Budget) -> str:
    """What a person is asked, with what it is about, quoted."""
    return question_of(run, budget).message(rest=f"run://{run.id}")
