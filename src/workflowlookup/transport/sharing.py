"""Sessions of the handshake era among servers at one database: each of them can go on with what another began.

What matters of a session is kept beside the runs: how its client introduced itself, and the addresses that it follows.
What only one server can use (the answer to its question, the cancelling of a call that it works on) is passed on to
whoever that is.
"""

import contextlib
import hashlib
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.access import Access
from workflowlookup.errors import StorageError
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Message, Notification, Request, Response
from workflowlookup.runs.sessions import Sessions, key_of
from workflowlookup.transport.link import Link

if TYPE_CHECKING:
    from workflowlookup.runs.neighbours import Neighbours

log = logging.getLogger(__name__)

ENDED: Final = "session-ended"
FOLLOWED: Final = "session-followed"
MESSAGE: Final = "session-message"
MISSED: Final = "missed"
"""As `runs.neighbours` has it: anything may have been said."""
MOST_PASSED: Final = 65_536
"""How long a message may be that is passed on, in bytes: the answer to a form, no more."""
MOST_KEPT: Final = 8_192
"""How much a client may say of itself that other servers hear of, in bytes."""
_SUBSCRIBING: Final = ("resources/subscribe", "resources/unsubscribe")


class Passed(msgspec.Struct, frozen=True):
    """A message for whoever has something open that it is about."""

    session: str
    message: str


class Sharing:
    """What one server tells the others of its sessions, and hears of theirs."""

    def __init__(self, sessions: Sessions, neighbours: "Neighbours") -> None:
        self.neighbours = neighbours
        self._sessions = sessions

    def keep(self, session: str, access: object, opening: Request) -> None:
        """A session has begun here. One that cannot be kept is known to this server alone."""
        params = _essence(opening.params if isinstance(opening.params, dict) else {})
        told = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        try:
            self._sessions.open(key_of(session), _owner(access), msgspec.json.encode(told))
        except StorageError as problem:
            log.warning("other servers do not know of a session: %s", problem)

    def find(self, session: str, access: object) -> Request | None:
        """How a session of this caller was begun. Raises `StorageError`."""
        opening = self._sessions.find(key_of(session), _owner(access))
        message = jsonrpc.decode(opening) if opening is not None else None
        return message if isinstance(message, Request) else None

    def is_over(self, session: str, link: Link) -> bool:
        """Whether a session was ended. Raises `StorageError`."""
        return self._sessions.find(key_of(session), _owner(link.access)) is None

    def follow(self, link: Link) -> None:
        """Have a client hear of what it follows, whoever it said that to. Raises `StorageError`."""
        link.connection.follow(self._sessions.followed(link.key))

    def note(self, link: Link, request: Request) -> None:
        """A request was answered here: what others must know of it. Raises `StorageError`."""
        if request.method not in _SUBSCRIBING or not isinstance(request.params, dict):
            return
        address = str(request.params.get("uri"))
        if address in link.connection.followed:
            self._sessions.follow(link.key, address)
        else:
            self._sessions.unfollow(link.key, address)
        self.neighbours.announce(FOLLOWED, link.key)

    def end(self, session: str) -> None:
        """The client has ended it, for all servers."""
        key = key_of(session)
        with contextlib.suppress(StorageError):  # it ends by itself when nobody uses it
            self._sessions.end(key)
            self.neighbours.announce(ENDED, key)

    def use(self, links: Collection[Link]) -> None:
        """These are in use here."""
        with contextlib.suppress(StorageError):  # the next time
            self._sessions.use(link.key for link in links)

    def pass_on(self, link: Link, body: bytes) -> None:
        """Give a message to the server that it is for. Raises `StorageError`."""
        self.neighbours.announce(MESSAGE, msgspec.json.encode(Passed(link.key, body.decode())).decode())


def is_for_another(link: Link, message: Message) -> bool:
    """Whether a message is about something that is not open here: then it is at another server, or nowhere."""
    if isinstance(message, Response):
        return not link.has_asked(msgspec.json.decode(message.id))
    if isinstance(message, Notification) and message.method == "notifications/cancelled":
        cancelled = message.params.get("requestId") if isinstance(message.params, dict) else None
        return isinstance(cancelled, (int, str)) and not link.has_open(cancelled)
    return False


def _essence(params: dict[str, Any]) -> dict[str, Any]:
    """What a client said of itself, without what nobody asks about when it is long."""
    capabilities, about = params.get("capabilities"), params.get("clientInfo")
    if len(msgspec.json.encode(capabilities)) > MOST_KEPT and isinstance(capabilities, dict):
        capabilities = {"elicitation": {}} if "elicitation" in capabilities else {}
    if len(msgspec.json.encode(about)) > MOST_KEPT and isinstance(about, dict):
        about = {"name": str(about.get("name"))[:200], "version": ""}
    told = {"protocolVersion": params.get("protocolVersion"), "capabilities": capabilities}
    return told if about is None else {**told, "clientInfo": about}


def _owner(access: object) -> str:
    """Who a session belongs to: whoever may the same under the same name."""
    if not isinstance(access, Access):
        return ""
    who = [access.name, access.kind, sorted(access.scopes), access.workflows]
    return hashlib.sha256(msgspec.json.encode(who)).hexdigest()
