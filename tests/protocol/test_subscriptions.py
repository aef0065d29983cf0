"""Subscriptions to runs, in both eras: who hears of what, and that nobody looks when nobody listens."""

import json
from collections.abc import Callable
from typing import Self, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.memory_client import MemoryClient
from workflowlookup.library.catalog import Catalog
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.store.runs_view import RunsView
from workflowlookup.tools.contract import Services

RUN = "run://one"
RECENT = "runs://recent"


class Runs:
    """The side of the runs that subscriptions see, played by hand: `here` changes a run, `elsewhere` others do."""

    def __init__(self) -> None:
        self.listener: Callable[[str], None] | None = None
        self.others: list[str] = []
        self.looks = 0
        self.problem: Exception | None = None

    def watch(self, listener: Callable[[str], None]) -> Self:
        assert self.listener is None
        if self.problem:
            raise self.problem
        self.listener = listener
        return self

    def changed(self) -> list[str]:
        self.looks += 1
        if self.problem:
            raise self.problem
        others, self.others = self.others, []
        return others

    def close(self) -> None:
        self.listener = None

    def here(self, run_id: str) -> None:
        if self.listener:
            self.listener(run_id)


class SubscribingClient(MemoryClient):
    def __init__(self, version: str | None = "2025-11-25") -> None:
        self.runs = Runs()
        self.connection = Connection(
            Backend(lambda: Services(catalog=Catalog([]), open_runs=lambda: cast("RunsView", self.runs)))
        )
        if version:
            self.ask("initialize", {"protocolVersion": version, "capabilities": {}})

    def ask(self, method: str, params: JsonObject | None = None, identifier: int | str = 1) -> Json:
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        return self.exchange(message)

    def listen(self, identifier: int | str, **notifications: Json) -> Json:
        return self.ask("subscriptions/listen", {"notifications": notifications, "_meta": ENVELOPE}, identifier)

    def cancel(self, identifier: int | str) -> None:
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": identifier}}
        self.connection.handle(json.dumps(message).encode())

    def heard(self) -> list[tuple[str, str | None, Json]]:
        """What came since the last time: method, address and subscription."""
        messages = self.sent()
        subscription = "io.modelcontextprotocol/subscriptionId"
        return [
            (
                m["method"].removeprefix("notifications/"),
                m["params"].get("uri"),
                m["params"].get("_meta", {}).get(subscription),
            )
            for m in messages
        ]


def updated(address: str, subscription: Json = None) -> tuple[str, str, Json]:
    return ("resources/updated", address, subscription)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_subscriber_is_notified_of_own_changes_at_once_and_of_others_at_the_next_poll(version: str) -> None:
    client = SubscribingClient(version)

    assert client.ask("resources/subscribe", {"uri": RUN})["result"] == {}
    client.runs.here("one")
    client.runs.here("two")
    assert client.heard() == [updated(RUN)]
    client.runs.others = ["two", "one", "one"]
    client.connection.poll()

    assert client.heard() == [updated(RUN)]


def test_the_list_of_recent_runs_changes_with_every_run() -> None:
    client = SubscribingClient()
    client.ask("resources/subscribe", {"uri": RECENT})
    client.runs.here("one")
    assert client.heard() == [updated(RECENT)]
    client.runs.others = ["two", "three"]
    client.connection.poll()

    assert client.heard() == [updated(RECENT)]


def test_a_call_that_changes_a_run_twice_is_announced_once() -> None:
    client = SubscribingClient()
    client.ask("resources/subscribe", {"uri": RUN})
    client.runs.here("one")
    client.runs.here("one")

    assert client.heard() == [updated(RUN)]


def test_the_journal_is_watched_from_the_first_to_the_last_subscription() -> None:
    client = SubscribingClient()
    assert not client.connection.needs_polling
    client.connection.poll()
    client.ask("resources/subscribe", {"uri": RUN})
    client.ask("resources/subscribe", {"uri": RECENT})
    client.ask("resources/subscribe", {"uri": RECENT})
    client.listen("a", resourceSubscriptions=[RUN])
    client.listen("b", toolsListChanged=True)
    assert client.connection.needs_polling

    client.ask("resources/unsubscribe", {"uri": RECENT})
    client.ask("resources/unsubscribe", {"uri": "run://never-subscribed"})
    client.cancel("b")
    client.ask("resources/unsubscribe", {"uri": RUN})
    assert client.connection.needs_polling
    client.cancel("a")

    assert not client.connection.needs_polling
    assert client.runs.listener is None
    client.connection.poll()
    assert client.runs.looks == 0
    client.ask("resources/subscribe", {"uri": RUN})
    assert client.connection.needs_polling


def test_a_listen_request_without_announced_uris_watches_nothing() -> None:
    client = SubscribingClient(None)
    client.listen("a", toolsListChanged=True, resourcesListChanged=True, resourceSubscriptions=[])

    assert not client.connection.needs_polling


@pytest.mark.parametrize(
    "address",
    ["workflow://code-review", "run://", "runs://all", "RUN://one", "", "file:///etc/passwd", "run://" + "a" * 300],
)
def test_a_uri_whose_changes_are_not_announced_cannot_be_subscribed_to(address: str) -> None:
    client = SubscribingClient()
    error = client.ask("resources/subscribe", {"uri": address})["error"]
    client.listen("a", resourceSubscriptions=[address, RUN])
    acknowledged = json.loads(client.connection.outbox.pop())

    assert error["code"] == -32602
    assert "subscribe to run://ID or runs://recent" in error["data"]["details"]
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": [RUN]}


