"""Scopes and patterns by themselves."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflowlookup.access import LOCAL, LOOPBACK, Access, admits, checked_patterns, checked_scopes

TEXT = st.text("ab.*?", max_size=8)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*", ["docs", "a-b.c"], []),
        ("docs-*", ["docs-", "docs-guide"], ["docs", "my-docs-guide", "DOCS-guide"]),
        ("*-docs", ["my-docs"], ["my-docs-2"]),
        ("release-?", ["release-1"], ["release-", "release-10"]),
        ("a*b*c", ["abc", "a-b-b-c"], ["acb", "ab"]),
        ("ci.*", ["ci.deploy"], ["cixdeploy"]),
        ("docs", ["docs"], ["docs\n", "docs2"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [one for one in yes if not admits((pattern,), one)] == []
    assert [one for one in no if admits((pattern,), one)] == []


@given(TEXT, st.text("ab.", max_size=12))
def test_a_pattern_matches_like_fnmatch(pattern: str, text: str) -> None:
    assert admits((pattern,), text) == by_hand(pattern, text)


def by_hand(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(by_hand(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and by_hand(pattern[1:], text[1:])


def test_no_pattern_takes_long() -> None:
    before = time.monotonic()

    assert not admits(("*a" * 31 + "*b",), "a" * 100_000)

    assert time.monotonic() - before < 5


MANY = [f"docs-{number}" for number in range(101)]


@pytest.mark.parametrize("wrong", [[], ["docs/*"], ["[a-z]*"], ["Docs-*"], ["x" * 65], ["a b"], ["a,b"], MANY])
def test_an_invalid_pattern_is_refused(wrong: list[str]) -> None:
    with pytest.raises(ValueError, match="patterns of workflow ids"):
        checked_patterns(wrong)


@pytest.mark.parametrize("wrong", [[], ["write"], ["read", "Admin"]])
def test_an_unknown_scope_is_refused(wrong: list[str]) -> None:
    with pytest.raises(ValueError, match="one or more of read, run, confirm, witness, admin"):
        checked_scopes(wrong)


def test_every_scope_includes_read_and_no_other() -> None:
    access = Access(name="x", kind="agent", scopes=frozenset({"confirm"}), workflows=("docs-*",))

    assert access.may("read", "docs-a")
    assert access.may("confirm", "docs-a")
    assert not access.may("run", "docs-a")
    assert not access.may("admin")
    assert not access.may("confirm", "other")


def test_the_local_person_may_do_everything() -> None:
    assert all(LOCAL.may(scope, "anything") for scope in ("read", "run", "confirm", "admin"))
    assert LOCAL.sign("Claude Code") == "Claude Code"


@pytest.mark.parametrize(
    ("access", "client", "signed"),
    [
        (Access(name="token ci", kind="agent", scopes=frozenset({"run"})), "curl", "token ci via curl"),
        (Access(name="token ci", kind="agent", scopes=frozenset({"run"})), "", "token ci"),
        (Access(name="token ada", kind="person", scopes=frozenset({"run"})), "curl", "token ada (person) via curl"),
        (
            Access(name="oauth ada", kind="person", scopes=frozenset({"run"})),
            "x via y",
            "oauth ada (person) via x via y",
        ),
        (LOOPBACK, "Claude Code", "loopback via Claude Code"),
        (LOOPBACK, "", "loopback"),
        (LOCAL, "token root", "client token root"),
        (LOCAL, "OAuth ada (person)", "client OAuth ada (person)"),
        (LOCAL, "loopback", "client loopback"),
        (LOCAL, "x via console", "client x via console"),
        (LOCAL, "client x", "client client x"),
        (LOCAL, "tokenizer", "tokenizer"),
    ],
)
def test_the_name_of_a_client_cannot_pretend_to_be_a_caller(access: Access, client: str, signed: str) -> None:
    assert access.sign(client) == signed
