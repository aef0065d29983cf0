"""Discovery of workflows in the background, with a log line for every failure."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from upstream.upstreams import ONE, HttpUpstream
from workflowlookup.providers import discovery as module
from workflowlookup.providers.config import ProviderConfig
from workflowlookup.providers.discovery import Discovery
from workflowlookup.providers.http import HttpProvider

TWO = {**ONE, "id": "two", "name": "Two"}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpUpstream]:
    monkeypatch.setattr(module, "FIRST_RETRY", 0.05)
    with HttpUpstream(tmp_path / "svc") as made:
        yield made


class Rings:
    def __init__(self) -> None:
        self.count = 0

    def wake(self) -> None:
        self.count += 1


@contextlib.asynccontextmanager
async def discovering(
    service: HttpUpstream, refresh_seconds: float = 0.0
) -> AsyncIterator[tuple[module.Discovery, Rings]]:
    rings = Rings()
    discovery = Discovery(rings.wake)
    provider = HttpProvider(ProviderConfig(name="svc", kind="http", options={"base_url": service.url, "timeout": 2}))
    discovery.apply({"svc": provider}, refresh_seconds)
    try:
        yield discovery, rings
    finally:
        await discovery.aclose()
        await provider.aclose()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def ids(discovery: Discovery) -> list[str]:
    return [definition.id for definition in discovery.snapshot()["svc"].definitions]


def test_workflows_of_a_provider_are_discovered_and_only_changes_are_announced(service: HttpUpstream) -> None:
    async def go() -> None:
        async with discovering(service) as (discovery, rings):
            assert discovery.snapshot()["svc"].is_listed is False
            await until(lambda: discovery.snapshot()["svc"].is_listed)
            rung, before = rings.count, discovery.snapshot()["svc"].definitions
            await discovery.refresh()
            assert (rings.count, discovery.snapshot()["svc"].definitions) == (rung, before)
            service.control(workflows=[TWO])
            await discovery.refresh()
            assert (rings.count, ids(discovery)) == (rung + 1, ["two"])

    asyncio.run(go())


def test_a_provider_that_is_down_keeps_its_list_and_recovers(
    service: HttpUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def go() -> None:
        async with discovering(service, refresh_seconds=0.05) as (discovery, _):
            await until(lambda: ids(discovery) == ["deploy"])
            service.stop()
            await until(lambda: discovery.snapshot()["svc"].is_away)
            assert ids(discovery) == ["deploy"]
            assert "cannot be reached" in discovery.snapshot()["svc"].cause
            service.control(workflows=[ONE, TWO])
            service.start()
            await until(lambda: ids(discovery) == ["deploy", "two"] and not discovery.snapshot()["svc"].is_away)

    asyncio.run(go())

    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "the workflows of provider 'svc' cannot be listed: the provider 'svc' cannot be reached"
    )
    assert warnings[0].endswith("; its 1 workflows stay listed")
    assert "the provider 'svc' is back" in caplog.text


@pytest.mark.parametrize("how", ["fail", "garbage"])
def test_a_provider_with_invalid_answers_is_polled_again(service: HttpUpstream, how: str) -> None:
    service.control(list=how)

    async def go() -> None:
        async with discovering(service) as (discovery, _):
            await until(lambda: len(service.seen("list")) >= 3)
            assert discovery.snapshot()["svc"].is_away
            service.control(list="ok")
            await until(lambda: ids(discovery) == ["deploy"])

    asyncio.run(go())


def test_one_bad_workflow_is_skipped_by_name_once(service: HttpUpstream, caplog: pytest.LogCaptureFixture) -> None:
    service.control(workflows=[{"id": "bad"}, ONE])

    async def go() -> None:
        async with discovering(service) as (discovery, _):
            await until(lambda: ids(discovery) == ["deploy"])
            await discovery.refresh()

    asyncio.run(go())

    problem = "provider 'svc': workflow 'bad' is skipped: name is required; description is required"
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [problem]


def test_an_unchanged_answer_notifies_nobody(service: HttpUpstream) -> None:
    async def go() -> None:
        async with discovering(service) as (discovery, _):
            await until(lambda: discovery.snapshot()["svc"].is_listed)
            before = discovery.snapshot()
            await discovery.refresh()
            assert discovery.snapshot() is before
            assert len(service.seen("list")) == 2

    asyncio.run(go())


def test_concurrent_refreshes_share_one_further_request(service: HttpUpstream) -> None:
    async def go() -> None:
        async with discovering(service) as (discovery, _):
            await until(lambda: discovery.snapshot()["svc"].is_listed)
            service.control(delay=0.3, workflows=[TWO])
            await asyncio.gather(*(discovery.refresh() for _ in range(50)))
            assert ids(discovery) == ["two"]
            assert len(service.seen("list")) == 2

    asyncio.run(go())


def test_workflows_stay_listed_when_new_settings_are_unreachable(service: HttpUpstream) -> None:
    async def go() -> None:
        async with discovering(service) as (discovery, _):
            await until(lambda: discovery.snapshot()["svc"].is_listed)
            away = HttpProvider(ProviderConfig(name="svc", kind="http", options={"base_url": "http://127.0.0.1:9"}))
            discovery.apply({"svc": away}, 0.0)
            await until(lambda: discovery.snapshot()["svc"].is_away)
            assert ids(discovery) == ["deploy"]
            await away.aclose()

    asyncio.run(go())
