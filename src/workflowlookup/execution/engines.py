"""Which engine drives the runs of a journal: a table by the kind of the journal."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from workflowlookup.execution.engine import Drive, Engine, Limits
from workflowlookup.journals import POSTGRES, SQLITE, JournalKind, JournalUrl


class EngineKind(msgspec.Struct, frozen=True, kw_only=True):
    """How engines of one kind are made, and what is to be known of them without making one."""

    make: Callable[[str, Drive, Limits, bool], Engine]
    """From the journal's URL, what drives, how many at once, and whether it is a guest."""
    version: Callable[[str], int | None] | None = None
    """The version of its tables at a journal's URL, or None where there are none yet; for an engine that has tables."""


def _make_local(path: str, drive: Drive, limits: Limits, is_guest: bool) -> Engine:  # noqa: ARG001, FBT001 - a guest is like any other
    from workflowlookup.execution.local import LocalEngine  # noqa: PLC0415 - each loads what only it needs

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
