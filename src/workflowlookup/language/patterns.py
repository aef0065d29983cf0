"""Regular expressions of authors: ECMAScript in, an answer within a time limit out.

The patterns come from documents and are hostile until checked. Their length is bounded, and so is what they compile to:
a pattern is checked here in time linear in its length before an engine sees it. A search that takes too long raises
`TooSlow` instead of hanging the server. What the patterns of one request take, compiled and searched, is taken from its
`Budget`, so that many slow patterns cost no more than a few.

Most patterns are plain, and most texts are ASCII: those are searched by an engine that takes no longer than the text is
long, that of the JSON Schema validator. All else is for the `regex` package, which backtracks, knows every form, and is
imported when it is needed.
"""

import re
from collections.abc import Callable
from time import thread_time
from typing import Any, Final, TypeVar

from workflowlookup.cache import BoundedCache
from workflowlookup.language.ecmascript import translate

MAX_PATTERN_LENGTH: Final = 4096
MAX_NODES: Final = 8192
"""How large a pattern may become when what it must repeat is written out, as `regex` does: `(?:a{300}){300}`."""
MAX_TRANSLATED_LENGTH: Final = 1 << 15
"""How long a pattern may be when sets such as `\\S` are written out: so long does it take to compile, untimed."""
MAX_COMPILED_SIZE: Final = 20_000
MAX_COMPILED_BYTES: Final = 1 << 20
"""How large a pattern may be in the engine that takes linear time; larger ones are for the other engine."""
SECONDS_PER_SEARCH: Final = 0.25
SECONDS_PER_REQUEST: Final = 0.5
STEPS_PER_CLOCK_READ: Final = 20_000
"""After how many small steps the clock is read: some milliseconds."""
MAX_STEPS: Final = 1_000_000
"""How many steps a search may take that cannot be interrupted."""
UNTIMED_STEPS: Final = 500_000
"""How many steps the searches of a request may take before they are timed: some milliseconds, at worst tens."""
MAX_RULE_TEXT: Final = 4 << 20
"""How much text the templates of rules may become in one request."""
FLAGS: Final = "gimsuy"

T = TypeVar("T")


class BadPattern(ValueError):
    """The pattern or its flags do not compile; the text says why."""


class TooSlow(Exception):
    """Something was given up: it took too long or would, or what came before it did. The text, if any, says why."""


class Budget:
    """The processor time that one request may take for what authors and callers wrote. Made with it, and passed on.

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
        """Whether a search of so many steps need not be timed; if so, they are deducted from the budget."""
        if steps > self._steps:
            return False
        self._steps -= steps
        return True

    def charge(self, steps: int) -> None:
        """Count small steps of a computation; from time to time the clock is read. Raises `TooSlow`, then every time.

        A few steps are always there, so that what costs nothing is done also when searches took all the time.
        """
        self._unclocked += steps
        if self._unclocked > STEPS_PER_CLOCK_READ:
            self._seconds_left()
            self._unclocked = 0

    @property
    def is_spent(self) -> bool:
        """Whether there is no time left, so that something may have been given up."""
        return 0 < self._ends <= thread_time()

    def fill(self, characters: int) -> None:
        """Deduct text that templates of rules became. Raises `TooSlow` when that is too much for one answer."""
        self._characters -= characters
        if self._characters < 0:
            raise TooSlow

    def spend(self, work: Callable[[float], T]) -> T:
        """Do some work, called with the seconds it may take. Raises `TooSlow`, also when there is no time for it."""
        left = self._seconds_left()
        seconds = min(SECONDS_PER_SEARCH, left)
        try:
            return work(seconds)
        except TimeoutError as problem:
            self._ends = thread_time() + left - seconds  # it was stopped by the clock on the wall
            raise TooSlow from problem

    def folded(self, text: str) -> str:
        """The text without its case. The last one is remembered: every rule of a step searches the same output."""
        if self._folded[0] is not text:
            self._folded = (text, text.casefold())
        return self._folded[1]

    def _seconds_left(self) -> float:
        now = thread_time()
        self._ends = self._ends or now + self._seconds
        if now >= self._ends:
            raise TooSlow
        return self._ends - now


Search = Callable[[str, Budget], bool]

MAX_CACHED_SIZE: Final = 40_000
"""How large the compiled patterns in a cache may be together: about two megabytes."""
SIZE_OF_ANY: Final = 400
"""How large even a small pattern is once it is compiled."""

_searches: Final[BoundedCache[tuple[str, str], tuple[Search, int]]] = BoundedCache(
    512, max_weight=MAX_CACHED_SIZE, weigh=lambda entry: entry[1]
)


def clear_caches() -> None:
    """Drop all compiled patterns."""
    _searches.clear()
    _compiled.clear()


def compile_pattern(pattern: str, flags: str, budget: Budget) -> Search:
    """A function that tells whether the pattern is found in a text.

    Raises `BadPattern`, and `TooSlow` when the budget has no time left; so does the function that it returns.
    """
    known = _searches.get((pattern, flags))
    if known is None:
        known = budget.spend(lambda _: (_compile(pattern, flags), SIZE_OF_ANY + expanded_size(pattern)))
        _searches[pattern, flags] = known
    return known[0]


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
        raise BadPattern(f"its repetitions come to more than {MAX_NODES:,} places; use a rule of type length instead")
    find = _in_linear_time(pattern, flags)
    states = _state_count(pattern)

    def give_up_in_time(text: str, budget: Budget) -> bool:
        return budget.spend(lambda seconds: _backtracking(pattern, flags)(text, timeout=seconds) is not None)

    if find is None:
        _backtracking(pattern, flags)  # tells now what is wrong with it
        return give_up_in_time

    def search(text: str, budget: Budget) -> bool:
        steps = len(text) * states
        if steps > MAX_STEPS or not _means_the_same(flags, text):
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

_ESCAPED: Final = r"\\[dwsnrt!-/:;=?@\[-`{-~]"
_IN_CLASS: Final = rf"(?!--)(?:{_ESCAPED}|[^\\\[\]&~])"
_PLAIN: Final = rf"""(?x)(?>
        (?: {_ESCAPED} | \\[DWS] | \[\^?(?:{_IN_CLASS})+\] | [^\\\[\](){{}}*+?|^$] )  # a character or a class,
        (?: (?: [*+?] | \{{[0-9]+(?:,[0-9]*)?\}} ) \?? )?                           # perhaps repeated
      | \\[bB] | [\^$|]
      | \((?:\?:)? | \)\??                                                         # a group, at most once
    )*+"""
"""As text, and compiled by the first pattern: a list of workflows need not wait for it.

