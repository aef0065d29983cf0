"""Regular expressions of authors: ECMAScript in, an answer within a time limit out.

The patterns come from documents and are hostile until checked: their length is bounded, and a search that takes too
long raises `TooSlow` instead of hanging the server. All the searches of one request share `SECONDS_PER_REQUEST`, so
that many slow patterns cost no more than a few. A search that cannot take long, by the form of its pattern and the
length of its text, runs without a limit, and a very short one without looking at the clock. The `regex` package is
imported with the first pattern.
"""

import functools
import re
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Final

MAX_PATTERN_LENGTH: Final = 4096
SECONDS_PER_SEARCH: Final = 0.25
SECONDS_PER_REQUEST: Final = 0.5
WORTH_COUNTING: Final = 0.0005
MOST_STEPS_WITHOUT_LIMIT: Final = 3_000_000
MOST_STEPS_WITHOUT_CLOCK: Final = 100_000
FLAGS: Final = "gimsuy"

Search = Callable[[str], bool]


class BadPattern(ValueError):
    """The pattern or its flags do not compile; the text says why."""


class TooSlow(Exception):
    """The search was given up: it took too long, or the searches before it did."""


_remaining: ContextVar[float] = ContextVar("_remaining", default=SECONDS_PER_REQUEST)


def start_budget() -> None:
    """Give the searches that follow, in this thread or task, a new `SECONDS_PER_REQUEST` to share."""
    if _remaining.get() != SECONDS_PER_REQUEST:
        _remaining.set(SECONDS_PER_REQUEST)


@functools.lru_cache(maxsize=512)
def compile_pattern(pattern: str, flags: str = "") -> Search:
    """A function that tells whether the pattern is found in a text.

    Raises `BadPattern` here, and `TooSlow` from the function that it returns.
    """
    import regex  # noqa: PLC0415 - costs 10 ms, and many workflows have no pattern

    unknown = sorted(set(flags) - set(FLAGS))
    if unknown:
        raise BadPattern(f"unknown flag '{unknown[0]}' (known: {' '.join(FLAGS)})")
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise BadPattern(f"longer than {MAX_PATTERN_LENGTH} characters")
    if re.search(r"(?:[*+?]|\{\d+(?:,\d*)?\})\+", _without_escapes(pattern)):
        raise BadPattern("nothing to repeat before '+'")
    options = regex.VERSION0
    for flag, option in (("i", regex.IGNORECASE), ("m", regex.MULTILINE), ("s", regex.DOTALL)):
        if flag in flags:
            options |= option
    try:
        compiled = regex.compile(_from_ecmascript(pattern, multiline="m" in flags), options)
    except (regex.error, RecursionError, OverflowError, ValueError) as problem:
        raise BadPattern(str(problem) or type(problem).__name__) from problem
    find = compiled.match if "y" in flags else compiled.search
    limit = SECONDS_PER_SEARCH
    longest_without_clock = _longest_harmless_text(pattern, MOST_STEPS_WITHOUT_CLOCK)
    longest_without_limit = _longest_harmless_text(pattern, MOST_STEPS_WITHOUT_LIMIT)

    def search(text: str) -> bool:
        if len(text) <= longest_without_clock:
            return find(text) is not None
        remaining = _remaining.get()
        if remaining <= 0:
            raise TooSlow
        started = perf_counter()
        try:
            if len(text) <= longest_without_limit:
                return find(text) is not None
            return find(text, timeout=limit if remaining > limit else remaining) is not None
        except TimeoutError as problem:
            raise TooSlow from problem
        finally:
            spent = perf_counter() - started
            if spent > WORTH_COUNTING:
                _remaining.set(remaining - spent)

    return search


def _longest_harmless_text(pattern: str, most_steps: int) -> int:
    """How long a text may be for any search to end within so many steps; 0 when that cannot be told.

    A quantifier on a single character or class can stop at any place of the text, an alternative doubles the ways to
    match, each way is as long as the pattern, and a search begins anywhere; so there are at the most
    length of pattern * 2 ** alternatives * length of text ** (quantifiers + 1) steps. Quantified groups, references and
    assertions multiply in ways that are not worth following.
    """
    plain = _without_escapes(pattern)
    if "(?" in plain or "\\" in plain or re.search(r"\)[*+?{]", plain):
        return 0
    quantifiers = sum(map(plain.count, "*+?{"))
    steps = (most_steps // (len(plain) + 1)) >> min(plain.count("|"), 64)
    return int(steps ** (1 / (quantifiers + 1)))


def _without_escapes(pattern: str) -> str:
    """The pattern with escapes and classes as one letter each and groups plain; references stay as backslashes."""
    plain = re.sub(r"\\[pP]\{[^}]*\}", "x", pattern)
    plain = re.sub(r"\\[1-9k]", "\\\\", plain)
    plain = re.sub(r"\\[^\\]|\[(?:\\.|[^\]\\])*\]", "x", plain, flags=re.DOTALL)
    return re.sub(r"\(\?(?::|P?<\w+>)", "(", plain)


_TOKEN: Final = re.compile(
    r"""\\u\{(?P<code>[0-9A-Fa-f]{1,6})\}   # \u{1F600}
      | \\k<(?P<name>\w+)>                  # a reference to a named group
      | \\[pP]\{[^}]*\}                       # a property of characters
      | (?P<letter>\\g)                     # no escape in ECMAScript, a reference here
      | \\.                                 # any other escape
      | (?P<brace>\{(?!\d+(?:,\d*)?\}))     # no quantifier in ECMAScript, fuzzy matching here
      | \[\^\]                              # any character at all
      | \[\]                                # no character
      | (?P<open>\[) | (?P<close>\])
      | (?P<end>\$)""",
    re.VERBOSE | re.DOTALL,
)


def _from_ecmascript(pattern: str, *, multiline: bool) -> str:
    """The same pattern for `regex`: `$` means the very end, and JavaScript's own escapes are rewritten."""
    inside_class = False

    def rewrite(token: re.Match[str]) -> str:
        nonlocal inside_class
        text = token[0]
        if token["code"]:
            return f"\\U{int(token['code'], 16):08X}"
        if token["open"]:
            inside_class, was_inside = True, inside_class
            return "\\[" if was_inside else "["
        if token["close"]:
            inside_class = False
            return text
        if inside_class:
            return text
        if token["name"]:
            return f"(?P={token['name']})"
        if token["letter"]:
            return "g"
        if token["brace"]:
            return r"\{"
        if token["end"]:
            return "$" if multiline else r"\Z"
        return {"[^]": r"[\s\S]", "[]": "(?!)"}.get(text, text)

    return _TOKEN.sub(rewrite, pattern)
