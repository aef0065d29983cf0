"""StoredSessions of the handshake era that replicas, the servers at one database, share: each can continue any of them.

The database has the `initialize` message of each session and the resources that its client is subscribed to. A message
that only one replica can handle (the answer to a question that it asked, the cancelling of a call that it answers) is
announced to all of them, and handled by that one.
"""

import contextlib
import hashlib
import logging
import time
from typing import Any, Final

import msgspec

from workflowlookup.access import Access
from workflowlookup.errors import StorageError
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Notification, Request, Response
from workflowlookup.protocol.requests import bounded_capabilities
from workflowlookup.store.replica_bus import MISSED, ReplicaBus
from workflowlookup.store.sessions import StoredSessions, session_key
from workflowlookup.transport.http.sessions import Session, SessionTable

log = logging.getLogger(__name__)

ENDED: Final = "session-ended"
FOLLOWED: Final = "session-followed"
MESSAGE: Final = "session-message"
MAX_PASSED_BYTES: Final = 65_536
"""Of a message that is passed on: enough for the answer to a form."""
MAX_NAME: Final = 200
"""Of a client's name in the stored `initialize`."""
REPORT_SHARE: Final = 1 / 8
"""How often it is recorded that a session is in use, as a share of `idle_seconds`."""
_SUBSCRIBING: Final = ("resources/subscribe", "resources/unsubscribe")


class _Passed(msgspec.Struct, frozen=True):
    """The body of a `MESSAGE` announcement."""

    session: str
    message: str


class ReplicaSessions:
    """The sessions of one replica, as it shares them with the others."""

    def __init__(self, store: StoredSessions, bus: ReplicaBus, idle_seconds: float) -> None:
        self.bus = bus
        self._store = store
        self._idle_seconds = idle_seconds

    def listen(self, table: SessionTable) -> None:
        """Apply what other replicas announce to the sessions in this table."""
        self.bus.listeners.append(lambda topic, body: self._on_announcement(table, topic, body))

    def add(self, session: Session, opening: Request) -> None:
        """Store a session that began here, for the other replicas. Raises `StorageError`."""
        session.key = session_key(session.id)
        params = opening.params if isinstance(opening.params, dict) else {}
        stored: dict[str, Any] = {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": bounded_capabilities(params.get("capabilities", {})),
        }
        if isinstance(about := params.get("clientInfo"), dict):
            stored["clientInfo"] = {"name": str(about.get("name"))[:MAX_NAME], "version": ""}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": stored}
        self._store.open(session.key, _owner(session.access), msgspec.json.encode(message))

    def opening_of(self, session_id: str, access: object) -> Request | None:
        """The `initialize` request of a session of this caller, begun at any replica. Raises `StorageError`."""
        opening = self._store.find(session_key(session_id), _owner(access))
        message = jsonrpc.decode(opening) if opening is not None else None
        return message if isinstance(message, Request) else None

    def follow(self, session: Session) -> None:
        """Subscribe the session to what its client subscribed to at any replica. Raises `StorageError`."""
        session.key = session_key(session.id)
        session.connection.replace_subscriptions(self._store.followed(session.key))

    def share(self, session: Session, request: Request) -> None:
        """Store the subscription that a request answered here has changed, if it has. Raises `StorageError`."""
        if request.method not in _SUBSCRIBING or not isinstance(request.params, dict):
            return
        address = str(request.params.get("uri"))
        if address in session.connection.subscribed_uris:
            self._store.follow(session.key, address)
        else:
            self._store.unfollow(session.key, address)
        self.bus.announce(FOLLOWED, session.key)

    def end(self, session: Session) -> None:
        """End a session at all replicas."""
        with contextlib.suppress(StorageError):  # it expires by itself
            self._store.end(session.key)
            self.bus.announce(ENDED, session.key)

    def report_use(self, table: SessionTable) -> None:
        """Record which sessions are in use here, when that is due, so that they do not expire."""
        now = time.monotonic()
        due = now - self._idle_seconds * REPORT_SHARE
        used = [
            session
            for session in table
            if session.shared_at < due and (session.in_flight or session.used_at > session.shared_at)
        ]
        for session in used:
            session.shared_at = now
        if used:
            with contextlib.suppress(StorageError):  # it is tried again
                self._store.use(session.key for session in used)

    def pass_on(self, session: Session, body: bytes) -> None:
        """Announce a message for the replica that can handle it. Raises `StorageError`."""
        self.bus.announce(MESSAGE, msgspec.json.encode(_Passed(session.key, body.decode())).decode())

    # ── announcements ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_announcement(self, table: SessionTable, topic: str, body: str) -> None:
        if topic == MISSED:
            for session in table:
                if self.opening_of(session.id, session.access) is None:
                    table.end(session)
                else:
                    self.follow(session)
        elif topic == ENDED:
            for session in table.with_key(body):
                table.end(session)
        elif topic == FOLLOWED:
            for session in table.with_key(body):
                self.follow(session)
        elif topic == MESSAGE:
            passed = msgspec.json.decode(body, type=_Passed)
            message = jsonrpc.decode(passed.message.encode())
            for session in table.with_key(passed.session):
                if isinstance(message, Notification | Response) and session.expects(message):
                    session.receive(message)


def _owner(access: object) -> str:
    """Identifies the caller that a session belongs to, by token, name and rights; empty without authentication."""
    if not isinstance(access, Access):
        return ""
    identity = [access.credential, access.name, access.kind, sorted(access.scopes), access.workflows]
    return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()
