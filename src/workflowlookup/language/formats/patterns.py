"""Regular expressions of authors, in ECMAScript syntax, searched within a time limit.

The patterns come from documents and are hostile until checked. Their length and compiled size are bounded: a check in
linear time comes before any engine. A search that takes too long raises `TooSlow` instead of blocking the server.
Compiling and searching use up the `Budget` of the request, so many slow patterns cost no more than a few.

There are two engines. Simple patterns on ASCII text use the one of the JSON Schema validator, which takes linear time.
Everything else uses the `regex` package, which backtracks and knows every construct. It is imported when needed.
"""

import re
from collections.abc import Callable
from time import thread_time
from typing import Any, Final, TypeVar

from workflowlookup.cache import BoundedCache
from workflowlookup.language.formats.ecmascript import translate

MAX_PATTERN_LENGTH: Final = 4096
MAX_NODES: Final = 8192
"""Limit on the size of a pattern with required repetitions expanded, as `regex` does: `(?:a{300}){300}`."""
MAX_TRANSLATED_LENGTH: Final = 1 << 15
"""Limit on the length with sets such as `\\S` expanded, because compiling takes that long and has no timeout."""
MAX_COMPILED_SIZE: Final = 20_000
MAX_COMPILED_BYTES: Final = 1 << 20
"""Limit on the size of a pattern in the linear engine. Larger patterns use `regex`."""
SECONDS_PER_SEARCH: Final = 0.25
SECONDS_PER_REQUEST: Final = 0.5
STEPS_PER_CLOCK_READ: Final = 20_000
"""The clock is read after this many small steps, which is some milliseconds."""
MAX_STEPS: Final = 1_000_000
"""Limit on the steps of a search that cannot be interrupted."""
UNTIMED_STEPS: Final = 500_000
"""Steps that the searches of a request may take before they are timed: at worst tens of milliseconds."""
MAX_RULE_TEXT: Final = 4 << 20
"""Limit on the text that the templates of rules become in one request."""
FLAGS: Final = "gimsuy"

T = TypeVar("T")


class BadPattern(ValueError):
    """The pattern or its flags do not compile; the message says why."""


class TooSlow(Exception):
    """Work was given up because it, or the work before it, took or would take too long. A message may say why."""


class Budget:
    """The processor time that one request may spend on patterns, conditions and schemas. One is created per request.

    The clock starts with the first work that is worth timing.
    """

    __slots__ = ("_characters", "_ends", "_folded", "_seconds", "_steps", "_unclocked")

    def __init__(self, seconds: float = SECONDS_PER_REQUEST) -> None:
        self._seconds = seconds
        self._ends = 0.0
        self._folded = ("", "")
        self._characters = MAX_RULE_TEXT
        self._steps = UNTIMED_STEPS
        self._unclocked = 0

    def takes(self, steps: int) -> bool:
        """Whether a search of this many steps may run untimed; if so, the steps are deducted."""
        if steps > self._steps:
            return False
        self._steps -= steps
        return True

    def charge(self, steps: int) -> None:
        """Count small steps of a computation; the clock is read now and then. Raises `TooSlow` once time is up.

        A few steps are always free, so that cheap work is done even after searches have used up the time.
        """
        self._unclocked += steps
        if self._unclocked > STEPS_PER_CLOCK_READ:
            self._remaining_seconds()
            self._unclocked = 0

    @property
    def is_spent(self) -> bool:
        """Whether no time is left, so that some work may have been given up."""
        return 0 < self._ends <= thread_time()

    def fill(self, characters: int) -> None:
        """Deduct the text that templates of rules became. Raises `TooSlow` if it is too much for one request."""
        self._characters -= characters
        if self._characters < 0:
            raise TooSlow

    def spend(self, work: Callable[[float], T]) -> T:
        """Call `work` with the seconds that it may take. Raises `TooSlow` if it takes longer or no time is left."""
        remaining = self._remaining_seconds()
        seconds = min(SECONDS_PER_SEARCH, remaining)
        try:
            return work(seconds)
        except TimeoutError as problem:
            self._ends = thread_time() + remaining - seconds  # the timeout is in wall time
            raise TooSlow from problem

    def folded(self, text: str) -> str:
        """The case-folded text. The last one is cached, because all rules of a step search the same output."""
        if self._folded[0] is not text:
            self._folded = (text, text.casefold())
        return self._folded[1]

    def _remaining_seconds(self) -> float:
        now = thread_time()
        self._ends = self._ends or now + self._seconds
        if now >= self._ends:
            raise TooSlow
        return self._ends - now


