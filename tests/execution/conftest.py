"""Fixtures: an upstream, and work that follows the runs of a journal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from execution.working import NO_COMMANDS, Working, server_config
from upstream.upstreams import McpUpstream
from workflowlookup.providers.config import Plan


@pytest.fixture
def sqlite_journal(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "runs.sqlite")


@pytest.fixture
def upstream(tmp_path: Path) -> McpUpstream:
    """An MCP server that the test starts if it needs it."""
    return McpUpstream(tmp_path / "up")


@pytest.fixture
def work(upstream: McpUpstream) -> Iterator[Callable[..., Working]]:
    """Makes work with a journal; one at a time, because the engine is one a process."""
    made: list[Working] = []

    def make_work(
        journal_url: str, root: str = "", commands: Mapping[str, Sequence[str]] = NO_COMMANDS, **plan: Any
    ) -> Working:
        plan.setdefault("servers", {"up": server_config(upstream)})
        made.append(Working(journal_url, Plan(**plan), root, commands))
        return made[-1]

    yield make_work
    for one in reversed(made):
        one.close()
