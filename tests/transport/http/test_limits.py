"""How much is taken over HTTP: names, origins, rates."""

import time

import pytest

from workflowlookup import shares
from workflowlookup.shares import TokenBuckets
from workflowlookup.transport.http.rate_limits import default_hosts
from workflowlookup.web import is_allowed_host, is_allowed_origin, split_address

LOCAL = default_hosts("127.0.0.1")


@pytest.mark.parametrize(
    ("host", "allowed", "expected"),
    [
        ("127.0.0.1:8787", LOCAL, True),
        ("LOCALHOST:8787", LOCAL, True),
        ("localhost", LOCAL, True),
        ("[::1]:8787", LOCAL, True),
        ("[::1]", LOCAL, True),
        ("::1", LOCAL, False),
        ("localhost.evil.example", LOCAL, False),
        ("localhost:8787@evil.example", LOCAL, False),
        ("evil.example:8787", LOCAL, False),
        ("", LOCAL, False),
        ("10.0.0.5:8787", default_hosts("10.0.0.5"), True),
        ("10.0.0.6:8787", default_hosts("10.0.0.5"), False),
        ("[fd00::5]:8787", default_hosts("fd00::5"), True),
        ("[FD00::5]", default_hosts("[fd00::5]"), True),
        ("[fd00::6]:8787", default_hosts("fd00::5"), False),
        ("flows.example", (*LOCAL, "flows.example"), True),
        ("flows.example:443", (*LOCAL, "flows.example"), True),
        ("flows.example:444", (*LOCAL, "flows.example:443"), False),
        ("anything", ("*",), True),
    ],
)
def test_allowed_hosts(host: str, allowed: tuple[str, ...], expected: bool) -> None:
    assert is_allowed_host(host, allowed) is expected


@pytest.mark.parametrize(
    ("origin", "allowed", "expected"),
    [
        ("http://localhost:8787", (), True),
        ("https://localhost:8787", (), True),
        ("http://localhost:9999", (), False),
        ("http://localhost:8787.evil.example", (), False),
        ("null", (), False),
        ("https://tools.example", ("https://tools.example",), True),
        ("https://tools.example:8443", ("https://tools.example",), False),
        ("https://tools.example:8443", ("https://tools.example:8443",), True),
        ("https://tools.example:443", ("https://tools.example",), True),
        ("https://tools.example", ("HTTPS://tools.example:443/",), True),
        ("http://tools.example:443", ("https://tools.example",), False),
        ("http://[::1]:9000", ("http://[::1]",), False),
        ("http://[::1]:80", ("http://[::1]",), True),
        ("tools.example", ("https://tools.example",), False),
        ("null", ("https://tools.example",), False),
        ("http://tools.example", ("https://tools.example",), False),
        ("https://evil.example", ("*",), True),
    ],
)
def test_allowed_origins(origin: str, allowed: tuple[str, ...], expected: bool) -> None:
    assert is_allowed_origin(origin, "localhost:8787", allowed) is expected


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_a_server_on_loopback_allows_loopback_hosts_only(host: str) -> None:
    assert default_hosts(host) == ("127.0.0.1", "localhost", "[::1]")


def test_a_client_that_waits_may_send_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rate = TokenBuckets(60)

    assert [rate.take("one") for _ in range(60)] == [(0, 0)] * 60
    assert rate.take("one") == (0, 1)
    assert rate.take("other") == (0, 0)
    now[0] += 1.0
    assert rate.take("one") == (0, 0)
    assert rate.take("one") == (0, 1)


def test_a_client_that_is_too_fast_is_delayed_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    rate = TokenBuckets(6_000, max_delay=1.0)

    assert [rate.take("one") for _ in range(shares.BURST)] == [(0, 0)] * shares.BURST
    delays = [rate.take("one") for _ in range(101)]
    assert [round(delay, 2) for delay, _ in delays[:3]] == [0.01, 0.02, 0.03]
    assert delays[-1] == (0, 1)


def test_no_rate_is_no_limit() -> None:
    rate = TokenBuckets(0)

    assert {rate.take("one") for _ in range(1000)} == {(0, 0)}


def test_the_rate_of_inactive_clients_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MAX_CLIENTS", 10)
    rate = TokenBuckets(1)
    for number in range(100):
        rate.take(str(number))

    assert rate.take("0") == (0, 0)
    assert rate.take("99") == (0, 60)


@pytest.mark.parametrize("address", ["", "8787", "localhost", "localhost:", ":8787", "localhost:x", "localhost:70000"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(address)


def test_invalid_addresses() -> None:
    assert split_address("127.0.0.1:8787") == ("127.0.0.1", 8787)
    assert split_address("[::1]:0") == ("[::1]", 0)
