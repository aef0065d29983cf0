"""The directories in which a client works. In the handshake era it is asked once (`roots/list`), and when they change;
since 2026-07-28 with its first call of a tool, whose result is the request.

One of them is the project directory of new runs, unless the settings or a variable of the client name it; then the
client is not asked. A run keeps the directory that it was started in.
"""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.tools.contract import Pending, Result

log = logging.getLogger(__name__)

PREFIX: Final = "wl-roots"
"""Of the ids of these requests."""
KEY: Final = "roots"
"""Of the request in the result of a call. A client says itself where it works, so the key needs no signature."""
MAX_ROOTS: Final = 100
MAX_PATH: Final = 4_096
WAIT_SECONDS: Final = 2.0
"""How long calls of tools wait for the answer."""
ROOTS_KNOWN: Final[Result] = {}
"""The result of a wait for the roots; compared by identity."""


class _Root(msgspec.Struct, frozen=True):
    uri: str


class _Roots(msgspec.Struct, frozen=True):
    roots: list[_Root]


def roots_request() -> dict[str, Json]:
    """The result of a call that asks for the roots of the client, which makes the call again with them."""
    return {"resultType": "input_required", "inputRequests": {KEY: {"method": "roots/list", "params": {}}}}


def paths_in(input_responses: Json) -> tuple[str, ...]:
    """The paths of the roots in the `inputResponses` of a call; none if they are not there, or cannot be used."""
    if not isinstance(input_responses, dict) or KEY not in input_responses:
        return ()
    try:
        return _paths(msgspec.convert(input_responses[KEY], _Roots))
    except msgspec.ValidationError as problem:
        log.info("the client's roots cannot be used: %s", problem)
        return ()


class ClientRoots:
    """The roots of one client; `set_roots` is called with their paths."""

    def __init__(self, set_roots: Callable[[Sequence[str]], None]) -> None:
        self._set_roots = set_roots
        self._numbers = itertools.count(1)
        self._open = ""
        """The id of the last request, until it is answered."""
        self._deadline = 0.0
        self._is_answered = False

    @property
    def is_awaited(self) -> bool:
        """Whether the client has been asked and may still answer in time; a later answer counts for later runs."""
        return bool(self._open) and time.monotonic() < self._deadline

    def hold(self) -> Pending:
        """The result of a call that waits for the answer: `ROOTS_KNOWN`, and then the call is to be made again."""
        return Pending(
            run_id="",
            poll=lambda: None if self.is_awaited else ROOTS_KNOWN,
            progress=lambda: None,
            abandon=lambda _: None,
        )

    @staticmethod
    def is_known(result: object) -> bool:
        """Whether this is the result of a call that was held."""
        return result is ROOTS_KNOWN

    def request(self) -> bytes:
        """The request to the client; an earlier one that is not answered yet no longer counts."""
        self._open = f"{PREFIX}-{next(self._numbers)}"
        self._deadline = time.monotonic() + WAIT_SECONDS
        return jsonrpc.request(self._open, method="roots/list", params={})

    def receive(self, response: jsonrpc.Response) -> bool:
        """Take the answer; False if the response answers something else."""
        try:
            request_id = msgspec.json.decode(response.id)
        except msgspec.DecodeError:
            return False
        if not isinstance(request_id, str) or not request_id.startswith(PREFIX):
            return False
        if request_id != self._open:  # of an earlier request
            return True
        if not response.error:
            try:
                self._set_roots(_paths(msgspec.json.decode(response.result, type=_Roots)))
            except (msgspec.MsgspecError, RecursionError) as problem:
                log.info("the client's roots cannot be used: %s", problem)
        self._open = ""
        return True

    def result_that_asks(self, input_responses: Json) -> Json:
        """The result of a call that asks for the roots first; None once the client has sent any `inputResponses`."""
        if self._is_answered:
            return None
        if input_responses is None:
            return roots_request()
        self._is_answered = True
        self._set_roots(paths_in(input_responses))
        return None


def _paths(answer: _Roots) -> tuple[str, ...]:
    return tuple(path for root in answer.roots[:MAX_ROOTS] if (path := _path(root.uri)))


def _path(uri: str) -> str:
    """The path of a URI of a local file; empty for any other."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    is_local = parts.scheme == "file" and parts.netloc in ("", "localhost") and "%00" not in parts.path
    path = unquote(parts.path) if is_local and "\0" not in parts.path else ""
    return path if path.startswith("/") and len(path) <= MAX_PATH else ""
