"""While one of three replicas stops, drains or is sick, no request fails: through the shipped nginx, and round robin.

`make soak` takes longer, with more clients; the figures are printed.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from replicas.fleet import Fleet, Load, nginx, nginx_program, reply_of
from support.journey import IS_SOAK
from support.json_values import Json
from support.postgres import Postgres
from support.web import HEADERS, modern, routing

CLIENTS = 24 if IS_SOAK else 4
ROUNDS = 3 if IS_SOAK else 1
SLOW_SECONDS = 18 if IS_SOAK else 6
SICK_SECONDS = 30 if IS_SOAK else 4


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    nginx_program()
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), postgres.create_database(), slow_seconds=SLOW_SECONDS)
    yield fleet
    fleet.stop()


@pytest.fixture
def load(
    fleet: Fleet, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Iterator[Load]:
    """Clients at work, none of whose requests fails."""
    with nginx(tmp_path, fleet.ports) as proxy, Load(fleet, proxy, CLIENTS) as load:
        yield load
    with capsys.disabled():
        print("\n" + load.figures(request.node.name))
    assert load.failures == [], "\n".join(load.failures)
    assert min(load.requests["through nginx"], load.requests["round robin"]) > 20


def test_replicas_are_restarted_one_after_the_other(fleet: Fleet, load: Load) -> None:
    for _ in range(ROUNDS):
        for number in range(3):
            fleet.restart(number)


def test_a_replica_that_stops_finishes_a_long_call(fleet: Fleet, load: Load) -> None:
    states: list[Json] = []

    def call() -> None:
        message = modern("tools/call", {"name": "workflow_start", "arguments": {"workflowId": "slow"}})
        headers = HEADERS | routing(message) | {"authorization": f"Bearer {fleet.token}"}
        response = httpx2.post(fleet.urls[0], content=json.dumps(message).encode(), headers=headers, timeout=60)
        states.append(reply_of(response)["result"]["structuredContent"]["state"])

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(1)

    fleet.restart(0)

    thread.join(60)
    assert states == ["completed"]


@pytest.mark.parametrize("fault", ["cut", "freeze"])
def test_a_replica_loses_its_database(fleet: Fleet, load: Load, fault: str) -> None:
    getattr(fleet.link, fault)()
    fleet.wait_until_ready(0, is_so=False)
    load.go_on(SICK_SECONDS)

    fleet.link.restore()

    fleet.wait_until_ready(0)
    load.go_on(1)
