"""When a session is told of changes: at once, and seldom enough that hundreds of listeners hold up nobody."""

import types
from typing import cast

import pytest

from workflowlookup.protocol.connection import Connection
from workflowlookup.transport.http import sessions
from workflowlookup.transport.http.metrics import Metrics
from workflowlookup.transport.http.sessions import CHANGES_PAUSE_SECONDS, Session


@pytest.fixture
def connection() -> types.SimpleNamespace:
    return types.SimpleNamespace(needs_polling=True, is_busy=False, poll_seconds=0.4, outbox=[], poll=lambda: None)


@pytest.fixture
def session(connection: types.SimpleNamespace, now: list[float]) -> sessions.Session:
    session = Session(cast("Connection", connection), None, Metrics(), "2026-07-28")
    assert session.must_poll(is_woken=True)
    session.poll()
    return session


def test_a_session_with_subscriptions_is_not_polled_at_every_wake(session: sessions.Session, now: list[float]) -> None:
    assert not session.must_poll(is_woken=True)

    now[0] += CHANGES_PAUSE_SECONDS

    assert session.must_poll(is_woken=True)
    assert not session.must_poll(is_woken=False)


def test_a_session_with_a_pending_call_is_polled_at_every_wake(
    session: sessions.Session, connection: types.SimpleNamespace
) -> None:
    connection.is_busy = True

    assert session.must_poll(is_woken=True)


def test_changes_within_a_moment_are_sent_together(
    session: sessions.Session, connection: types.SimpleNamespace, now: list[float]
) -> None:
    connection.outbox.append(b'{"method":"notifications/resources/updated"}')

    session.send_changes()
    assert len(connection.outbox) == 1

    now[0] += CHANGES_PAUSE_SECONDS
    session.send_changes()
    assert connection.outbox == []
