"""Questions to the person at the client: how they are put, which are open, and whether an answer is one.

Up to 2025-11-25 a question is a request of ours (`elicitation/create`) and the call that led to it waits for the
response; other messages are answered meanwhile. Since 2026-07-28 the question is the call's result, the answer comes
with the same call sent again, and nothing is remembered: the key of the question is signed, so that an answer counts
only where this very question was put to this very caller. Either way the answer is checked here, before a tool sees it.
"""

import base64
import hashlib
import hmac
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.schemas import ValueSchema
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.tools.contract import Elicitation, Services

log = logging.getLogger(__name__)

Answer = Mapping[str, Json]
Call = TypeVar("Call")

MAX_QUESTIONS: Final = 64
MOST_LOGGED: Final = 500
TAG_BYTES: Final = 18
ACTIONS: Final = ("accept", "decline", "cancel")
DISMISSED: Final[Answer] = {"action": "cancel"}
"""Nobody decided: what counts as the answer when none came that can be used."""


class Questions(Generic[Call]):
    """The questions that a client of the handshake era has not answered yet, each with the call that waits for it."""

    def __init__(self, outbox: list[bytes], prefix: str) -> None:
        """`prefix`: of the ids of questions."""
        self._prefix = prefix
        self._outbox = outbox
        self._open: dict[str, tuple[Call, Elicitation]] = {}
        self._numbers = itertools.count(1)

    def put(self, call: Call, ask: Elicitation) -> None:
        """Send a question; the call waits."""
        if len(self._open) >= MAX_QUESTIONS:
            raise InvalidParams(f"at most {MAX_QUESTIONS} questions are open at once; answer one first")
        name = f"{self._prefix}-{next(self._numbers)}"
        self._open[name] = (call, ask)
        self._outbox.append(jsonrpc.request(name, **elicitation(ask)))

    def take(self, response: jsonrpc.Response) -> tuple[Call, Elicitation] | None:
        """What a response is about; None when it answers nothing that is open."""
        try:
            name = msgspec.json.decode(response.id)
        except msgspec.DecodeError:  # a number out of range
            return None
        return self._open.pop(name, None) if isinstance(name, str) else None

    def call_of(self, name: str) -> Call | None:
        """The call that waits for the answer to this question."""
        return self._open[name][0] if name in self._open else None

    def withdraw(self, is_meant: Callable[[Call], bool]) -> None:
        """Take back the questions of a call that was cancelled: it is never answered."""
        for name in [name for name, (call, _) in self._open.items() if is_meant(call)]:
            del self._open[name]
            reason = "the call that led to this question was cancelled"
            self._outbox.append(jsonrpc.notification("notifications/cancelled", {"requestId": name, "reason": reason}))

    def drop(self) -> list[Call]:
        """Forget every question: there is nobody left to answer. The calls that waited for one."""
        calls = [call for call, _ in self._open.values()]
        self._open.clear()
        return calls


def elicitation(ask: Elicitation) -> dict[str, Json]:
    """A question as a request for a form; every version reads one without a mode as just that."""
    about = {} if ask.meta is None else {"_meta": ask.meta}
    return {"method": "elicitation/create", "params": {"message": ask.message, "requestedSchema": ask.schema, **about}}


def answer_in(response: jsonrpc.Response, ask: Elicitation) -> Answer:
    """The answer that a response holds; an error, or what is no answer to the question, counts as dismissed."""
    if response.error:
        log.info("the client could not ask: %s", response.error[:MOST_LOGGED].decode(errors="replace"))
        return DISMISSED
    try:
        return checked(msgspec.json.decode(response.result), ask)
    except (InvalidParams, msgspec.DecodeError, RecursionError) as problem:
        log.warning("the client's answer to a question cannot be used: %s", problem)
        return DISMISSED


def signed_key(ask: Elicitation, services: Services) -> str:
    """The key of a question for the client: nobody else can make it, and it is another for every question and caller.

    Without it a client could answer what nobody was asked, and that would count as a person's word.
    """
    asked = msgspec.json.encode([services.access.kind, services.access.name, ask.key, ask.message, ask.schema])
    tag = hmac.digest(services.question_secret().encode(), asked, hashlib.sha256)
    return f"{ask.key}.{base64.urlsafe_b64encode(tag[:TAG_BYTES]).decode()}"


def given(input_responses: Json, ask: Elicitation, key: str) -> Answer | None:
    """The answer among the `inputResponses` of a call, by the signed key of the question; None when it is not there.

    What was not asked is passed over.
    """
    if input_responses is None:
        return None
    if not isinstance(input_responses, dict):
        raise InvalidParams("inputResponses must be an object")
    answer = input_responses.get(key)
    return None if answer is None else checked(answer, ask)


def checked(answer: Json, ask: Elicitation) -> Answer:
    """What a person answered, if it is an answer to this question. Raises `InvalidParams` saying what is wrong."""
    if not isinstance(answer, dict):
        raise InvalidParams(f"the answer to '{ask.key}' must be an object")
    action = answer.get("action")
    if action not in ACTIONS:
        raise InvalidParams(f"action in the answer to '{ask.key}' must be one of {', '.join(ACTIONS)}")
    if action != "accept":
        return {"action": action}
    content = answer.get("content")
    content = {} if content is None else content
    unknown = sorted(content.keys() - ask.schema["properties"].keys()) if isinstance(content, dict) else []
    if unknown:  # such as an older form's own yes or no: what was not asked is no answer to this
        raise InvalidParams(f"content in the answer to '{ask.key}' has '{unknown[0][:100]}', which was not asked for")
    if misfits := ValueSchema(ask.schema).misfits(content):
        raise InvalidParams(f"content in the answer to '{ask.key}' does not fit: {misfits[0].sentence()}")
    return {"action": action, "content": content}