Atomic and possessive: each part is read one way only, so the check takes linear time.
"""


def _in_linear_time(pattern: str, flags: str) -> Callable[[str], bool] | None:
    """A search that takes no more steps than the text is long, for each place of the pattern.

    It is for texts for which `_means_the_same`. None for a pattern that may mean something else there. Where groups are
    repeated the other engine may give up, and authors are told so: that is left to it.
    """
    if "y" in flags or not re.fullmatch(_PLAIN, pattern) or ("i" in flags and not pattern.isascii()):
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
    except ValueError:  # the other engine says what is wrong with it, if anything is
        return None
    return validator.is_valid


def _means_the_same(flags: str, text: str) -> bool:
    """Whether a plain pattern means the same in both engines: the linear one takes only `\\n` for the end of a line."""
    return text.isascii() and not ("m" in flags and "\r" in text)


def _state_count(pattern: str) -> int:
    """How many places a plain pattern has, each repetition written out."""
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
"""How large a class of very many characters is, compared with a letter, in the engine that takes linear time."""


def _nodes(pattern: str) -> int:
    """How many parts a pattern has when each is written as often as it must be repeated."""
    return _written_out(pattern, lambda token: max(1, _number(token["least"])), lambda _: 1)


def expanded_size(pattern: str) -> int:
    """How large a pattern is when each part of it is written as often as it may be repeated, in letters of 50 bytes."""

    def times(token: re.Match[str]) -> int:
        return _number(token["most"]) if token["most"] else _number(token["least"]) + bool(token["range"])

    def size(token: re.Match[str]) -> int:
        return _PROPERTY_SIZE if token["property"] else _WIDE_SIZE if token["wide"] or not token[0].isascii() else 1

    return _written_out(pattern, times, size)


def _number(digits: str) -> int:
    """The number, or one that is too large as well: Python takes long to read thousands of digits."""
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
    """Whether there is only one way to read a text by it: parts of fixed length, and a last one that is repeated."""
    return re.fullmatch(_ONE_WAY, pattern) is not None


def may_backtrack(pattern: str) -> bool:
    """Whether the engine of the JSON Schema validator cannot search by it in linear time."""
    return re.search(r"\(\?(?:[=!>(]|<[=!])|\\[1-9k]|[*+?}]\+", pattern) is not None


# ── by backtracking ─────────────────────────────────────────────────────────────────────────────────────────────────


_compiled: Final[BoundedCache[tuple[str, str], tuple[Callable[..., object], int]]] = BoundedCache(
    128, max_weight=MAX_CACHED_SIZE, weigh=lambda entry: entry[1]
)


def _backtracking(pattern: str, flags: str) -> Callable[..., object]:
    """A search that knows every form, and ends with `TimeoutError` when it takes too long."""
    known = _compiled.get((pattern, flags))
    if known is None:
        translated = _translated(pattern, flags)
        size = SIZE_OF_ANY + 4 * _nodes(translated)
        known = _compiled[pattern, flags] = (_compile_backtracking(translated, is_sticky="y" in flags), size)
    return known[0]


def _compile_backtracking(translated: str, *, is_sticky: bool) -> Callable[..., object]:
    import regex  # noqa: PLC0415 - costs 10 ms, and few searches need it

    try:
        compiled = regex.compile(translated, regex.VERSION0, cache_pattern=False)
    except (regex.error, RecursionError, OverflowError, ValueError) as problem:
        raise BadPattern(str(problem) or type(problem).__name__) from problem
    finally:
        regex.purge()  # its own caches are bounded in entries at best, ours in size
    return compiled.match if is_sticky else compiled.search  # type: ignore[no-any-return]


def _translated(pattern: str, flags: str) -> str:
    try:
        return translate(pattern, flags)
    except ValueError as problem:
        raise BadPattern(str(problem)) from problem
