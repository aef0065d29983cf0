"""Regular expressions of authors: ECMAScript in, an answer within a time limit out.

The patterns come from documents and are hostile until checked. Their length is bounded, and so is what they compile to:
a pattern is checked here in time linear in its length before an engine sees it. A search that takes too long raises
`TooSlow` instead of hanging the server. What the patterns of one request take, compiled and searched, is taken from its
`Budget`, so that many slow patterns cost no more than a few.

Most patterns are plain, and most texts are ASCII: those are searched by an engine that takes no longer than the text is
long, that of the JSON Schema validator. All else is for the `regex` package, which backtracks, knows every form, and is
imported when it is needed.
"""

import functools
import re
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, TypeVar

from workflowlookup.cache import BoundedCache

MAX_PATTERN_LENGTH: Final = 4096
MAX_NODES: Final = 8192
"""How large a pattern may become when what it must repeat is written out, as `regex` does: `(?:a{300}){300}`."""
SECONDS_PER_SEARCH: Final = 0.25
SECONDS_PER_REQUEST: Final = 0.5
WORTH_COUNTING: Final = 0.0005
MAX_STEPS: Final = 3_000_000
"""How many steps a search may take that cannot be interrupted."""
UNTIMED_STEPS: Final = 1_000_000
"""How many steps the searches of a request may take before they are timed: some milliseconds, at worst tens."""
FLAGS: Final = "gimsuy"

T = TypeVar("T")


class BadPattern(ValueError):
    """The pattern or its flags do not compile; the text says why."""


class TooSlow(Exception):
    """The search was given up: it took too long, or the searches before it did."""


class Budget:
    """The time that the patterns of one request may take together. Made with the request, and passed on."""

    __slots__ = ("_seconds", "_steps")

    def __init__(self) -> None:
        self._seconds = SECONDS_PER_REQUEST
        self._steps = UNTIMED_STEPS

    def takes(self, steps: int) -> bool:
        """Whether a search of so many steps need not be timed; if so, they are deducted from the budget."""
        if steps > self._steps:
            return False
        self._steps -= steps
        return True

    def spend(self, work: Callable[[float], T]) -> T:
        """Do some work, called with the seconds it may take, and deduct what it took. Raises `TooSlow`."""
        if self._seconds <= 0:
            raise TooSlow
        started = perf_counter()
        try:
            return work(min(SECONDS_PER_SEARCH, self._seconds))
        except TimeoutError as problem:
            raise TooSlow from problem
        finally:
            spent = perf_counter() - started
            if spent > WORTH_COUNTING:
                self._seconds -= spent


Search = Callable[[str, Budget], bool]

_searches: Final[BoundedCache[tuple[str, str], Search]] = BoundedCache(512)


def compile_pattern(pattern: str, flags: str, budget: Budget) -> Search:
    """A function that tells whether the pattern is found in a text.

    Raises `BadPattern`, and `TooSlow` when the budget has no time left; so does the function that it returns.
    """
    search = _searches.get((pattern, flags))
    if search is None:
        search = budget.spend(lambda _: _compile(pattern, flags))
        _searches[pattern, flags] = search
    return search


def _compile(pattern: str, flags: str) -> Search:
    unknown = sorted(set(flags) - set(FLAGS))
    if unknown:
        raise BadPattern(f"unknown flag '{unknown[0]}' (known: {' '.join(FLAGS)})")
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise BadPattern(f"longer than {MAX_PATTERN_LENGTH} characters")
    if _nodes(pattern) > MAX_NODES:
        raise BadPattern(f"its repetitions come to more than {MAX_NODES:,} places; use a rule of type length instead")
    find = _in_linear_time(pattern, flags)
    states = _most_states(pattern)

    def give_up_in_time(text: str, budget: Budget) -> bool:
        return budget.spend(lambda seconds: _backtracking(pattern, flags)(text, timeout=seconds) is not None)

    if find is None:
        _backtracking(pattern, flags)  # tells now what is wrong with it
        return give_up_in_time

    def search(text: str, budget: Budget) -> bool:
        steps = len(text) * states
        if not text.isascii() or steps > MAX_STEPS:
            return give_up_in_time(text, budget)
        return find(text) if budget.takes(steps) else budget.spend(lambda _: find(text))

    return search


def extract(pattern: str, flags: str, text: str, budget: Budget) -> str | None:
    """The first group of the first match, or the match itself without groups; None when nothing matches.

    Raises `BadPattern` and `TooSlow`.
    """
    compile_pattern(pattern, flags, budget)  # checks the length and the flags
    find = _backtracking(pattern, flags)
    match: Any = budget.spend(lambda seconds: find(text, timeout=seconds))
    if match is None:
        return None
    found: str | None = match[1] if match.re.groups else match[0]
    return found


# ── in linear time ──────────────────────────────────────────────────────────────────────────────────────────────────

