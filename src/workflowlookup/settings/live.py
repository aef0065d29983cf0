"""Reloading of settings while a server runs, and warnings about settings that cannot be used."""

import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from workflowlookup.settings.model import Settings, SettingsError
from workflowlookup.settings.table import LIVE, SETTINGS

log = logging.getLogger(__name__)
MAX_FAULTS: Final = 3
"""How many faults of a project's settings file one message names."""


def warn_left_out(settings: Settings, before: Settings | None = None) -> None:
    """Log the entries of other systems that cannot be used; with `before`, only new ones."""
    for entry, problem in settings.left_out.items():
        if before is None or before.left_out.get(entry) != problem:
            message = "[%s] is ignored; the rest works: %s. Fix the entry; no restart is needed"
            log.warning(message, entry, problem)


def warn_faults(settings: Settings) -> None:
    """Log what is wrong in the project's settings file."""
    if settings.faults:
        more = f"; and {len(settings.faults) - MAX_FAULTS} more" if len(settings.faults) > MAX_FAULTS else ""
        faults = "; ".join(settings.faults[:MAX_FAULTS]) + more
        log.warning("ignored in the settings of the project: %s. Fix or remove it; everything else works", faults)


def warn_ignored(settings: Settings, before: Settings | None = None) -> None:
    """Log, by file, the untrusted entries of a repository; with `before`, only new ones."""
    if settings.ignored:
        from workflowlookup.trust import SOURCE, how_to_trust  # noqa: PLC0415 - loaded with them

        runs = [entry for entry in settings.ignored if entry.kind != SOURCE]  # the commands that fetch say so
        new = [entry for entry in runs if before is None or entry not in before.ignored]
        if new and (problem := settings.trust.store().fault()):
            log.warning("%s", problem)
        for file in dict.fromkeys(entry.file for entry in new):
            names = ", ".join(str(entry) for entry in new if entry.file == file)
            log.warning("ignored in %s, because it is not trusted: %s. %s", file, names, how_to_trust([file]))


POLL_SECONDS: Final = 1.0


class Live:
    """The settings in force, reloaded when a file changes. A file that cannot be used changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._started_with = settings
        self.problem = ""
        """What is wrong with the current file."""
        self._signatures = _signatures(settings.candidates)
        self._next_poll = 0.0
        self._pending_restart: list[str] = []

    def poll(self, *, force: bool = False) -> Settings | None:
        """The new settings, if a live setting has changed; None if not. `force` reads unchanged files as well.

        A fault is logged, and stays in `problem` until the file is fixed.
        """
        now = time.monotonic()
        if now < self._next_poll and not force:
            return None
        self._next_poll = now + POLL_SECONDS
        signatures = _signatures(self.settings.candidates)
        if (signatures == self._signatures and not force) or self.settings.reload is None:
            return None
        self._signatures = signatures
        try:
            new = self.settings.reload()
            faults = [fault for fault in new.faults if fault not in self.settings.faults]
            problem = "; ".join(faults[:MAX_FAULTS])
        except SettingsError as refusal:
            problem = str(refusal)
        if problem:
            if problem != self.problem:
                log.warning("the settings were not reloaded: %s", problem)
            self.problem = problem
            return None
        if self.problem:
            log.info("the settings can be read again")
        self.problem = ""
        before, self.settings = self.settings, new
        warn_left_out(new, before)
        warn_ignored(new, before)
        if (names := self.pending_restart()) != self._pending_restart:
            self._pending_restart = names
            log.warning("changed settings that take effect after a restart: %s", ", ".join(names) or "none")
        live = (*sorted(LIVE), "servers", "providers", "commands")
        return new if any(getattr(new, name) != getattr(before, name) for name in live) else None

    def pending_restart(self) -> list[str]:
        """The changed settings that take effect only after a restart."""
        names = [setting.name for setting in SETTINGS if setting.name not in LIVE]
        changed = [name for name in names if getattr(self.settings, name) != getattr(self._started_with, name)]
        has_same_sources = _sources(self.settings) == _sources(self._started_with)
        return changed if has_same_sources else [*changed, "sources"]


def _sources(settings: Settings) -> list[object]:
    return [(name, one.source, one.file) for name, one in settings.sources.items()]


def _signatures(files: Sequence[str]) -> list[object]:
    """Values that change when the files change."""
    signatures: list[object] = []
    for file in files:
        try:
            status = os.stat(file)
            signatures.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            signatures.append(None)
    return signatures
