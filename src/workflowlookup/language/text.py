"""Text for people: counts in words, text on one line, and invisible or misleading characters.

Documents, outputs and answers of other systems are untrusted. A terminal obeys control characters in them, and
other characters hide text or reverse its direction.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

MAX_CHOICES: Final = 30
"""Limit on the choices that a message lists."""
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

_HIDING: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff"
)
HIDDEN: Final = f"[{_HIDING}]"
"""Matches control characters other than tab and newline, and characters that are invisible or move text.

Not compiled here, because that takes milliseconds and most commands and lookups never need it.
"""
INVISIBLE: Final = f"[{_HIDING}\xad\u061c\u115f\u1160\u180b-\u180f\u200c-\u200f\u3164\uffa0]"
"""`HIDDEN` and the invisible characters of normal text, such as joiners. For text that a person decides about."""

_LOOKS_BLANK: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""Letters and marks that look blank."""


def is_blank(text: str) -> bool:
    """Whether the text has no visible character: only spaces, control and format characters, and blank letters."""
    return not (any(map(_is_visible, text[:100])) or any(map(_is_visible, set(text))))


def _is_visible(character: str) -> bool:
    if character in _LOOKS_BLANK or character.isspace():
        return False
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs")


class Excerpt(str):
    """The beginning of a text that is too long to store."""

    __slots__ = ("whole",)

    whole: int
    """The length of the whole text."""

    @classmethod
    def of(cls, text: str, limit: int) -> "Excerpt":
        excerpt = cls(text[:limit])
        excerpt.whole = length_of(text)
        return excerpt


def length_of(text: str) -> int:
    """The length of a text; for an excerpt, that of the whole text."""
    return text.whole if isinstance(text, Excerpt) else len(text)


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 run`, `2 runs`; `nouns` for a plural that does not end in s."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def how_often(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"


def ago(seconds: int) -> str:
    """`5 min ago`: the largest unit; `just now` for less than a minute."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def duration(milliseconds: int) -> str:
    """`1 min 3 s`: the two largest units."""
    seconds, rest = divmod(max(0, milliseconds), 1000)
    if seconds < 10:
        return f"{seconds + rest / 1000:.1f} s" if milliseconds > 0 else "0 s"
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")]
    while not units[0][0]:
        del units[0]
    return " ".join([f"{number} {unit}" for number, unit in units[:2] if number])


def first_few(words: Sequence[str], limit: int) -> str:
    """The first words, joined by commas, with `…` for the others."""
    return ", ".join([*words[:limit], *(["…"] if len(words) > limit else [])])


def choices(options: Sequence[T], show: Callable[[T], str], between: str = ", ") -> str:
    """`a, b, c`; after `MAX_CHOICES`, the number of further ones."""
    more = len(options) - MAX_CHOICES
    text = between.join(map(show, options[:MAX_CHOICES]))
    return f"{text} and {more:,} more" if more > 0 else text


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def redact(text: str, secrets: Collection[str]) -> str:
    """Text from elsewhere with our secrets replaced: it may repeat what we sent."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def joined(text: str) -> str:
    """The text on one line: each run of white space becomes one space."""
    return " ".join(text.split())


MAX_CLIPPED: Final = 200


def clip_line(text: str, limit: int = MAX_CLIPPED) -> str:
    """Text for use inside a sentence: on one line, cut, without invisible characters."""
    line = joined(re.sub(INVISIBLE, " ", text[: 4 * limit]))
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]}…"


def printable(text: str) -> str:
    """The text with `REPLACEMENT` for every `HIDDEN` character; line breaks and tabs stay."""
    return text if text.isprintable() and text.isascii() else re.sub(HIDDEN, REPLACEMENT, text.replace("\r\n", "\n"))


def visible(text: str) -> str:
    """The text with `REPLACEMENT` for every `INVISIBLE` character; line breaks and tabs stay."""
    return re.sub(INVISIBLE, REPLACEMENT, text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    """The text on one line, reversibly: line breaks and `HIDDEN` characters are escaped, and then backslashes too."""
    if (text.isascii() and text.isprintable()) or not re.search(f"\n|{HIDDEN}", text):
        return text
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return re.sub(HIDDEN, lambda hidden: hidden[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The text on one line, without `HIDDEN` characters."""
    return joined(text if text.isprintable() and text.isascii() else re.sub(HIDDEN, " ", text))
