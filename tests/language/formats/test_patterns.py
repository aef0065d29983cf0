"""Patterns: plain ones are searched in linear time, and mean there what they mean everywhere."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.json_values import Json
from workflowlookup.language.formats import patterns
from workflowlookup.language.formats.patterns import (
    BadPattern,
    Budget,
    TooSlow,
    _backtracking,
    _in_linear_time,
    _means_the_same,
    compile_pattern,
    extract,
)

RECORDED = json.loads((Path(__file__).parent / "ecmascript.json").read_text())
"""What Node.js finds: texts, and for each pattern and flags the numbers of those that match, or None if refused."""

MEANT_WITH_U = re.compile(r"\\(?:[pP]\{[A-Za-z0-9_=]+\}|u\{[0-9A-Fa-f]+\})")
"""Escapes that have their meaning without flag `u`, too."""

PLACES = st.one_of(
    st.sampled_from("abAB 0_-.,:/#'\"\n\r\t\x0b\x1c\x1f\x7fé“ẞµ→\u0130\u0131\u017f\u212a"),
    st.sampled_from([rf"\{letter}" for letter in "dDwWsSnrt./-^$[]{}()*+?|\\ &~#"]),
    st.builds(
        "[{}{}]".format,
        st.sampled_from(["", "^"]),
        st.lists(
            st.sampled_from(
                [
                    *"abAB09_ .,^$|(){}*+?:-#é\u017f\u212a",
                    "a-c",
                    "a-é",
                    "é-⛄",
                    "A-z",
                    *r"\d \w \s \W \n \] \[ \- \\".split(),
                ]
            )
        ).map("".join),
    ),
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??", "{1,3}?"])
PATTERNS = st.recursive(
    st.one_of(st.builds("{}{}".format, PLACES, REPEATS), st.sampled_from(["^", "$", r"\b", r"\B", "|"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.builds("{}{}){}".format, st.sampled_from(["(", "(?:"]), inner, st.sampled_from(["", "?", "??"])),
    ),
    max_leaves=8,
)
TEXTS = st.text(alphabet="abABiIkKsSzZ 09_-.,:/#'\"\n\r\t\x0b\x0c\x1c\x1f\x7f[]{}()^$*+?|\\&~", max_size=12)


@given(pattern=PATTERNS, flags=st.sampled_from(["", "i", "m", "s", "ims"]), text=TEXTS)
def test_both_engines_agree(pattern: Json, flags: str, text: str) -> None:
    search = _in_linear_time(pattern, flags)
    if search is not None and _means_the_same(flags, text):
        assert search(text) == (_backtracking(pattern, flags)(text) is not None)


def matches(pattern: str, flags: str) -> list[int] | None:
    try:
        search = compile_pattern(pattern, flags, Budget())
    except BadPattern:
        return None
    return [number for number, text in enumerate(RECORDED["texts"]) if search(text, Budget())]


def matches_by_backtracking(pattern: str, flags: str) -> list[int] | None:
    try:
        search = _backtracking(pattern, flags)
    except BadPattern:
        return None
    return [number for number, text in enumerate(RECORDED["texts"]) if search(text) is not None]


@pytest.mark.parametrize("matches_pattern", [matches, matches_by_backtracking])
@pytest.mark.parametrize("flags", ["", "i", "m", "s", "u"])
def test_a_pattern_means_what_it_means_in_ecmascript(
    flags: str, matches_pattern: Callable[..., list[int] | None]
) -> None:
    cases = [
        case for case in RECORDED["cases"] if case[1] == flags and (flags == "u" or not MEANT_WITH_U.search(case[0]))
    ]

    assert len(cases) > 190
    assert [[pattern, flags, matches_pattern(pattern, flags)] for pattern, _, _ in cases] == cases


@pytest.mark.parametrize(
    ("pattern", "flags", "text"),
    [
        ("(?i)done", "", "DONE"),
        ("(?ms)^b.", "", "a\nb\n"),
        ("(?i:a)b", "", "Ab"),
        ("(?-i:a)b", "i", "aB"),
        ("(?s:.)$", "", "\n"),
        ("(?P<q>['\"])x(?P=q)", "", "'x'"),
        (r"\-", "u", "-"),
        (r"^\u{1F600}\p{Lu}[\p{L}]$", "", "\N{GRINNING FACE}\u00c9x"),
        ("^.$", "", "\N{GRINNING FACE}"),
    ],
)
def test_syntax_of_other_dialects_is_accepted_if_it_is_clear(pattern: str, flags: str, text: str) -> None:
    assert compile_pattern(pattern, flags, Budget())(text, Budget())


@pytest.mark.parametrize(
    "pattern", ["a(?i)b", "(?>a)", "(?R)", "(?(1)a|b)", "(?|a|b)", "(*FAIL)", "(?<n>a)(?<n>b)", "^*"]
)
def test_syntax_that_only_other_dialects_have_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compile_pattern(pattern, "", Budget())


@pytest.mark.parametrize("pattern", [r"\S" * 2_048, "[" + r"\S" * 2_000 + "]", "^" * 4_000, r"\b" * 2_000])
def test_expanded_sets_are_limited(pattern: str) -> None:
    with pytest.raises(BadPattern, match="too many sets of characters"):
        compile_pattern(pattern, "m", Budget())


def test_a_group_that_did_not_match_gives_no_value() -> None:
    assert extract(r"(a)?b\1(c)", "", "bc", Budget()) is None


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        (r"\bdone in \d+(?:\.\d+)? ?m?s\b", "i"),
        (r"^#{1,6} .*(?:plan|steps?)$", "im"),
        (r"[\w.-]+\.(?:py|ts):\d+", ""),
        ("(?:->|→) ?[„é]", "i"),
    ],
)
def test_a_plain_pattern_is_searched_in_linear_time(pattern: str, flags: str) -> None:
    assert _in_linear_time(pattern, flags) is not None


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        ("(a+)+$", ""),
        (r"(a)\1", ""),
        ("(?=a)b", ""),
        ("a", "y"),
        ("[a[b]c]", ""),
        ("[a&&b]", ""),
        ("[+--]", ""),
        ("[]a]", ""),
        (r"\a\q", ""),
        (r"\<a\>", ""),
        ("a{,2}", ""),
        ("\N{LATIN SMALL LETTER DOTLESS I}", "i"),
        ("[a-\N{SNOWMAN}]", "i"),
    ],
)
def test_patterns_on_which_engines_may_differ_use_the_other_engine(pattern: str, flags: str) -> None:
    assert _in_linear_time(pattern, flags) is None


@pytest.mark.parametrize("pattern", ["a++", "(?:a)++", r"(a)\1++", r"\d{2}+", "[a+]*+"])
def test_a_quantifier_cannot_be_repeated(pattern: str) -> None:
    with pytest.raises(BadPattern, match="nothing to repeat"):
        compile_pattern(pattern, "", Budget())


def test_the_other_engine_is_imported_only_when_it_is_needed() -> None:
    program = """
