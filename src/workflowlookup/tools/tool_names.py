"""Names of workflow tools: made from the workflow's name, then stored, so that they never change.

A name has at most 52 letters, digits, `_` and `-` (some clients add a prefix and allow 64), and is never the name of a
built-in tool. If two names differ at most in case, the workflow's id is appended to the second. Names are stored in the
journal, where other replicas find them; without a journal they last as long as the process.
"""

import logging
import re
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from workflowlookup.errors import StorageError
from workflowlookup.providers.config import ToolCandidate

if TYPE_CHECKING:
    from workflowlookup.store.journal import Journal

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_LENGTH: Final = 52
_VALID_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_LENGTH}}}")

Key: TypeAlias = tuple[str, str]
"""A provider and the id of one of its workflows."""
NO_NAMES: Final[Mapping[str, Key]] = {}


def assign_names(
    workflows: Iterable[ToolCandidate],
    stored: Mapping[Key, str],
    reserved: Collection[str],
    freed: Mapping[str, Key] = NO_NAMES,
) -> tuple[dict[Key, str], dict[Key, str]]:
    """A name for each workflow, and the new names among them.

    No other workflow gets a `stored` name. A recently `freed` name goes only to the workflow that had it.
    """
    names: dict[Key, str] = {}
    new: dict[Key, str] = {}
    taken = {name.lower() for name in (*reserved, *stored.values())}
    former = {key: name for name, key in freed.items() if name.lower() not in taken}
    taken |= {name.lower() for name in freed}
    for workflow in workflows:
        key = workflow.provider, workflow.id
        name = stored.get(key)
        if name is not None and name not in reserved:
            names[key] = name
            continue
        free = (candidate for candidate in _candidates(workflow) if candidate.lower() not in taken)
        names[key] = new[key] = former.get(key) or next(free)
        taken.add(names[key].lower())
    return names, new


def _candidates(workflow: ToolCandidate) -> Iterator[str]:
    """Possible names, the best first, without end."""
    from_name, from_id, provider = slug(workflow.name), slug(workflow.id), slug(workflow.provider)
    base = from_name or from_id or "workflow"
    if from_name or from_id:
        yield base[:MAX_LENGTH]
    if from_id and from_id != base:
        yield _joined(base, from_id)
    if from_id:
        yield _joined(base, f"{from_id}_{provider}" if from_id != base else provider)
    import hashlib  # noqa: PLC0415 - rarely needed

    number = 0
    while True:  # the workflows differ only in characters that names cannot have
        text = f"{workflow.provider}\0{workflow.id}\0{number}"
        yield _joined(base, hashlib.sha256(text.encode()).hexdigest()[:8])
        number += 1


def _joined(base: str, suffix: str) -> str:
    """Both parts in one name; if that is too long, the base is cut, and at last the suffix."""
    suffix = suffix[: MAX_LENGTH - 9]
    return f"{base[: MAX_LENGTH - len(suffix) - 1].rstrip('_-')}_{suffix}"


def slug(text: str) -> str:
    """The text as a name: unchanged if it is a valid one, else in lower case with `_` for other characters."""
    if _VALID_NAME.fullmatch(text) and not text.istitle():
        return text
    plain = unicodedata.normalize("NFKD", text)
    letters = "".join(character for character in plain if not unicodedata.combining(character))
    return re.sub(r"[^a-z0-9_-]+", "_", letters.lower()).strip("_-")


# ── stored names ────────────────────────────────────────────────────────────────────────────────────────────────

FREED_NAME_MS: Final = 30 * 24 * 3_600_000
"""How long no other workflow gets a freed name: 30 days, in milliseconds."""


class StoredNames:
    """The names of workflow tools in the journal, as one server reads and extends them."""

    def __init__(
        self,
        open_journal: "Callable[[], Journal]",
        on_stored: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """`open_journal` is called for each use and may raise `StorageError`. `on_stored` is called after names were
        stored that other replicas do not have yet.
        """
        self._open_journal = open_journal
        self._on_stored = on_stored
        self._clock = clock
        self._names: dict[Key, str] = {}
        self._freed: dict[str, tuple[Key, int]] = {}
        """By name: the workflow that had it, and when this server freed it."""
        self._has_journal = True

    def assign(
        self,
        workflows: Sequence[ToolCandidate],
        reserved: Collection[str],
        *,
        existing: Collection[Key],
        listed: Collection[str],
    ) -> Mapping[Key, str]:
        """The name of each workflow: the stored one, or a new one, which is then stored.

        `existing` are all workflows, also those that become no tools. The providers in `listed` have just listed
        everything they have, so the names of workflows that they no longer have are freed. No other workflow gets a
        freed name for `FREED_NAME_MS`, because a client may still call the old workflow by it.
        """
        at = self._clock()
        current = {**self._read(), **self._names}
        removed = {key for key in current if key[0] in listed and key not in existing}
        self._freed |= {current[key]: (key, at) for key in removed}
        freed = self._freed_since(at - FREED_NAME_MS)
        current = _without(current, removed)
        names, new = assign_names(workflows, current, reserved, freed)
        if (new or removed) and self._store(new, removed, at):
            stored = self._read()
            if any(stored.get(key) != name for key, name in new.items()):  # another server stored a name first
                names, more = assign_names(workflows, {**current, **stored}, reserved, freed)
                self._store(more, (), at)
        self._names = {**_without(self._names, removed), **names}
        return names

    def _read(self) -> Mapping[Key, str]:
        return self._use_journal(lambda journal: journal.tool_names()) or {}

    def _freed_since(self, since: int) -> Mapping[str, Key]:
        in_memory = {name: key for name, (key, at) in self._freed.items() if at >= since}
        return {**in_memory, **(self._use_journal(lambda journal: journal.freed_names(since)) or {})}

    def _store(self, added: Mapping[Key, str], removed: Iterable[Key], at: int) -> bool:
        self._use_journal(lambda journal: journal.store_tool_names(added, removed, at))
        if self._has_journal:
            self._on_stored()
        return self._has_journal

    def forget(self) -> None:
        """Drop the names in memory, because another server has stored or freed names."""
        self._names.clear()

    def _use_journal(self, operation: "Callable[[Journal], T]") -> T | None:
        """The result of the operation; None if the journal cannot be used, which is logged once."""
        try:
            result = operation(self._open_journal())
        except StorageError as error:
            if self._has_journal:
                log.warning("names of workflow tools are kept in memory only: %s", error)
            self._has_journal = False
            return None
        self._has_journal = True
        return result


def _without(names: Mapping[Key, str], removed: Collection[Key]) -> dict[Key, str]:
    return {key: name for key, name in names.items() if key not in removed}
