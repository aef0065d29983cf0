"""Services over HTTP: paging, fields, headers from the environment."""

import asyncio
import logging

import pytest

from upstream.upstreams import HttpUpstream
from workflowlookup.providers.config import ProviderConfig
from workflowlookup.providers.http import HttpProvider
from workflowlookup.providers.provider import ProviderError


@pytest.fixture
def service(tmp_path):
    with HttpUpstream(tmp_path / "svc") as made:
        yield made


def ask(service, what, **options):
    async def go():
        provider = HttpProvider(ProviderConfig(name="svc", kind="http", options={"base_url": service.url, **options}))
        try:
            return await what(provider)
        finally:
            await provider.aclose()

    return asyncio.run(go())


def flows(count):
    return [{"id": f"w{n}", "name": f"W {n}", "description": "d"} for n in range(count)]


def test_every_page_of_a_list_is_read(service):
    service.control(workflows=flows(25), page=10)

    found = ask(service, lambda provider: provider.list())

    assert [item["id"] for item in found] == [f"w{n}" for n in range(25)]
    assert [seen["path"] for seen in service.seen("list")] == ["/workflows", "/workflows?page=2", "/workflows?page=3"]


def test_pages_can_be_counted(service):
    service.control(workflows=flows(5), page=2)

    found = ask(service, lambda provider: provider.list(), paging={"parameter": "page", "total": "total"})

    assert len(found) == 5


def test_headers_take_their_values_from_the_environment_and_nothing_tells_them(service, monkeypatch, caplog):
    monkeypatch.setenv("SVC_TOKEN", "hush-hush")
    service.control(token="Api-Key hush-hush")
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": "Api-Key ${SVC_TOKEN}"}

    assert ask(service, lambda provider: provider.list(), headers=headers)
    monkeypatch.setenv("SVC_TOKEN", "wrong-hush")
    with pytest.raises(ProviderError) as problem:
        ask(service, lambda provider: provider.list(), headers=headers)

    assert str(problem.value) == "the provider 'svc' answered with HTTP status 401: who are you?"
    assert "hush" not in caplog.text


def test_a_variable_that_is_not_set_is_named(service):
    with pytest.raises(ProviderError, match="needs the environment variable NO_SUCH_TOKEN, which is not set"):
        ask(service, lambda provider: provider.list(), headers={"Authorization": "${NO_SUCH_TOKEN}"})


def test_a_next_page_on_another_host_is_not_followed(service):
    service.control(workflows={"items": flows(1), "next": "http://elsewhere.example/workflows"})

    with pytest.raises(ProviderError, match="has its next page on another host"):
        ask(service, lambda provider: provider.list())


def test_endpoints_bodies_fields_and_states_are_settings(service):
    service.control(
        workflows=[{"key": 7, "label": "Seven", "about": "d"}], runs={"*": {"seconds": 0, "outcome": "halted"}}
    )

    async def go(provider):
        (item,) = await provider.list()
        run = await provider.start(item["id"], {"a": 1}, "k-1")
        return item, await provider.status(item["id"], run.remote_id)

    item, status = ask(
        service,
        go,
        fields={"id": "key", "name": "label", "description": "about"},
        start_body={"input": {"wrapped": "$input", "key": "$key"}},
        states={"HALTED": "failed"},
        key_header="X-Key",
    )

    assert item == {"id": "7", "name": "Seven", "description": "d"}
    (start,) = service.seen("start")
    assert (start["body"], start["headers"]["x-key"]) == ({"input": {"wrapped": {"a": 1}, "key": "k-1"}}, "k-1")
    assert status.state == "failed"


def test_an_id_is_a_name_and_not_a_path(service):
    ask(service, lambda provider: provider.start("../../secrets?x=1", {}, ""))

    assert service.seen("start")[0]["path"] == "/workflows/..%2F..%2Fsecrets%3Fx%3D1/runs"
