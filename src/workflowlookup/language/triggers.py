"""The `triggers` of a workflow: words or patterns by which a prompt of the user is recognised."""

import re
from collections.abc import Sequence
from typing import Final

from workflowlookup.language.formats.patterns import BadPattern, Budget, TooSlow, compile_pattern

MAX_PROMPT: Final = 20_000
"""Characters of a prompt that are searched."""
_PATTERN: Final = re.compile(r"/(?P<pattern>.+)/(?P<flags>[a-z]*)", re.DOTALL)


def pattern_of(trigger: str) -> tuple[str, str] | None:
    """The pattern and the flags of a trigger such as `/flaky|intermittent/i`; None for words."""
    match = _PATTERN.fullmatch(trigger)
    return (match["pattern"], match["flags"]) if match else None


def is_triggered(triggers: Sequence[str], prompt: str, budget: Budget) -> bool:
    """Whether a prompt has the words of a trigger, next to each other and whatever their case, or matches its pattern.

    A pattern that does not compile or takes too long does not match.
    """
    prompt = prompt[:MAX_PROMPT]
    words = f" {_words(prompt)} "
    for trigger in triggers:
        pattern = pattern_of(trigger)
        if pattern is None:
            if (phrase := _words(trigger)) and f" {phrase} " in words:
                return True
            continue
        try:
            if compile_pattern(*pattern, budget)(prompt, budget):
                return True
        except (BadPattern, TooSlow):
            continue
    return False


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