Search = Callable[[str, Budget], bool]

MAX_CACHED_SIZE: Final = 40_000
"""Limit on the cached patterns together: about two megabytes."""
SIZE_OF_ANY: Final = 400
"""The size of the smallest compiled pattern."""

_searches: Final[BoundedCache[tuple[str, str], tuple[Search, int]]] = BoundedCache(
    512, max_weight=MAX_CACHED_SIZE, weigh=lambda cached: cached[1]
)


def clear_caches() -> None:
    """Drop all compiled patterns."""
    _searches.clear()
    _compiled.clear()


def compile_pattern(pattern: str, flags: str, budget: Budget) -> Search:
    """A function that says whether the pattern matches anywhere in a text.

    Raises `BadPattern`, and `TooSlow` if the budget has no time left. The returned function raises the same.
    """
    cached = _searches.get((pattern, flags))
    if cached is None:
        cached = budget.spend(lambda _: (_compile(pattern, flags), SIZE_OF_ANY + expanded_size(pattern)))
        _searches[pattern, flags] = cached
    return cached[0]


def _compile(pattern: str, flags: str) -> Search:
    unknown = sorted(set(flags) - set(FLAGS))
    if unknown:
        raise BadPattern(f"unknown flag '{unknown[0]}' (known: {' '.join(FLAGS)})")
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise BadPattern(f"longer than {MAX_PATTERN_LENGTH} characters")
    translated = _translated(pattern, flags)
    if len(translated) > MAX_TRANSLATED_LENGTH:
        raise BadPattern("too many sets of characters; use repetitions instead")
    if _nodes(translated) > MAX_NODES:
        raise BadPattern(
            f"its repetitions expand to more than {MAX_NODES:,} characters; use a rule of type length instead"
        )
    find = _in_linear_time(pattern, flags)
    states = _state_count(pattern)

    def search_with_timeout(text: str, budget: Budget) -> bool:
        return budget.spend(lambda seconds: _backtracking(pattern, flags)(text, timeout=seconds) is not None)

    if find is None:
        _backtracking(pattern, flags)  # raises `BadPattern` now if it does not compile
        return search_with_timeout

    def search(text: str, budget: Budget) -> bool:
        steps = len(text) * states
        if steps > MAX_STEPS or not _means_the_same(flags, text):
            return search_with_timeout(text, budget)
        return find(text) if budget.takes(steps) else budget.spend(lambda _: find(text))

    return search


def extract(pattern: str, flags: str, text: str, budget: Budget) -> str | None:
    """The first group of the first match, or the whole match if there are no groups; None if nothing matches.

    Raises `BadPattern` and `TooSlow`.
    """
    compile_pattern(pattern, flags, budget)  # checks the length and the flags
    find = _backtracking(pattern, flags)
    match: Any = budget.spend(lambda seconds: find(text, timeout=seconds))
    if match is None:
        return None
    text_of_group: str | None = match[1] if match.re.groups else match[0]
    return text_of_group


def extract_last(pattern: str, flags: str, text: str, budget: Budget) -> str | None:
    """As `extract`, but of the last match."""
    compile_pattern(pattern, flags, budget)
    find = _backtracking(pattern, flags)
    last, start = None, 0
    while start <= len(text):
        position = start

        def search(seconds: float, position: int = position) -> Any:
            return find(text, position, timeout=seconds)

        match = budget.spend(search)
        if match is None:
            break
        last, start = match, max(match.end(), start + 1)
    if last is None:
        return None
    text_of_group: str | None = last[1] if last.re.groups else last[0]
    return text_of_group


