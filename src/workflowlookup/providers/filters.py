"""Which workflows become tools: glob patterns of ids, names, categories and providers."""

import fnmatch
import re
from collections.abc import Sequence
from typing import Final, Protocol

from workflowlookup.language.schemas import suggest
from workflowlookup.providers.config import Filters

FIELDS: Final = ("id", "name", "category", "provider")


class Subject(Protocol):
    """A workflow, as far as it matters for whether it becomes a tool, and how that tool is named."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def provider(self) -> str: ...


class Pattern:
    """One pattern: `deploy-*`, `name:Deploy*`, `category:ops`, `provider:ci`. Case does not count.

    `*` is any text, `?` any character, `[ab]` one of these. Raises `ValueError` when it cannot be meant.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        prefix, colon, rest = text.partition(":")
        if colon and re.fullmatch(r"[A-Za-z]+", prefix):
            if prefix.lower() not in FIELDS:
                known = ", ".join(f"{field}:" for field in FIELDS)
                raise ValueError(
                    f"patterns that begin with {known} or none of them; found {suggest(prefix, FIELDS)} in '{text}' "
                    f"(write 'name:{text}' when the colon is part of a name)"
                )
            self.fields: tuple[str, ...] = (prefix.lower(),)
        else:
            self.fields, rest = ("id", "name"), text
        if not rest.strip():
            raise ValueError(f"patterns that say something; found '{text}'")
        if rest.count("[") != rest.count("]"):
            raise ValueError(f"patterns in which each [ has its ] (write [[] for the character itself); found '{text}'")
        self._matches = re.compile(fnmatch.translate(rest.strip()), re.IGNORECASE).match

    def admits(self, subject: Subject) -> bool:
        return any(self._matches(getattr(subject, field)) for field in self.fields)


class Sieve:
    """The filters of the settings, ready for use."""

    def __init__(self, filters: Filters) -> None:
        self.include: Sequence[Pattern] = [Pattern(text) for text in filters.include]
        self.exclude: Sequence[Pattern] = [Pattern(text) for text in filters.exclude]

    def admits(self, subject: Subject) -> bool:
        """Whether the workflow becomes a tool."""
        included = not self.include or any(pattern.admits(subject) for pattern in self.include)
        return included and not any(pattern.admits(subject) for pattern in self.exclude)
