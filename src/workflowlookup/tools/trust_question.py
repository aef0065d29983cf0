"""The question to the person at the client whether something that a repository brought may run.

It is asked where it is needed: when a run is started that would do it, and when somebody looks for workflows again.
Only a person answers it, through a form of the client; without one, the refusal says what a person can do.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Json
from workflowlookup.tools.contract import Caller, Elicitation, Services

if TYPE_CHECKING:
    from workflowlookup.runs.run import Run
    from workflowlookup.trust import Entry

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
    services: Services, workflow: Workflow, caller: Caller, start: "Callable[[], Run]"
) -> "Run | Elicitation":
    """A run, or the question whether what it would do may be done. Raises `Untrusted` when the answer is no."""
    if _may_ask(services, caller):
        question = ask_for_trust(services, services.consent.untrusted(workflow.origin, workflow.document), caller)
        if question is not None:
            return question
    return start()


def ask_for_trust(services: Services, entries: "Sequence[Entry]", caller: Caller) -> Elicitation | None:
    """The question about entries; None when there is none, because it was answered or cannot be put."""
    if not entries or not _may_ask(services, caller):
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


def _may_ask(services: Services, caller: Caller) -> bool:
    """Whether there is a person at the client who may decide this. Over HTTP without tokens, it could be anybody."""
    return caller.can_be_asked and services.confirmation != "agent" and services.access.may_trust


def _message(entries: "Sequence[Entry]") -> str:
    from workflowlookup.trust import printed  # noqa: PLC0415 - as above

    lines = ["This project wants to run something on your machine that came with its files. May it?"]
    for entry in entries:
        lines += ["", f"{entry}, in {entry.file!a}:", *(f"    {line}" for line in printed(entry).splitlines())]
        lines += [f"    with the file {path!a} as it is now" for path in entry.programs]
    return "\n".join(lines)
