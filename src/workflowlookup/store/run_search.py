"""The search for runs: one language for the console, the tool `workflow_runs` and the command `runs`.

A query is words, all of which must match: `march export`. A word matches a part of any field of a run. `field:word`
names the field, `is:stuck` a group, quotes keep words together, and `-` leaves out what matches:
`step:"write up" -draft`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.text import choices
from workflowlookup.runs.triage import Triage

MAX_QUERY: Final = 200
MAX_TERMS: Final = 10
FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "run": ("id",),
        "workflow": ("workflow_id", "name"),
        "step": ("step", "title"),
        "about": ("subject",),
        "by": ("who",),
        "session": ("session",),
        "project": ("root",),
        "version": ("version",),
        "state": ("state",),
    }
)
"""By name: the columns of a run that it searches."""
ANYWHERE: Final = tuple(
    column for name, columns in FIELDS.items() if name not in ("version", "state") for column in columns
)
"""The columns that a word without a field searches."""
HELP: Final = (
    f"words that a run must contain; {', '.join(f'{name}:' for name in FIELDS)} search one field, "
    f"is:{'|'.join(Triage)} a group, and - leaves out"
)

_TERM: Final = re.compile(r'(?P<minus>-?)(?:(?P<field>[a-z]+):)?(?:"(?P<phrase>[^"]*)"?|(?P<word>\S+))')


class SearchTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a search: text in some columns of a run."""

    text: str
    columns: tuple[str, ...] = ANYWHERE
    is_excluded: bool = False


class RunSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search for runs."""

    terms: tuple[SearchTerm, ...] = ()
    triage: Triage | None = None


def parse_search(text: str) -> RunSearch:
    """The search that a text asks for. Raises `InvalidParams`."""
    if len(text) > MAX_QUERY:
        raise InvalidParams(f"A search has at most {MAX_QUERY} characters; found {len(text)}. Use fewer words")
    terms: list[SearchTerm] = []
    group: Triage | None = None
    for match in _TERM.finditer(text.replace("\0", " ")):  # no journal can store NUL, and SQLite's LIKE ends there
        minus, field, phrase, word = match["minus"], match["field"], match["phrase"], match["word"]
        value = word if phrase is None else phrase
        if field == "is":
            group = _group(value, is_excluded=bool(minus))
        elif field in FIELDS:
            terms.append(SearchTerm(text=value, columns=FIELDS[field], is_excluded=bool(minus)))
        else:  # also a colon in a text, as in http://…
            whole = f"{field}:{value}" if field else value
            terms.append(SearchTerm(text=whole, is_excluded=bool(minus)))
    if len(terms) > MAX_TERMS:
        raise InvalidParams(f"A search has at most {MAX_TERMS} words; found {len(terms)}. Put words in quotes")
    return RunSearch(terms=tuple(term for term in terms if term.text), triage=group)


def _group(value: str, *, is_excluded: bool) -> Triage:
    if is_excluded:
        raise InvalidParams(f"A group cannot be left out: search for is:{Triage.AGENT} instead, for example")
    try:
        return Triage(value.lower())
    except ValueError:
        raise InvalidParams(f"There is no group is:{value}; choose one of {choices([*Triage], str)}") from None
