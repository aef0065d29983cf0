"""The workflows of providers as they were last listed, kept with the journal: the first list has their tools at once.

What is remembered counts only for the settings that it was listed under, and until the provider lists it again.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from workflowlookup.errors import StorageError
from workflowlookup.providers.config import Plan
from workflowlookup.providers.definition import Definition

if TYPE_CHECKING:
    from workflowlookup.providers.discovery import Discovered
    from workflowlookup.store.journal import Journal

log = logging.getLogger(__name__)

T = TypeVar("T")
_decode = msgspec.json.Decoder(tuple[Definition, ...]).decode


class Remembered:
    """For one server. Where the journal cannot be used, nothing is remembered."""

    def __init__(self, open_journal: "Callable[[], Journal]") -> None:
        """`open_journal` may raise `StorageError`."""
        self._open_journal = open_journal
        self._known: Mapping[str, tuple[str, str]] | None = None
        """By provider: a digest of its settings, and its workflows as JSON."""

    def definitions(self, plan: Plan) -> Mapping[str, tuple[Definition, ...]]:
        """By provider: what it had, if its settings are still the same."""
        found: dict[str, tuple[Definition, ...]] = {}
        for name, (digest, body) in self._stored().items():
            if name in plan.providers and digest == _digest(plan, name):
                try:
                    found[name] = _decode(body)
                except msgspec.MsgspecError as problem:  # of another version: it is listed again soon
                    log.debug("what is remembered of provider '%s' cannot be read: %s", name, problem)
        return found

    def keep(self, plan: Plan, discovered: "Mapping[str, Discovered]") -> None:
        """Remember what providers have just listed."""
        for name, found in discovered.items():
            if not found.is_listed or found.is_away or name not in plan.providers:
                continue
            entry = (_digest(plan, name), msgspec.json.encode(found.definitions).decode())
            if self._stored().get(name) != entry:
                self._ask(lambda journal, name=name, entry=entry: journal.remember(name, *entry))  # type: ignore[misc]
                self._known = {**self._stored(), name: entry}

    def _stored(self) -> Mapping[str, tuple[str, str]]:
        if self._known is None:
            self._known = self._ask(lambda journal: journal.remembered()) or {}
        return self._known

    def _ask(self, question: "Callable[[Journal], T]") -> T | None:
        try:
            return question(self._open_journal())
        except StorageError as problem:
            log.debug("the workflows of providers are not remembered: %s", problem)
            return None


def _digest(plan: Plan, name: str) -> str:
    """What the settings say of a provider and of its server, without saying it."""
    import hashlib  # noqa: PLC0415 - where there are providers

    config = plan.providers[name]
    server = plan.servers.get(str(config.options.get("server") or name))
    said = msgspec.json.encode([config.kind, config.options, server], order="deterministic")
    return hashlib.sha256(said).hexdigest()
