"""Names for the tools that stand for workflows: made from the workflow's name, and kept for as long as it exists.

A name has letters, digits, `_` and `-`, at most 52 of them (some clients put a prefix before it and end at 64), and is
never that of a built-in tool. Where two would be the same but for their case, the second has the workflow's id added.
"""

import logging
import re
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from workflowlookup.errors import StorageError
from workflowlookup.providers.config import Subject

if TYPE_CHECKING:
    from workflowlookup.store.journal import Journal

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST: Final = 52
_SOUND: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}")

Key: TypeAlias = tuple[str, str]
"""A provider and the id of one of its workflows."""
NO_NAMES: Final[Mapping[str, Key]] = {}


def assign(
    workflows: Iterable[Subject],
    kept: Mapping[Key, str],
    reserved: Collection[str],
    freed: Mapping[str, Key] = NO_NAMES,
) -> tuple[dict[Key, str], dict[Key, str]]:
    """A name for each workflow, and those among them that are new. `kept` names are given to nobody else, and those
    that were `freed` lately only to the workflow that had them.
    """
    names: dict[Key, str] = {}
    new: dict[Key, str] = {}
    taken = {name.lower() for name in (*reserved, *kept.values())}
    had = {key: name for name, key in freed.items() if name.lower() not in taken}
    taken |= {name.lower() for name in freed}
    for workflow in workflows:
        key = workflow.provider, workflow.id
        before = kept.get(key)
        if before is not None and before not in reserved:
            names[key] = before
            continue
        free = (name for name in _candidates(workflow) if name.lower() not in taken)
        names[key] = new[key] = had.get(key) or next(free)
        taken.add(names[key].lower())
    return names, new


def _candidates(workflow: Subject) -> Iterator[str]:
    """Names that would do, the best first, without end."""
    own, by_id, provider = slug(workflow.name), slug(workflow.id), slug(workflow.provider)
    base = own or by_id or "workflow"
    if own or by_id:
        yield base[:LONGEST]
    if by_id and by_id != base:
        yield _joined(base, by_id)
    if by_id:
        yield _joined(base, f"{by_id}_{provider}" if by_id != base else provider)
    import hashlib  # noqa: PLC0415 - seldom needed

    number = 0
    while True:  # what is left differs in what cannot be said in a name
        text = f"{workflow.provider}\0{workflow.id}\0{number}"
        yield _joined(base, hashlib.sha256(text.encode()).hexdigest()[:8])
        number += 1


def _joined(base: str, rest: str) -> str:
    """Both parts in one name, the first cut as far as the second needs it, and that to its beginning if need be."""
    rest = rest[: LONGEST - 9]
    return f"{base[: LONGEST - len(rest) - 1].rstrip('_-')}_{rest}"


def slug(text: str) -> str:
    """The text as a name: itself when it is one, else in small letters, with `_` for what cannot be in a name."""
    if _SOUND.fullmatch(text) and not text.istitle():
        return text
    plain = unicodedata.normalize("NFKD", text)
    letters = "".join(character for character in plain if not unicodedata.combining(character))
    return re.sub(r"[^a-z0-9_-]+", "_", letters.lower()).strip("_-")


# ── names that stay ─────────────────────────────────────────────────────────────────────────────────────────────

KEPT_MS: Final = 30 * 24 * 3_600_000
"""For how many milliseconds a freed name is given to no other workflow: a month."""


class KeptNames:
    """The names that one server gives, and found given."""

    def __init__(
        self,
        open_journal: "Callable[[], Journal]",
        on_stored: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """`open_journal` is asked each time, and may raise `StorageError`; `tell_others` is called when names that
        other servers do not know were kept.
        """
        self._open_journal = open_journal
        self._on_stored = on_stored
        self._clock = clock
        self._names: dict[Key, str] = {}
        self._freed: dict[str, tuple[Key, int]] = {}
        """By name: which workflow had it, and when it was freed here."""
        self._has_journal = True

    def assign(
        self,
        workflows: Sequence[Subject],
        reserved: Collection[str],
        *,
        known: Collection[Key],
        certain: Collection[str],
    ) -> Mapping[Key, str]:
        """The name of each workflow: as it was before, wherever it was.

        `known` are all workflows that there are, also those that become no tools. Providers that are `certain` have
        just said all that they have: the name of a workflow that they no longer have is freed. For `KEPT_MS` it is
        given to nobody else, because a client may still mean that workflow by it.
        """
        at = self._clock()
        kept = {**self._stored(), **self._names}
        gone = {key for key in kept if key[0] in certain and key not in known}
        self._freed |= {kept[key]: (key, at) for key in gone}
        freed = self._freed_since(at - KEPT_MS)
        kept = _without(kept, gone)
        names, new = assign(workflows, kept, reserved, freed)
        if (new or gone) and self._store(new, gone, at):
            stored = self._stored()
            if any(stored.get(key) != name for key, name in new.items()):  # another server was faster with one
                names, more = assign(workflows, {**kept, **stored}, reserved, freed)
                self._store(more, (), at)
        self._names = {**_without(self._names, gone), **names}
        return names

    def _stored(self) -> Mapping[Key, str]:
        return self._ask(lambda journal: journal.tool_names()) or {}

    def _freed_since(self, since: int) -> Mapping[str, Key]:
        here = {name: key for name, (key, at) in self._freed.items() if at >= since}
        return {**here, **(self._ask(lambda journal: journal.freed_names(since)) or {})}

    def _store(self, added: Mapping[Key, str], removed: Iterable[Key], at: int) -> bool:
        self._ask(lambda journal: journal.keep_tool_names(added, removed, at))
        if self._has_journal:
            self._on_stored()
        return self._has_journal

    def forget(self) -> None:
        """Another server has given names, or taken some back: those in the journal count."""
        self._names.clear()

    def _ask(self, question: "Callable[[Journal], T]") -> T | None:
        """The journal's answer; None when it cannot be used, which is said once."""
        try:
            answer = question(self._open_journal())
        except StorageError as problem:
            if self._has_journal:
                log.warning("names of workflow tools are kept in memory only: %s", problem)
            self._has_journal = False
            return None
        self._has_journal = True
        return answer


def _without(names: Mapping[Key, str], gone: Collection[Key]) -> dict[Key, str]:
    return {key: name for key, name in names.items() if key not in gone}