import sys
from workflowlookup.language.formats.patterns import Budget, compile_pattern
budget = Budget()
search = compile_pattern("[a-z]+ done", "i", budget)
print(search("All done", budget), "regex" in sys.modules, search("é: all done", budget), "regex" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    assert done.stdout == "True False True True\n"


def test_a_spent_budget_does_not_affect_another() -> None:
    slow, text = "(a|aa)+$", "a" * 50_000 + "b"
    used_up = Budget()
    for _ in range(3):
        with pytest.raises(TooSlow):
            compile_pattern(slow, "", used_up)(text, used_up)
    with pytest.raises(TooSlow):
        compile_pattern("(é)+ never compiled before", "", used_up)

    fresh = Budget()
    assert compile_pattern("(é)+ never compiled before", "", fresh)("é never compiled before", fresh)


@pytest.mark.parametrize("before", range(195, 205))
@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("b{2}c?", "bb"),
        ("[b\\]c]+?", "]"),
        (r"\x62\u0063\u{64}", "bcd"),
        ("(?<name>b)\\k<name>", "bb"),
        ("(?:b|c)*d", "bcbd"),
        (r"(?<=a)b(?=c)c", "bc"),
        (r"\p{Lu}\.", "\u00c9."),
    ],
)
def test_a_long_pattern_means_the_same_as_a_short_one(before: int, part: str, text: str) -> None:
    budget = Budget()
    search = compile_pattern("^" + "a" * before + part + "$", "u", budget)

    assert search("a" * before + text, budget)
    assert not search("a" * before + text + "\u00e9", budget)
    assert not search("a" * (before - 1) + "\u00e9" + text, budget)


def test_a_long_text_as_a_pattern_is_searched_at_once() -> None:
    budget = Budget()

    assert compile_pattern("a" * 4_000, "", budget)("\u00e9" + "a" * 5_000, budget)
    budget.charge(patterns.STEPS_PER_CLOCK_READ + 1)  # and there is time left


def test_compiled_patterns_are_only_in_our_caches() -> None:
    import regex._main as engine

    compile_pattern("(?=only-here)x", "", Budget())

    assert (engine._cache, engine._named_args, engine._locale_sensitive) == ({}, {}, {})
