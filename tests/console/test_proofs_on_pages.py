"""Proofs on the pages: what is being proven, with which verdict and output, and how much of a run is."""

import re

import pytest

from console.sites import OpenConsole, Site
from support.make import document, step, write
from workflowlookup.language.document.building import build
from workflowlookup.runs.events import Judgement
from workflowlookup.runs.run import Run

PROOFS = [{"kind": "command", "name": "tests", "use": "test"}, {"kind": "command", "name": "lint", "use": "lint"}]
FLOW = document(
    step("fix", title="Fix it", proof=PROOFS), step("tell"), identifier="fixing", name="Fix it", whenUnproved="ask"
)


@pytest.fixture
def proving(empty: Site) -> Run:
    """A run whose output is being proven."""
    write(empty.library, FLOW)
    run = empty.runs.start(build(FLOW), {}, {})
    return empty.runs.submit(run.id, "fix", "The <b>output</b>", {})


def judged(name: str, verdict: str, **fields: object) -> Judgement:
    return Judgement(name=name, kind="command", verdict=verdict, **fields)  # type: ignore[arg-type]


def now(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>|\s+", " ", page[page.index('id="now"') : page.index("What happened")]).split())


def test_what_is_proven_and_what_is_due_is_shown(empty: Site, visit: OpenConsole, proving: Run) -> None:
    client = visit(empty)
    empty.runs.server_work.take_proof(
        proving.id, "fix", judged("tests", "passed", summary="make test", exit_code=0, seconds=41)
    )
    page = client.get(f"/runs/{proving.id}").text

    assert "The server proves Fix it" in now(page)
    assert "proved: tests (make test, exit code 0, 41 s) due: lint" in now(page)
    assert f'id="run-{proving.id}"' in client.get("/runs?is=server").text
    assert "takes proofs · proved 1 of 1" in client.get("/runs").text


def test_each_proof_has_its_verdict_its_reason_and_the_end_of_its_output(
    empty: Site, visit: OpenConsole, proving: Run
) -> None:
    failed = judged(
        "tests", "failed", summary="make test", exit_code=2, seconds=3, reason="It ended.", tail="E <i>boom</i>"
    )
    empty.runs.server_work.take_proof(proving.id, "fix", failed)
    page = visit(empty).get(f"/runs/{proving.id}").text

    assert "Failed: tests (make test, exit code 2, 3.0 s)" in page
    assert "E &lt;i&gt;boom&lt;/i&gt;" in page
    assert "<dt>Proofs</dt><dd>proved 0 of 1</dd>" in page


def test_a_person_sees_what_could_not_be_proven_before_they_accept(
    empty: Site, visit: OpenConsole, proving: Run
) -> None:
    empty.runs.server_work.take_proof(
        proving.id, "fix", judged("tests", "unproved", reason="There is no command 'test'.")
    )
    empty.runs.server_work.take_proof(proving.id, "fix", judged("lint", "passed"))
    page = visit(empty).get(f"/runs/{proving.id}").text

    assert "Accept it without proof?" in page
    assert "not proved: tests: There is no command &#39;test&#39;." in page
    assert "The &lt;b&gt;output&lt;/b&gt;" in page
    assert "If not, the output is refused." in page


def test_the_statistics_of_a_workflow_have_each_proof_with_a_bar(empty: Site, visit: OpenConsole, proving: Run) -> None:
    work = empty.runs.server_work
    work.take_proof(proving.id, "fix", judged("tests", "passed", seconds=41))
    work.take_proof(proving.id, "fix", judged("lint", "unproved"))
    empty.runs.confirm(proving.id, "fix", how="console", by="ada")

    page = visit(empty).get("/statistics/fixing").text

    proofs = page[page.index('id="proofs"') : page.index('id="spans"')]
    assert 'aria-label="tests: 1 proved, 41 s to 41 s"' in proofs
    assert 'aria-label="lint: 1 waived"' in proofs
    assert proofs.index("tests") < proofs.index("lint"), "the slowest first"
    assert '<rect class="completed" x="0.00" width="100.00"' in proofs
