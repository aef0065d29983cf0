"""Tokens in each kind of store: what is kept of them, and when they are refused."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clocks import FixedClock
from support.json_values import Json, JsonObject
from support.narrowing import not_none
from support.postgres import Postgres
from workflowlookup.errors import JournalUnavailable
from workflowlookup.store.journal import Token
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.sql import SqlJournal
from workflowlookup.store.tokens import OUTAGE_SECONDS, TokenProblem, Tokens

DAY = 86_400


@pytest.fixture(params=["sqlite", "postgres"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "runs.sqlite") if request.param == "sqlite" else str(request.getfixturevalue("database"))


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(1_800_000_000_000)


@pytest.fixture
def make(journal_url: str, clock: FixedClock) -> Iterator[Callable[[], Tokens]]:
    """Opens the tokens as another replica would."""
    opened: list[Tokens] = []

    def make_tokens() -> Tokens:
        opened.append(Tokens(JournalUrl(journal_url).open(), clock=clock))
        return opened[-1]

    yield make_tokens
    for tokens in opened:
        tokens.close()


@pytest.fixture
def tokens(make: Callable[[], Tokens]) -> Tokens:
    return make()


def create(
    tokens: Tokens,
    name: str = "ci-bot",
    scopes: tuple[str] = ("run",),
    workflows: tuple[str] = ("docs-*",),
    seconds: int | None = 30 * DAY,
    **more: Json,
) -> tuple[str, Token]:
    return tokens.create(name, scopes, workflows, seconds=seconds, **more)


def test_a_token_is_valid_at_every_replica(make: Callable[[], Tokens], tokens: Tokens) -> None:
    secret, made = create(tokens, by="ada")
    other = make()

    assert re.fullmatch(r"wl_[A-Za-z0-9_-]{43}", secret)
    assert other.find(secret) == made
    assert made.access.name == "token ci-bot"
    assert made.access.may("run", "docs-guide")
    assert not made.access.may("run", "other")
    assert made.access.kind == "agent"
    assert create(tokens, "ada", is_person=True)[1].access.kind == "person"


def test_only_a_hash_of_a_token_is_stored(tokens: Tokens) -> None:
    secret, made = create(tokens)

    assert isinstance(tokens._journal, SqlJournal)
    rows = tokens._journal.query("SELECT * FROM tokens")

    assert secret not in repr(rows)
    assert secret[11:] not in repr(rows)
    assert secret not in repr(made) + repr(tokens.all_tokens()) + repr(vars(tokens))
    assert "hash" not in Token.__struct_fields__


def test_a_nearly_correct_token_is_refused(tokens: Tokens) -> None:
    secret, made = create(tokens)
    swapped = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    wrong = ["", "wl_", secret + "A", secret[:-1], swapped, secret.upper(), secret[3:], f" {secret}", f"{secret}\n"]
    wrong += [f"wl_{made.id}{'A' * 35}", "wl_" + "A" * 43, "wl_' OR 1=1 --" + "A" * 32, "wl_" + "é" * 43, "\0" * 46]

    assert [one for one in wrong if tokens.find(one) is not None] == []


def test_a_token_is_refused_from_the_moment_it_expires(
    make: Callable[[], Tokens], tokens: Tokens, clock: FixedClock
) -> None:
    secret, _ = create(tokens, seconds=10)
    for_ever, _ = create(tokens, "for-ever", seconds=None)

    clock.now += 9_999
    assert tokens.find(secret) is not None
    clock.now += 1
    assert tokens.find(secret) is None
    assert tokens.find(for_ever) is not None
    assert [token.state(clock.now) for token in tokens.all_tokens() if token.name == "ci-bot"] == ["expired"]


def test_a_token_revoked_at_one_replica_is_refused_at_another(
    make: Callable[[], Tokens], tokens: Tokens, clock: FixedClock
) -> None:
    secret, _ = create(tokens)
    other = make()
    assert other.find(secret) is not None

    tokens.revoke("ci-bot")

    assert other.find(secret) is None
    assert [token.state(clock.now) for token in other.all_tokens()] == ["revoked"]
    with pytest.raises(TokenProblem, match="no token that is not revoked"):
        other.revoke("ci-bot")


def test_access_stays_closed_when_the_last_token_is_revoked(make: Callable[[], Tokens], tokens: Tokens) -> None:
    assert tokens.version() == (0, 0)
    create(tokens)
    assert make().version() == (1, 0)
    tokens.revoke("ci-bot")

    assert make().version() == (1, 1)
    assert not make().any_valid()


def test_a_name_is_free_again_when_its_token_is_revoked(tokens: Tokens) -> None:
    before, _ = create(tokens)
    with pytest.raises(TokenProblem, match="there is a token 'ci-bot' already"):
        create(tokens)
    tokens.revoke("ci-bot")

    after, _ = create(tokens, scopes=("read",))

    assert tokens.find(before) is None
    assert not_none(tokens.find(after)).scopes == ("read",)


def test_of_many_concurrent_creations_of_one_name_one_succeeds(
    make: Callable[[], Tokens], clock: FixedClock, journal_url: str
) -> None:
    made: list[str] = []
    barrier = threading.Barrier(6)

    def create_at_once() -> None:
        tokens = Tokens(JournalUrl(journal_url).open(), clock=clock)
        barrier.wait()
        try:
            made.append(create(tokens)[0])
        except TokenProblem:
            pass
        finally:
            tokens.close()

    make().all_tokens()
    threads = [threading.Thread(target=create_at_once) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"name": "a b"}, "cannot be the name"),
        ({"name": "a\nb"}, "cannot be the name"),
        ({"name": ""}, "cannot be the name"),
        ({"name": "x" * 65}, "cannot be the name"),
        ({"scopes": ()}, "one or more of read, run, confirm, witness, admin"),
        ({"scopes": ("all",)}, "one or more of read, run, confirm, witness, admin"),
        ({"workflows": ()}, "patterns of workflow ids"),
        ({"workflows": ("a b",)}, "patterns of workflow ids"),
        ({"seconds": 0.0}, "must be valid for some time"),
    ],
)
def test_invalid_arguments_are_refused(tokens: Tokens, wrong: JsonObject, problem: str) -> None:
    with pytest.raises(TokenProblem, match=problem):
        create(tokens, **wrong)
    assert tokens.all_tokens() == []


def test_a_token_is_cached_for_a_minute_of_an_outage_and_no_longer(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    elapsed, monotonic = 0.0, time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + elapsed)
    with contextlib.closing(Tokens(PostgresJournal(postgres.create_database(), 1.0))) as tokens:
        secret, made = create(tokens)
        assert tokens.find(secret) == made
        version = tokens.version()
        with postgres.paused():
            elapsed = OUTAGE_SECONDS - 20
            assert tokens.find(secret) == made
            assert tokens.version() == version
            elapsed = OUTAGE_SECONDS
            with pytest.raises(JournalUnavailable):
                tokens.find(secret)
            with pytest.raises(JournalUnavailable):
                tokens.version()

        assert tokens.find(secret) == made