# ── in linear time ──────────────────────────────────────────────────────────────────────────────────────────────────

_ESCAPED: Final = r"\\[dwsnrt!-/:;=?@\[-`{-~]"
_IN_CLASS: Final = rf"(?!--)(?:{_ESCAPED}|[^\\\[\]&~])"
_PLAIN: Final = rf"""(?x)(?>
        (?: {_ESCAPED} | \\[DWS] | \[\^?(?:{_IN_CLASS})+\] | [^\\\[\](){{}}*+?|^$] )  # a character or a class,
        (?: (?: [*+?] | \{{[0-9]+(?:,[0-9]*)?\}} ) \?? )?                           # perhaps repeated
      | \\[bB] | [\^$|]
      | \((?:\?:)? | \)\??                                                         # a group, at most once
    )*+"""
"""A string, compiled with the first pattern, so that listing workflows does not wait for it.

Atomic and possessive, so each part is read only one way and the check takes linear time.
"""

_FOLDS_TO_ASCII: Final = r"[\u0130\u0131\u017f\u212a]|-[^\x00-\x7f]"
"""The letters whose other case is ASCII for some engine, and ranges that may contain them."""


def _in_linear_time(pattern: str, flags: str) -> Callable[[str], bool] | None:
    """A search in linear time, for texts on which both engines agree (`_means_the_same`).

    None for a pattern on which they may differ. Patterns with repeated groups are left to `regex`, which may give up:
    authors are told about such patterns.
    """
    if "y" in flags or not re.fullmatch(_PLAIN, pattern) or ("i" in flags and re.search(_FOLDS_TO_ASCII, pattern)):
        return None
    if expanded_size(pattern) > MAX_COMPILED_SIZE:
        return None
    import jsonschema_rs  # noqa: PLC0415 - with the first pattern

    options = "".join(flag for flag in "ims" if flag in flags)
    if "s" not in flags:
        pattern = re.sub(r"\\.|\[(?:\\.|[^\]\\])*+\]|(\.)", lambda part: r"[^\n\r]" if part[1] else part[0], pattern)
    schema = {"pattern": f"(?{options}){pattern}" if options else pattern}
    try:
        limits = jsonschema_rs.RegexOptions(size_limit=MAX_COMPILED_BYTES, dfa_size_limit=MAX_COMPILED_BYTES)
        validator = jsonschema_rs.Draft202012Validator(schema, pattern_options=limits)
    except ValueError:  # `regex` reports what is wrong, if anything is
        return None
    return validator.is_valid


def _means_the_same(flags: str, text: str) -> bool:
    """Whether a simple pattern means the same in both engines: for the linear one only `\\n` ends a line."""
    return text.isascii() and not ("m" in flags and "\r" in text)


def _state_count(pattern: str) -> int:
    """The number of states of a simple pattern, with repetitions expanded."""
    counts = re.findall(r"\{([0-9]+)(?:,([0-9]*))?\}", pattern)
    return 1 + len(pattern) + sum(int(most or least) for least, most in counts)


_PART: Final = r"""(?xs)
        (?P<property>\\[pP]\{[^}]*\})
      | (?P<wide>\\[DWS] | \[\^(?:\\.|[^\]\\])*+\]? | \.)     # almost all characters there are
      | \\. | \[(?:\\.|[^\]\\])*+\]?                           # an escape or a class
      | \{(?P<least>\d+)(?P<range>,(?P<most>\d*))?\} | (?P<repeat>[*+?])
      | (?P<open>\() | (?P<close>\)) | (?P<bar>\|) | ."""
_WIDE_SIZE: Final = 25
_PROPERTY_SIZE: Final = 800
"""Sizes of classes with very many characters in the linear engine, compared with one letter."""


