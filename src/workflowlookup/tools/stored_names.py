"""Names of workflow tools that stay: in the journal, so that they outlive the process and its neighbours have them too.

How a name is made is in `tool_names`. Where the journal cannot be used, names stay for as long as the process lives.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from workflowlookup.errors import StorageError
from workflowlookup.providers.config import Subject
from workflowlookup.tools.tool_names import Key, assign

if TYPE_CHECKING:
    from workflowlookup.store.journal import Journal

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT_MS: Final = 30 * 24 * 3_600_000
"""For how many milliseconds a freed name is given to no other workflow: a month."""


class KeptNames:
    """The names that one server gives, and found given."""

    def __init__(
        self,
        open_journal: "Callable[[], Journal]",
        tell_others: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """`open_journal` is asked each time, and may raise `StorageError`; `tell_others` is called when names that
        other servers do not know were kept.
        """
        self._open_journal = open_journal
        self._tell_others = tell_others
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
            self._tell_others()
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
