"""Runs for journals: begun and led on without a service, straight into the place that is looked at."""

import contextlib
import threading

from support.make import document, step
from workflowlookup.errors import StorageError
from workflowlookup.language.building import build
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Moment
from workflowlookup.store.journal import summarise

WORKFLOW = build(document(step("one"), step("two"), step("three"), deadlineSeconds=60))

CALLING = build(
    document({"id": "make-it", "title": "Make", "call": {"server": "s", "tool": "t", "saveAs": "made", "retries": 1}})
)


URLS = {
    "sqlite": lambda _, directory: str(directory / "data" / "runs.sqlite"),
    "postgres": lambda request, _: request.getfixturevalue("database"),
}
"""By kind of journal: the URL of a new one, for a test with this `request` and this directory."""


class Store:
    """A place for a journal, which as many as like can open."""

    def __init__(self, make):
        self.make = make
        self._opened = []

    def open(self):
        journal = self.make()
        self._opened.append(journal)
        return journal

    def close(self):
        for journal in self._opened:
            with contextlib.suppress(StorageError):
                journal.close()


def at_once(call, number):
    """Call a function in so many threads, all at the same moment."""
    barrier = threading.Barrier(number)

    def wait_and_call(index):
        barrier.wait()
        call(index)

    threads = [threading.Thread(target=wait_and_call, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def begin(journal, run_id="r1", *, time=1_000, workflow=WORKFLOW):
    draft = advance.begin(
        run_id, workflow, {"ticket": "T-1"}, {"text": "nül\0 \U0001f600", "big": 10**30}, Moment(time=time, by="é")
    )
    journal.append(run_id, 0, draft.records, summarise(draft.run))
    return draft


def submit(journal, run, *, time=2_000, output="done"):
    draft = advance.submit(run, run.current, output, {"a": [1, 2.5, None]}, Moment(time=time))
    journal.append(run.id, run.sequence, draft.records, summarise(draft.run))
    return draft


def call(journal, run_id, *, time=1_000):
    return begin(journal, run_id, time=time, workflow=CALLING).run
