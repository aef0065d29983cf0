"""A server that is killed in the middle of its work: at the n-th access to the journal, n being the first argument.

A touch is each of: before an append or another transaction, at its begin, after each statement and each row of it, and
when it is stored but nobody has been told.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from workflowlookup.cli.main import main
from workflowlookup.store import journal_url

touches_left = int(sys.argv.pop(1))


def touch() -> None:
    global touches_left  # noqa: PLW0603 - a process dies once
    touches_left -= 1
    if not touches_left:
        os.kill(os.getpid(), signal.SIGKILL)


class Doomed:
    """A transaction that is touched."""

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    def execute(self, *arguments: Any) -> Any:
        done = self._transaction.execute(*arguments)
        touch()
        return done

    def executemany(self, statement: str, rows: Sequence[Any]) -> None:
        for row in rows:
            self._transaction.executemany(statement, [row])
            touch()


def doomed(open_journal: Callable[..., Any]) -> Callable[..., Any]:
    def open_doomed(*arguments: Any) -> Any:
        journal = open_journal(*arguments)
        append, whole = journal.append, journal.writing

        def doomed_append(*arguments: Any) -> None:
            touch()
            append(*arguments)
            touch()

        @contextlib.contextmanager
        def writing() -> Iterator[Doomed]:
            touch()
            with whole() as transaction:
                touch()
                yield Doomed(transaction)
            touch()

        journal.append, journal.writing = doomed_append, writing
        return journal

    return open_doomed


kinds = {scheme: msgspec.structs.replace(kind, open=doomed(kind.open)) for scheme, kind in journal_url.JOURNALS.items()}
vars(journal_url)["JOURNALS"] = kinds
sys.exit(main(sys.argv[1:]))
