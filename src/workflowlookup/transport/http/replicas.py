"""Sessions of the handshake era that all replicas (the servers at one database) share: each can continue any session.

The database has the `initialize` message of each session and the resources that its client is subscribed to. A message
that only one replica can handle (the answer to a question that it asked, the cancellation of a call that it answers) is
announced to all replicas, and handled by that one.
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
from workflowlookup.protocol.handshake import bounded_capabilities
from workflowlookup.protocol.jsonrpc import Notification, Request, Response
from workflowlookup.store.replica_bus import MISSED, ReplicaBus
from workflowlookup.store.sessions import StoredSessions, session_key
from workflowlookup.transport.http.sessions import Session, SessionTable

log = logging.getLogger(__name__)

ENDED: Final = "session-ended"
FOLLOWED: Final = "session-followed"
MESSAGE: Final = "session-message"
MAX_FORWARDED_BYTES: Final = 65_536
"""Of a message for another replica: enough for the answer to a form."""
MAX_CLIENT_NAME: Final = 200
"""Of a client's name in the stored `initialize`."""
USE_REPORT_SHARE: Final = 1 / 8
"""How often the use of a session is stored, as a share of `idle_seconds`."""
_SUBSCRIPTION_METHODS: Final = ("resources/subscribe", "resources/unsubscribe")


class _ForwardedMessage(msgspec.Struct, frozen=True):
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

    def add(self, session: Session, initialize: Request) -> None:
        """Store a session that began here, for the other replicas. Raises `StorageError`."""
        session.key = session_key(session.id)
        params = initialize.params if isinstance(initialize.params, dict) else {}
        stored: dict[str, Any] = {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": bounded_capabilities(params.get("capabilities", {})),
        }
        if isinstance(client_info := params.get("clientInfo"), dict):
            stored["clientInfo"] = {"name": str(client_info.get("name"))[:MAX_CLIENT_NAME], "version": ""}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": stored}
        self._store.open(session.key, _owner(session.access), msgspec.json.encode(message))

    def initialize_of(self, session_id: str, access: object) -> Request | None:
        """The `initialize` request of a session of this caller, begun at any replica. Raises `StorageError`."""
        initialize = self._store.find(session_key(session_id), _owner(access))
        message = jsonrpc.decode(initialize) if initialize is not None else None
        return message if isinstance(message, Request) else None

    def load_subscriptions(self, session: Session) -> None:
        """Subscribe the session to the URIs that its client subscribed to at any replica. Raises `StorageError`."""
        session.key = session_key(session.id)
        session.connection.replace_subscriptions(self._store.followed(session.key))

    def store_subscription(self, session: Session, request: Request) -> None:
        """Store the subscription that a request has changed here, if it has. Raises `StorageError`."""
        if request.method not in _SUBSCRIPTION_METHODS or not isinstance(request.params, dict):
            return
        uri = str(request.params.get("uri"))
        if uri in session.connection.subscribed_uris:
            self._store.follow(session.key, uri)
        else:
            self._store.unfollow(session.key, uri)
        self.bus.announce(FOLLOWED, session.key)

    def end(self, session: Session) -> None:
        """End a session at all replicas."""
        with contextlib.suppress(StorageError):  # it expires by itself
            self._store.end(session.key)
            self.bus.announce(ENDED, session.key)

    def report_use(self, table: SessionTable) -> None:
        """Store which sessions are in use here, if that is due, so that they do not expire."""
        now = time.monotonic()
        due = now - self._idle_seconds * USE_REPORT_SHARE
        used_sessions = [
            session
            for session in table
            if session.shared_at < due and (session.in_flight or session.used_at > session.shared_at)
        ]
        for session in used_sessions:
            session.shared_at = now
        if used_sessions:
            with contextlib.suppress(StorageError):  # the next call tries again
                self._store.use(session.key for session in used_sessions)

    def forward(self, session: Session, body: bytes) -> None:
        """Announce a message, for the replica that can handle it. Raises `StorageError`."""
        self.bus.announce(MESSAGE, msgspec.json.encode(_ForwardedMessage(session.key, body.decode())).decode())

    # ── announcements ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_announcement(self, table: SessionTable, topic: str, body: str) -> None:
        if topic == MISSED:
            for session in table:
                if self.initialize_of(session.id, session.access) is None:
                    table.end(session)
                else:
                    self.load_subscriptions(session)
        elif topic == ENDED:
            for session in table.with_key(body):
                table.end(session)
        elif topic == FOLLOWED:
            for session in table.with_key(body):
                self.load_subscriptions(session)
        elif topic == MESSAGE:
            forwarded = msgspec.json.decode(body, type=_ForwardedMessage)
            message = jsonrpc.decode(forwarded.message.encode())
            for session in table.with_key(forwarded.session):
                if isinstance(message, Notification | Response) and session.expects(message):
                    session.receive(message)


def _owner(access: object) -> str:
    """A hash of the caller that a session belongs to: token, name and rights. Empty without authentication."""
    if not isinstance(access, Access):
        return ""
    identity = [access.credential, access.name, access.kind, sorted(access.scopes), access.workflows]
    return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()
