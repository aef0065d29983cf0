"""Simple regular expressions in words, for agents and people who should not have to read a pattern."""

import re
from typing import Final

MAX_PATTERN: Final = 200
"""A longer pattern is not put into words, which would not be shorter."""
_LITERAL: Final = r"(?:\\[^\w\s|]|[^\\^$.|?*+()\[\]{}])+"
_CHOICE: Final = rf"{_LITERAL}(?:\|{_LITERAL})*"
_PLAIN: Final = re.compile(
    rf"(?P<begin>\^?)(?:(?P<before>(?:{_LITERAL})?)\((?:\?:)?(?P<group>{_CHOICE})\)|(?P<bare>{_CHOICE}))(?P<end>\$?)"
)
_ESCAPED: Final = re.compile(r"\\(.)")


def pattern_in_words(pattern: str, flags: str) -> str:
    """What a text must do to match, such as `contain "PASS" or "FAIL"`; empty for a pattern that is not that simple."""
    plain = _PLAIN.fullmatch(pattern) if len(pattern) <= MAX_PATTERN else None
    choice = (plain["group"] or plain["bare"]) if plain else ""
    if plain is None or (plain["bare"] and "|" in choice and (plain["begin"] or plain["end"])):
        return ""
    literals = (_ESCAPED.sub(r"\1", (plain["before"] or "") + word) for word in choice.split("|"))
    words = " or ".join(f'"{literal}"' for literal in literals)
    line = "have a line that " if "m" in flags and (plain["begin"] or plain["end"]) else ""
    ending = "s" if line else ""
    match bool(plain["begin"]), bool(plain["end"]):
        case True, True:
            return f"{line}{'is' if line else 'be'} {words}"
        case True, False:
            return f"{line}begin{ending} with {words}"
        case False, True:
            return f"{line}end{ending} with {words}"
    return f"contain {words}"
