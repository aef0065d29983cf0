"""Sessions of the handshake era among replicas, the servers at one database: each can go on with what another began.

What matters of a session is stored beside the runs: how its client introduced itself, and the addresses that it
follows. What only one replica can use (the answer to its question, the cancelling of a call that it works on) is passed
on to that one.
"""

import contextlib
import hashlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.access import Access
from workflowlookup.errors import StorageError
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Notification, Request, Response
from workflowlookup.runs.sessions import Sessions, key_of
from workflowlookup.transport.sessions import Session, SessionTable

if TYPE_CHECKING:
    from workflowlookup.runs.neighbours import Neighbours

log = logging.getLogger(__name__)

ENDED: Final = "session-ended"
FOLLOWED: Final = "session-followed"
MESSAGE: Final = "session-message"
MISSED: Final = "missed"
"""As `runs.neighbours` has it: anything may have been announced."""
MAX_PASSED_BYTES: Final = 65_536
"""Of a message that is passed on: the answer to a form, no more."""
MAX_STORED_BYTES: Final = 8_192
"""Of what a client says of itself that other replicas get to know."""
USE_PART: Final = 1 / 8
"""Of `idle_seconds`: how often replicas are told that a session is in use."""
_SUBSCRIBING: Final = ("resources/subscribe", "resources/unsubscribe")


class _Passed(msgspec.Struct, frozen=True):
    """A message for the replica that has something open that it is about."""

    session: str
    message: str


class ReplicaSessions:
    """What one replica stores of its sessions for the others, and hears of theirs."""

    def __init__(self, store: Sessions, bus: "Neighbours", idle_seconds: float) -> None:
        self.bus = bus
        self._store = store
        self._idle_seconds = idle_seconds

    def listen(self, table: SessionTable) -> None:
        """Have what other replicas announce followed by the sessions here."""
        self.bus.listeners.append(lambda topic, body: self._hear(table, topic, body))

    def add(self, session: Session, opening: Request) -> None:
        """Store a session that began here. One that cannot be stored is known to this replica alone."""
        session.key = key_of(session.id)
        params = _essence(opening.params if isinstance(opening.params, dict) else {})
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        try:
            self._store.open(session.key, _owner(session.access), msgspec.json.encode(message))
        except StorageError as problem:
            log.warning("other replicas do not know of a session: %s", problem)

    def opening_of(self, session_id: str, access: object) -> Request | None:
        """The message that began a session of this caller, at whichever replica. Raises `StorageError`."""
        opening = self._store.find(key_of(session_id), _owner(access))
        message = jsonrpc.decode(opening) if opening is not None else None
        return message if isinstance(message, Request) else None

    def follow(self, session: Session) -> None:
        """Follow what the client subscribed to, at whichever replica. Raises `StorageError`."""
        session.key = key_of(session.id)
        session.connection.follow(self._store.followed(session.key))

    def share(self, session: Session, request: Request) -> None:
        """Store what others must know of a request that was answered here. Raises `StorageError`."""
        if request.method not in _SUBSCRIBING or not isinstance(request.params, dict):
            return
        address = str(request.params.get("uri"))
        if address in session.connection.followed:
            self._store.follow(session.key, address)
        else:
            self._store.unfollow(session.key, address)
        self.bus.announce(FOLLOWED, session.key)

    def end(self, session: Session) -> None:
        """The client ended a session, for all replicas."""
        with contextlib.suppress(StorageError):  # it ends by itself when nobody uses it
            self._store.end(session.key)
            self.bus.announce(ENDED, session.key)

    def tell_use(self, table: SessionTable) -> None:
        """Tell the others which sessions are in use here, when that is due."""
        now = time.monotonic()
        due = now - self._idle_seconds * USE_PART
        used = [
            session
            for session in table
            if session.shared_at < due and (session.in_flight or session.used_at > session.shared_at)
        ]
        for session in used:
            session.shared_at = now
        if used:
            with contextlib.suppress(StorageError):  # the next time
                self._store.use(session.key for session in used)

    def pass_on(self, session: Session, body: bytes) -> None:
        """Give a message to the replica that it is for. Raises `StorageError`."""
        self.bus.announce(MESSAGE, msgspec.json.encode(_Passed(session.key, body.decode())).decode())

    # ── what others announce ────────────────────────────────────────────────────────────────────────────────────

    def _hear(self, table: SessionTable, topic: str, body: str) -> None:
        if topic == MISSED:
            for session in table:
                if self.opening_of(session.id, session.access) is None:
                    table.end(session)
                else:
                    self.follow(session)
        elif topic == ENDED:
            for session in table.of_key(body):
                table.end(session)
        elif topic == FOLLOWED:
            for session in table.of_key(body):
                self.follow(session)
        elif topic == MESSAGE:
            passed = msgspec.json.decode(body, type=_Passed)
            message = jsonrpc.decode(passed.message.encode())
            for session in table.of_key(passed.session):
                if isinstance(message, Notification | Response) and session.is_waited_for(message):
                    session.hear(message)


def _essence(params: dict[str, Any]) -> dict[str, Any]:
    """What a client said of itself, without what nobody asks about when it is long."""
    capabilities, about = params.get("capabilities"), params.get("clientInfo")
    if len(msgspec.json.encode(capabilities)) > MAX_STORED_BYTES and isinstance(capabilities, dict):
        capabilities = {"elicitation": {}} if "elicitation" in capabilities else {}
    if len(msgspec.json.encode(about)) > MAX_STORED_BYTES and isinstance(about, dict):
        about = {"name": str(about.get("name"))[:200], "version": ""}
    essence = {"protocolVersion": params.get("protocolVersion"), "capabilities": capabilities}
    return essence if about is None else {**essence, "clientInfo": about}


def _owner(access: object) -> str:
    """Who a session belongs to: whoever may the same under the same name."""
    if not isinstance(access, Access):
        return ""
    who = [access.name, access.kind, sorted(access.scopes), access.workflows]
    return hashlib.sha256(msgspec.json.encode(who)).hexdigest()
