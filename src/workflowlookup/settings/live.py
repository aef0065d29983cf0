"""Settings that change while a server runs, and the warnings about settings that cannot be used."""

import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from workflowlookup.settings.model import Settings, SettingsError
from workflowlookup.settings.table import LIVE, SETTINGS

log = logging.getLogger(__name__)
MAX_FAULTS: Final = 3
"""How many faults of a project's settings file one line names."""


def warn_left_out(settings: Settings, before: Settings | None = None) -> None:
    """Log the entries of other systems that cannot be used; with `before`, those that were in order then."""
    for entry, problem in settings.left_out.items():
        if before is None or before.left_out.get(entry) != problem:
            message = "[%s] is left out; the rest works: %s. Fix the entry; no restart is needed"
            log.warning(message, entry, problem)


def warn_faults(settings: Settings) -> None:
    """Log what is wrong in the project's settings file."""
    if settings.faults:
        more = f"; and {len(settings.faults) - MAX_FAULTS} more" if len(settings.faults) > MAX_FAULTS else ""
        what = "; ".join(settings.faults[:MAX_FAULTS]) + more
        log.warning("ignored in the settings of the project: %s. Fix or remove it; everything else works", what)


def warn_ignored(settings: Settings, before: Settings | None = None) -> None:
    """Log what a repository brings and nobody trusted, by file; with `before`, what was not ignored then."""
    if settings.ignored:
        from workflowlookup.trust import how_to_trust  # noqa: PLC0415 - loaded with them

        new = [entry for entry in settings.ignored if before is None or entry not in before.ignored]
        if new and (problem := settings.trust.store().fault()):
            log.warning("%s", problem)
        for file in dict.fromkeys(entry.file for entry in new):
            what = ", ".join(str(entry) for entry in new if entry.file == file)
            log.warning("ignored in %s, because it is not trusted: %s. %s", file, what, how_to_trust([file]))


SECONDS_BETWEEN_LOOKS: Final = 1.0


class Live:
    """The settings in force, read again when their file changes; one that cannot be used changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._started_with = settings
        self.problem = ""
        """What is wrong with the file as it is now."""
        self._seen = _signatures(settings.candidates)
        self._next_look = 0.0
        self._stuck: list[str] = []

    def look(self, *, is_asked: bool = False) -> Settings | None:
        """The new settings, when what can change has changed; asked outright, the file is read in any case.

        What is wrong is logged, and is in `problem` until the file is mended.
        """
        now = time.monotonic()
        if now < self._next_look and not is_asked:
            return None
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        signatures = _signatures(self.settings.candidates)
        if (signatures == self._seen and not is_asked) or self.settings.reload is None:
            return None
        self._seen = signatures
        try:
            new = self.settings.reload()
            faults = [fault for fault in new.faults if fault not in self.settings.faults]
            problem = "; ".join(faults[:MAX_FAULTS])
        except SettingsError as refusal:
            problem = str(refusal)
        if problem:
            if problem != self.problem:
                log.warning("the settings stay as they were: %s", problem)
            self.problem = problem
            return None
        if self.problem:
            log.info("the settings can be read again")
        self.problem = ""
        before, self.settings = self.settings, new
        warn_left_out(new, before)
        warn_ignored(new, before)
        if self.stuck() != self._stuck:
            self._stuck = self.stuck()
            log.warning("what has changed takes effect with the next start: %s", ", ".join(self._stuck) or "nothing")
        live = (*sorted(LIVE), "servers", "providers")
        return new if any(getattr(new, name) != getattr(before, name) for name in live) else None

    def stuck(self) -> list[str]:
        """The settings that have other values now but take effect with the next start only."""
        names = [setting.name for setting in SETTINGS if setting.name not in LIVE]
        return [name for name in names if getattr(self.settings, name) != getattr(self._started_with, name)]


def _signatures(files: Sequence[str]) -> list[object]:
    """What changes when one of the files does."""
    found: list[object] = []
    for file in files:
        try:
            status = os.stat(file)
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return found
