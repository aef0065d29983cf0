"""Which engine drives the runs of a journal: a table by the kind of the journal."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from workflowlookup.execution.engine import Drive, Engine, Limits
from workflowlookup.store.journal_url import POSTGRES, SQLITE, JournalKind, JournalUrl


class EngineKind(msgspec.Struct, frozen=True, kw_only=True):
    """How to make engines of one kind, and to read the version of their tables without making one."""

    make: Callable[[str, Drive, Limits, bool], Engine]
    """Called with the journal's URL, what drives a run, the limits, and whether it is a guest (see `DbosEngine`)."""
    version: Callable[[str], int | None] | None = None
    """The version of its tables at a journal's URL, or None before they are made; for an engine that has tables."""


def _make_local(path: str, drive: Drive, limits: Limits, is_guest: bool) -> Engine:  # noqa: ARG001, FBT001 - guests need nothing special
    from workflowlookup.execution.local import LocalEngine  # noqa: PLC0415 - only for a journal of this kind

    return LocalEngine(path, drive, limits)


def _make_dbos(url: str, drive: Drive, limits: Limits, is_guest: bool) -> Engine:  # noqa: FBT001
    from workflowlookup.execution.dbos import DbosEngine  # noqa: PLC0415 - as above

    return DbosEngine(url, drive, limits, is_guest=is_guest)


def _dbos_version(url: str) -> int | None:
    from workflowlookup.execution.dbos import tables_version  # noqa: PLC0415 - as above

    return tables_version(url)


LOCAL: Final = EngineKind(make=_make_local)
DBOS: Final = EngineKind(make=_make_dbos, version=_dbos_version)

ENGINES: Final[Mapping[JournalKind, EngineKind]] = {SQLITE: LOCAL, POSTGRES: DBOS}


def engine_of(url: str) -> EngineKind:
    """The engine for the journal at a URL."""
    return ENGINES[JournalUrl(url).kind]
