"""Questions to the person at the client (elicitation): how they are sent, which are open, and how answers are checked.

Up to 2025-11-25 a question is a request of the server (`elicitation/create`), and the call that led to it waits for the
response; other messages are answered meanwhile. Since 2026-07-28 the question is the result of the call, and the answer
comes with the same call sent again. Nothing is stored between the two: the key of the question is signed, so an answer
counts only for exactly this question to exactly this caller. Answers are checked here, before a tool gets them.
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
from workflowlookup.language.formats.schemas import ValueSchema
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.tools.contract import Elicitation, Services

log = logging.getLogger(__name__)

Answer = Mapping[str, Json]
Call = TypeVar("Call")

MAX_QUESTIONS: Final = 64
MAX_LOGGED: Final = 500
"""How many bytes of a client's error are logged."""
TAG_BYTES: Final = 18
ELICITATION_ACTIONS: Final = ("accept", "decline", "cancel")
DISMISSED: Final[Answer] = {"action": "cancel"}
"""The answer if no usable one came: nobody decided."""


class Questions(Generic[Call]):
    """The open questions to a client of the handshake era, each with the call that waits for the answer."""

    def __init__(self, outbox: list[bytes], prefix: str) -> None:
        """`prefix`: of the request ids of questions."""
        self._prefix = prefix
        self._outbox = outbox
        self._open: dict[str, tuple[Call, Elicitation]] = {}
        self._numbers = itertools.count(1)

    def ask(self, call: Call, question: Elicitation) -> None:
        """Send a question; the call waits for its answer."""
        if len(self._open) >= MAX_QUESTIONS:
            raise InvalidParams(f"at most {MAX_QUESTIONS} questions are open at once; answer one first")
        question_id = f"{self._prefix}-{next(self._numbers)}"
        self._open[question_id] = (call, question)
        self._outbox.append(jsonrpc.request(question_id, **elicitation(question)))

    def pop(self, response: jsonrpc.Response) -> tuple[Call, Elicitation] | None:
        """The call and the question that a response answers; None if no such question is open."""
        try:
            question_id = msgspec.json.decode(response.id)
        except msgspec.DecodeError:  # a number out of range
            return None
        return self._open.pop(question_id, None) if isinstance(question_id, str) else None

    def call_of(self, question_id: str) -> Call | None:
        """The call that waits for the answer to the question with this id."""
        return self._open[question_id][0] if question_id in self._open else None

    def withdraw(self, is_cancelled: Callable[[Call], bool]) -> None:
        """Cancel the questions of a call that was cancelled; the call gets no reply."""
        for question_id in [question_id for question_id, (call, _) in self._open.items() if is_cancelled(call)]:
            del self._open[question_id]
            params = {"requestId": question_id, "reason": "the call that led to this question was cancelled"}
            self._outbox.append(jsonrpc.notification("notifications/cancelled", params))

    def clear(self) -> list[Call]:
        """Remove all questions, because nobody can answer them any more. Returns the calls that waited."""
        calls = [call for call, _ in self._open.values()]
        self._open.clear()
        return calls


def elicitation(question: Elicitation) -> dict[str, Json]:
    """A question as the method and params of a request. Without a `mode`, every version shows it as a form."""
    meta = {} if question.meta is None else {"_meta": question.meta}
    params = {"message": question.message, "requestedSchema": question.schema, **meta}
    return {"method": "elicitation/create", "params": params}


def answer_in(response: jsonrpc.Response, question: Elicitation) -> Answer:
    """The answer in a response. An error, or anything that does not answer the question, counts as dismissed."""
    if response.error:
        log.info("the client could not ask its user: %s", response.error[:MAX_LOGGED].decode(errors="replace"))
        return DISMISSED
    try:
        return check_answer(msgspec.json.decode(response.result), question)
    except (InvalidParams, msgspec.DecodeError, RecursionError) as problem:
        log.warning("the client's answer to a question cannot be used: %s", problem)
        return DISMISSED


def signed_key(question: Elicitation, services: Services) -> str:
    """The signed key of a question. Only this server can make it, and it differs for every question and caller.

    Without a signature a client could send an answer to a question that no person was asked.
    """
    access = services.access
    content = msgspec.json.encode([access.kind, access.name, question.key, question.message, question.schema])
    tag = hmac.digest(services.question_secret().encode(), content, hashlib.sha256)
    return f"{question.key}.{base64.urlsafe_b64encode(tag[:TAG_BYTES]).decode()}"


def find_answer(input_responses: Json, question: Elicitation, key: str) -> Answer | None:
    """The answer in the `inputResponses` of a call, by the signed key of the question; None if it is not there.

    Other keys are ignored.
    """
    if input_responses is None:
        return None
    if not isinstance(input_responses, dict):
        raise InvalidParams("inputResponses must be an object")
    answer = input_responses.get(key)
    return None if answer is None else check_answer(answer, question)


def check_answer(answer: Json, question: Elicitation) -> Answer:
    """The answer, if it is valid for this question. Raises `InvalidParams` with what is wrong."""
    if not isinstance(answer, dict):
        raise InvalidParams(f"the answer to '{question.key}' must be an object")
    action = answer.get("action")
    if action not in ELICITATION_ACTIONS:
        raise InvalidParams(f"action in the answer to '{question.key}' must be one of {', '.join(ELICITATION_ACTIONS)}")
    if action != "accept":
        return {"action": action}
    content = answer.get("content")
    content = {} if content is None else content
    unknown = sorted(content.keys() - question.schema["properties"].keys()) if isinstance(content, dict) else []
    if unknown:  # such as the fields of an older form
        raise InvalidParams(
            f"content in the answer to '{question.key}' has '{unknown[0][:100]}', which was not asked for"
        )
    if misfits := ValueSchema(question.schema).misfits(content):
        raise InvalidParams(f"content in the answer to '{question.key}' does not fit: {misfits[0].sentence()}")
    return {"action": action, "content": content}
