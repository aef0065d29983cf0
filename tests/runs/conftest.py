"""Fixtures: a place for a journal in each kind of store, and servers that can be killed and started again."""

import pytest

from journey import FLOW
from make import write


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where a journal can be: what the setting `journal` says."""
    if request.param == "sqlite":
        return str(tmp_path / "data" / "runs.sqlite")
    return request.getfixturevalue("database")


@pytest.fixture
def serve(start, library):
    """Starts servers of the same library; `journal` is the place."""
    write(library, FLOW)

    def serve_journal(journal, **options):
        return start(directory=library, WORKFLOWLOOKUP_JOURNAL=str(journal), **options)

    return serve_journal