def test_since_2026_each_listen_request_is_notified_of_its_own_uris_with_its_own_id() -> None:
    client = SubscribingClient(None)
    client.listen("a", resourceSubscriptions=[RUN, RECENT, RUN])
    client.listen(7, resourceSubscriptions=["run://two"])
    assert [method for method, _, _ in client.heard()] == ["subscriptions/acknowledged"] * 2

    client.runs.here("one")
    client.runs.here("two")

    assert client.heard() == [updated(RUN, "a"), updated(RECENT, "a"), updated("run://two", 7)]
    client.cancel(7)
    client.runs.here("two")
    assert client.heard() == [updated(RECENT, "a")]


def test_since_2026_the_acknowledgement_names_what_is_announced() -> None:
    client = SubscribingClient(None)
    client.listen("a", resourceSubscriptions=[RECENT, RUN], toolsListChanged=True)

    assert json.loads(client.connection.outbox.pop())["params"] == {
        "notifications": {"resourceSubscriptions": [RECENT, RUN]},
        "_meta": {"io.modelcontextprotocol/subscriptionId": "a"},
    }


@pytest.mark.parametrize("addresses", ["run://one", {"uri": RUN}, [5], [RUN, None], True])
def test_since_2026_invalid_uris_are_refused(addresses: Json) -> None:
    client = SubscribingClient(None)

    error = client.listen("a", resourceSubscriptions=addresses)["error"]

    assert error["code"] == -32602
    assert "resourceSubscriptions must be a list" in error["data"]["details"]
    assert client.heard() == []


def test_the_number_of_uris_is_limited() -> None:
    client = SubscribingClient()
    for number in range(100):
        client.ask("resources/subscribe", {"uri": f"run://{number}"})

    assert "at most 100" in client.ask("resources/subscribe", {"uri": "run://more"})["error"]["data"]["details"]
    assert client.ask("resources/subscribe", {"uri": "run://7"})["result"] == {}
    many = client.listen("a", resourceSubscriptions=[f"run://{number}" for number in range(101)])
    assert "at most 100" in many["error"]["data"]["details"]


@pytest.mark.parametrize("params", [None, {}, {"uri": None}, {"uri": 5}])
@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_a_subscription_needs_a_uri(method: str, params: JsonObject | None) -> None:
    assert SubscribingClient().ask(method, params)["error"]["code"] == -32602


def test_each_era_has_its_own_way_to_subscribe() -> None:
    client = SubscribingClient()
    modern = client.ask("resources/subscribe", {"uri": RUN, "_meta": ENVELOPE})
    old = client.ask("subscriptions/listen", {"notifications": {}})

    assert (modern["error"]["code"], old["error"]["code"]) == (-32601, -32601)


def test_subscribing_needs_the_handshake() -> None:
    assert (
        SubscribingClient(None).ask("resources/subscribe", {"uri": RUN})["error"]["message"] == "Server not initialized"
    )


def test_the_end_of_the_connection_ends_streams_with_their_result_and_stops_watching() -> None:
    client = SubscribingClient()
    client.ask("resources/subscribe", {"uri": RUN})
    client.listen("a", resourceSubscriptions=[RUN])
    client.heard()
    client.connection.close()

    (ended,) = (json.loads(message) for message in client.connection.outbox)
    assert (ended["id"], ended["result"]["resultType"]) == ("a", "complete")
    assert not client.connection.needs_polling
    assert client.runs.listener is None


def test_a_failed_poll_of_the_journal_is_logged_once_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = SubscribingClient()
    client.ask("resources/subscribe", {"uri": RUN})
    client.runs.problem = OSError("no such device")
    for _ in range(3):
        client.connection.poll()
    assert len(caplog.records) == 1

    client.runs.problem, client.runs.others = None, ["one"]
    client.connection.poll()

    assert client.heard() == [updated(RUN)]


def test_a_watch_that_cannot_begin_refuses_the_subscription() -> None:
    client = SubscribingClient()
    client.runs.problem = OSError("no such device")

    assert client.ask("resources/subscribe", {"uri": RUN})["error"]["code"] == -32603
    assert not client.connection.needs_polling
    client.runs.problem = None
    assert client.ask("resources/subscribe", {"uri": RUN})["result"] == {}


ADDRESS = st.sampled_from([RUN, RECENT, "run://two", "workflow://x"]) | st.text(max_size=9)
MOVE = st.one_of(
    st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), ADDRESS),
    st.tuples(st.just("listen"), st.tuples(st.sampled_from("ab"), st.lists(ADDRESS, max_size=3))),
    st.tuples(st.just("cancel"), st.sampled_from("ab")),
)


@settings(deadline=None)
@given(st.lists(MOVE, max_size=12))
def test_the_journal_is_watched_exactly_while_there_are_subscriptions(
    moves: list[tuple[str, Json]],
) -> None:
    client = SubscribingClient()
    followed: set[str] = set()
    streams: JsonObject = {}
    for what, argument in moves:
        if what == "listen":
            identifier, addresses = argument
            if client.listen(identifier, resourceSubscriptions=addresses) is None:
                acknowledged = json.loads(client.connection.outbox[-1])["params"]["notifications"]
                streams[identifier] = acknowledged.get("resourceSubscriptions", [])
        elif what == "cancel":
            client.cancel(argument)
            streams.pop(argument, None)
        elif "result" in client.ask(f"resources/{what}", {"uri": argument}):
            (followed.add if what == "subscribe" else followed.discard)(argument)

    assert client.connection.needs_polling is bool(followed or any(streams.values()))
    client.heard()
    client.runs.here("one")
    expected = {updated(address) for address in followed & {RUN, RECENT}}
    expected |= {updated(a, key) for key, addresses in streams.items() for a in addresses if a in (RUN, RECENT)}
    assert set(client.heard()) == expected