def _nodes(pattern: str) -> int:
    """The number of parts of a pattern, with each required repetition expanded."""
    return _written_out(pattern, lambda token: max(1, _number(token["least"])), lambda _: 1)


def expanded_size(pattern: str) -> int:
    """The size of a pattern with each possible repetition expanded, in units of about 50 bytes."""

    def times(token: re.Match[str]) -> int:
        return _number(token["most"]) if token["most"] else _number(token["least"]) + bool(token["range"])

    def size(token: re.Match[str]) -> int:
        return _PROPERTY_SIZE if token["property"] else _WIDE_SIZE if token["wide"] or not token[0].isascii() else 1

    return _written_out(pattern, times, size)


def _number(digits: str) -> int:
    """The number, cut to 12 digits, because Python is slow to parse thousands of digits."""
    return int(digits.lstrip("0")[:12] or 0)


def _written_out(pattern: str, times: Callable[[re.Match[str]], int], size: Callable[[re.Match[str]], int]) -> int:
    totals, last = [0], 0
    for token in re.finditer(_PART, pattern):
        if token["least"]:
            repeated = times(token)
            totals[-1] += last * (repeated - 1)
            last *= repeated
        elif token["open"]:
            totals.append(0)
            last = 0
        elif token["close"] and len(totals) > 1:
            last = 1 + totals.pop()
            totals[-1] += last
        elif not token["repeat"]:
            last = 0 if token["bar"] else size(token)
            totals[-1] += max(last, 1)
    return sum(totals)


_ONE_WAY: Final = r"""(?xs)\^
    (?: (?:\\. | \[(?:\\.|[^\]\\])*+\] | [^\\\[\](){}*+?|^$]) (?:\{\d+\})? )*?
    (?: \\. | \[(?:\\.|[^\]\\])*+\] | [^\\\[\](){}*+?|^$] )
    (?: [*+?] | \{\d+(?:,\d*)?\} )? \$?"""


def is_deterministic(pattern: str) -> bool:
    """Whether it can match a text in only one way: parts of fixed length, and only the last one repeated freely."""
    return re.fullmatch(_ONE_WAY, pattern) is not None


def may_backtrack(pattern: str) -> bool:
    """Whether the JSON Schema validator cannot search for it in linear time."""
    return re.search(r"\(\?(?:[=!>(]|<[=!])|\\[1-9k]|[*+?}]\+", pattern) is not None


# ── by backtracking ─────────────────────────────────────────────────────────────────────────────────────────────────


_compiled: Final[BoundedCache[tuple[str, str], tuple[Callable[..., object], int]]] = BoundedCache(
    128, max_weight=MAX_CACHED_SIZE, weigh=lambda cached: cached[1]
)


def _backtracking(pattern: str, flags: str) -> Callable[..., object]:
    """A search by `regex`, for any pattern. It raises `TimeoutError` if it takes too long."""
    cached = _compiled.get((pattern, flags))
    if cached is None:
        translated = _translated(pattern, flags)
        size = SIZE_OF_ANY + 4 * _nodes(translated)
        cached = _compiled[pattern, flags] = (_compile_backtracking(translated, is_sticky="y" in flags), size)
    return cached[0]


def _compile_backtracking(translated: str, *, is_sticky: bool) -> Callable[..., object]:
    import regex  # noqa: PLC0415 - costs 10 ms, and few searches need it

    try:
        compiled = regex.compile(translated, regex.VERSION0, cache_pattern=False)
    except (regex.error, RecursionError, OverflowError, ValueError) as problem:
        raise BadPattern(str(problem) or type(problem).__name__) from problem
    finally:
        regex.purge()  # its caches do not limit the total size, ours does
    return compiled.match if is_sticky else compiled.search  # type: ignore[no-any-return]


def _translated(pattern: str, flags: str) -> str:
    try:
        return translate(pattern, flags)
    except ValueError as problem:
        raise BadPattern(str(problem)) from problem