_ESCAPED: Final = r"\\[dwsnrt!-/:-@\[-`{-~]"
_IN_CLASS: Final = rf"(?!--)(?:{_ESCAPED}|[^\\\[\]&~])"
_PLAIN: Final = rf"""(?x)(?>
        (?: {_ESCAPED} | \\[DWS] | \[\^?(?:{_IN_CLASS})+\] | [^\\\[\](){{}}*+?|^$] )  # a character or a class,
        (?: (?: [*+?] | \{{\d+(?:,\d*)?\}} ) \?? )?                                 # perhaps repeated
      | \\[bB] | [\^$|]
      | \((?:\?:)? | \)\??                                                         # a group, at most once
    )*+"""
"""As text, and compiled by the first pattern: a list of workflows need not wait for it.

Atomic and possessive: each part is read one way only, so the check takes linear time.
"""
_FOLDED_APART: Final = frozenset("ıİſ\N{KELVIN SIGN}")
"""Letters whose other case is ASCII, or not, depending on whom one asks."""


def _in_linear_time(pattern: str, flags: str) -> Callable[[str], bool] | None:
    """A search of ASCII texts that takes no more steps than the text is long, for each place of the pattern.

    None for a pattern that may mean something else there. Where groups are repeated the other engine may give up, and
    authors are told so: that is left to it.
    """
    if "y" in flags or not re.fullmatch(_PLAIN, pattern) or ("i" in flags and _FOLDED_APART & set(pattern)):
        return None
    import jsonschema_rs  # noqa: PLC0415 - with the first pattern

    options = "".join(flag for flag in "ims" if flag in flags)
    schema = {"pattern": f"(?{options}){pattern}" if options else pattern}
    try:
        validator = jsonschema_rs.Draft202012Validator(schema, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:  # the other engine says what is wrong with it, if anything is
        return None
    return validator.is_valid


def _most_states(pattern: str) -> int:
    """How many places a plain pattern has, each repetition written out."""
    counts = re.findall(r"\{(\d+)(?:,(\d*))?\}", pattern)
    return 1 + len(pattern) + sum(int(most or least) for least, most in counts)


_PART: Final = r"""(?xs)
        \\. | \[(?:\\.|[^\]\\])*+\]?                  # an escape or a class
      | \{(?P<least>\d+)(?:,\d*)?\} | (?P<repeat>[*+?])
      | (?P<open>\() | (?P<close>\)) | (?P<bar>\|) | ."""


def _nodes(pattern: str) -> int:
    """How many parts a pattern has when each is written as often as it must be repeated."""
    totals, last = [0], 0
    for token in re.finditer(_PART, pattern):
        if token["least"]:
            times = max(1, int(token["least"]))
            totals[-1] += last * (times - 1)
            last *= times
        elif token["open"]:
            totals.append(0)
            last = 0
        elif token["close"] and len(totals) > 1:
            last = 1 + totals.pop()
            totals[-1] += last
        elif not token["repeat"]:
            last = not token["bar"]
            totals[-1] += 1
    return sum(totals)


# ── by backtracking ─────────────────────────────────────────────────────────────────────────────────────────────────


@functools.lru_cache(maxsize=128)
def _backtracking(pattern: str, flags: str) -> Callable[..., object]:
    """A search that knows every form, and ends with `TimeoutError` when it takes too long."""
    import regex  # noqa: PLC0415 - costs 10 ms, and few searches need it

    plain = _without_escapes(pattern)
    if re.search(r"(?:[*+?]|\{\d+(?:,\d*)?\})\+", plain):
        raise BadPattern("nothing to repeat before '+'")
    if re.search(r"\(\?(?:#|[A-Za-z]*x)", plain):  # with comments in it, it could not be measured
        raise BadPattern("ECMAScript has no comments in patterns")
    options = regex.VERSION0
    for flag, option in (("i", regex.IGNORECASE), ("m", regex.MULTILINE), ("s", regex.DOTALL)):
        if flag in flags:
            options |= option
    try:
        compiled = regex.compile(_from_ecmascript(pattern, multiline="m" in flags), options)
    except (regex.error, RecursionError, OverflowError, ValueError) as problem:
        raise BadPattern(str(problem) or type(problem).__name__) from problem
    return compiled.match if "y" in flags else compiled.search  # type: ignore[no-any-return]


def _without_escapes(pattern: str) -> str:
    """The pattern with escapes and classes as one letter each."""
    plain = re.sub(r"\\[pP]\{[^}]*\}", "x", pattern)
    return re.sub(r"\\[^\\]|\[(?:\\.|[^\]\\])*+(?:\]|\Z)", "x", plain, flags=re.DOTALL)


_REWRITTEN: Final = r"""(?xs)
        \\u\{(?P<code>[0-9A-Fa-f]{1,6})\}   # \u{1F600}
      | \\k<(?P<name>\w+)>                  # a reference to a named group
      | \\[pP]\{[^}]*\}                       # a property of characters
      | (?P<letter>\\g)                     # no escape in ECMAScript, a reference here
      | \\.                                 # any other escape
      | (?P<brace>\{(?!\d+(?:,\d*)?\}))     # no quantifier in ECMAScript, fuzzy matching here
      | \[\^\]                              # any character at all
      | \[\]                                # no character
      | (?P<open>\[) | (?P<close>\])
      | (?P<end>\$)"""


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

    return re.sub(_REWRITTEN, rewrite, pattern)
