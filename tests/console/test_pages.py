"""Every page: what it shows, to which viewers, and with which headers."""

import json
import re
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from console.sites import OpenConsole, Site
from support.make import document, loop, step, write
from support.narrowing import instance_of, not_none
from workflowlookup.language.document.building import build
from workflowlookup.runs.fold import fold
from workflowlookup.runs.triage import Triage
from workflowlookup.store.journal import RunQuery, now
from workflowlookup.store.run_search import parse_search
from workflowlookup.store.sqlite import SqliteJournal

PLACES = ["/runs", "/library", "/library/release", "/library/release/changes", "/library/half-done"]
FIGURES = ["/statistics", "/statistics/release", "/statistics?since=7d", "/tools", "/health"]


@pytest.mark.parametrize("path", PLACES + FIGURES)
def test_every_page_exists_and_needs_authentication(furnished: Site, visit: OpenConsole, path: str) -> None:
    answer = visit(furnished).get(path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|\son[a-z]+=|https?://", answer.text)


def test_the_front_page_redirects_to_runs_or_the_library(furnished: Site, empty: Site, visit: OpenConsole) -> None:
    assert visit(furnished).get("/").headers["location"] == "/runs"
    assert visit(empty).get("/").headers["location"] == "/library"
    assert visit(furnished, "stranger").get("/").headers["location"] == "/library"


def test_an_empty_console_says_so(empty: Site, visit: OpenConsole) -> None:
    client = visit(empty)

    assert "There are no runs yet." in client.get("/runs").text
    assert "There are no runs yet." in client.get("/statistics").text
    assert "There are no runs yet." in client.get("/statistics/bug-investigation").text
    assert "It has no runs yet." in client.get("/library/bug-investigation").text


# ── the library ─────────────────────────────────────────────────────────────────────────────────────────────────


def names(page: str) -> list[str]:
    return re.findall(
        r'<a class="name" href="/library/([^"]+)"', page.partition('aria-label="Workflows"')[2].partition("<h2 ")[0]
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?q=RELEASE+announcement", ["release"]),
        ("?q=investigation", ["bug-investigation", "performance-investigation"]),
        ("?category=delivery", ["release"]),
        ("?q=investigation&category=delivery", []),
        ("?q=%00nothing%20of%20this", []),
    ],
)
def test_the_library_is_searched_by_words_and_category(
    furnished: Site, visit: OpenConsole, query: str, found: list[str]
) -> None:
    assert names(visit(furnished).get(f"/library{query}").text) == found


def test_the_library_shows_problems_and_shadowed_documents(furnished: Site, visit: OpenConsole) -> None:
    page = visit(furnished).get("/library").text

    assert "Missing required property &#39;description&#39;" in page
    assert str(furnished.library / "half-done.json") in page
    assert "hidden by <bdi>directories:" in page
    assert page.index('id="problems"') < page.index('aria-label="Workflows"')
    assert "1 broken document</a>" in page


def test_only_administrators_see_the_paths_of_the_library(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished, "reader")
    pages = [client.get(path).text for path in ("/library", "/library/release", "/library/half-done")]

    assert all("directories: half-done.json" in page or "directories: release.json" in page for page in pages)
    assert not any(str(furnished.library) in page for page in pages)


def test_a_workflow_has_its_flow_its_steps_and_its_versions(furnished: Site, visit: OpenConsole) -> None:
    page = visit(furnished).get("/library/release").text

    assert '<svg class="flow" role="group" aria-label="Flow of Release a version"' in page
    assert '<a href="#step-publish" class="node">' in page
    assert 'id="step-publish"' in page
    assert "if <bdi>isBreaking equals true</bdi>" in page
    assert "List every change on a line that starts with &#39;- &#39;." in page
    assert page.count('name="before"') == 2


def test_two_versions_are_compared_in_either_order(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished)
    page = client.get("/library/release/changes").text
    assert "Follow every link" in page
    assert '<span class="badge added">added</span>' in page

    turned = not_none(re.search(r'href="(\?before=[^"]+)"', page))[1].replace("&amp;", "&")
    page = client.get(f"/library/release/changes{turned}").text
    assert '<span class="badge removed">removed</span>' in page
    assert client.get("/library/release/changes?before=none-such").status_code == 404


def test_a_workflow_removed_from_the_library_is_still_shown_for_its_runs(site: Site, visit: OpenConsole) -> None:
    (site.library / "release.json").unlink()
    client = visit(site)

    assert "is no longer in the library" in client.get("/library/release").text
    assert "Start again" not in client.get(f"/runs/{site.named['held']}").text


def test_a_workflow_is_tried_step_by_step_without_a_run(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished, "reader")
    before = furnished.runs.counts()
    page = client.get("/library/release/try").text
    assert "List what changed since the last tag." in page

    def send(page: str, **fields: str) -> str:
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
        context = {"context": '{"isBreaking": false, "platforms": ["linux"]}'}
        return str(client.post("/library/release/try", data={**hidden, **context, **fields}).text)

    refused = send(page, output="nothing", do="judge")
    assert "List every change on a line that starts with" in refused
    page = send(page, output="- a change", do="accept")
    assert "Run them, and quote the summary." in page
    assert 'value="changes"' in page
    page = send(page, output="", do="skip")
    assert "Build it for linux, install it, start it." in page
    assert "would be skipped" in page
    for context in ("[1]", '{"deep": ' + "[" * 5_000):
        assert "is not a JSON object" in send(page, context=context)
    assert furnished.runs.counts() == before
    assert client.get("/library/no-such/try").status_code == 404


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def ids(page: str) -> list[str]:
    return re.findall(r'<li id="run-([^"]+)"', page)


def tabs(page: str) -> dict[str, int]:
    return {key: int(number) for key, number in re.findall(r'id="tab-(\w+)".*?<span class="count[^>]*>(\d+)<', page)}


def test_runs_are_searched_and_grouped_by_what_they_need(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished)
    named = furnished.named

    page = client.get("/runs?is=person").text
    assert set(ids(page)) == {named["held"], named["exhausted"]}
    assert tabs(page)["person"] == 2
    assert sum(tabs(page).values()) == 2 * tabs(page)["all"] == 2 * len(ids(client.get("/runs").text))
    assert ids(page) == ids(client.get("/runs?q=is:person").text)
    assert ids(client.get(f"/runs?q={named['held'][2:8]}").text) == [named["held"]]
    assert ids(client.get("/runs?q=workflow:no-such-workflow").text) == []
    assert ids(client.get("/runs?since=1h").text) == [named["fresh"]]
    assert "choose one of person, stuck" in client.get("/runs?q=is:odd").text
    assert [client.get(path).status_code for path in ("/runs?is=odd", "/runs?since=odd")] == [400, 400]


def test_a_list_is_a_feed_with_the_same_filter(furnished: Site, visit: OpenConsole) -> None:
    client, named = visit(furnished), furnished.named
    assert 'href="/feed.atom?is=person"' in client.get("/runs?is=person").text
    answer = client.get("/feed.atom?is=person")
    feed = ET.fromstring(answer.content)
    atom = "{http://www.w3.org/2005/Atom}"

    assert answer.headers["content-type"].startswith("application/atom+xml")
    links = [not_none(entry.find(f"{atom}link")).get("href", "") for entry in feed.iter(f"{atom}entry")]
    assert {link.rpartition("/")[2] for link in links} == {named["held"], named["exhausted"]}
    assert len({not_none(entry.find(f"{atom}id")).text for entry in feed.iter(f"{atom}entry")}) == 2
    assert client.get("/feed.atom?q=is:odd").status_code == 400


def test_browsers_learn_which_runs_need_somebody(furnished: Site, busy: Site, visit: OpenConsole) -> None:
    answer = visit(furnished).get("/attention").json()
    headlines = {run["link"]: run["headline"] for run in answer["runs"]}
    for name in ("held", "exhausted"):
        assert headlines[f"/runs/{furnished.named[name]}"].startswith("A run needs a person: ")

    client = visit(busy)
    page = client.get("/runs").text
    counts = {group: int(number) for group, number in re.findall(r'class="count (person|stuck)">([0-9]+)<', page)}
    assert client.get("/attention").json()["waiting"] == sum(counts.values()) > 100


@pytest.mark.parametrize("search", ["", "umlauts", "module_002", "no such word"])
def test_tabs_count_the_runs_of_each_group(busy: Site, visit: OpenConsole, search: str) -> None:
    page = visit(busy).get("/runs", params={"q": search}).text
    found = busy.runs.summaries(RunQuery(terms=parse_search(search).terms, now=now(), limit=3_000))
    expected = Counter(str(run.triage(now())) for run in found)

    tabs = re.findall(r'id="tab-(\w+)".*?<span class="count[^>]*>([0-9,]+)<', page)
    assert {group: int(number.replace(",", "")) for group, number in tabs} == {
        "all": len(found),
        **{str(group): expected[str(group)] for group in Triage},
    }


def test_runs_come_in_pages_that_do_not_overlap(empty: Site, visit: OpenConsole) -> None:
    flow = build(document(step("only-step"), identifier="many"))
    started = [empty.runs.start(flow, {}, {}).id for _ in range(120)]
    client, seen = visit(empty), []
    path: str | None = "/runs"
    while path:
        page = client.get(path).text
        seen += ids(page)
        following = re.search(r'<a class="button" href="(/runs\?after=[^"]+)">More runs', page)
        path = following[1] if following else None

    assert sorted(seen) == sorted(started)
    assert 'id="live"' in client.get("/runs").text
    assert client.get("/runs?after=nonsense").status_code == 200


def test_a_page_of_a_loop_names_the_item_and_what_ended_and_whose_time_it_was(empty: Site, visit: OpenConsole) -> None:
    body = [step("review", title="Review {{file}}", prompt="Review it.")]
    flow = build(document(loop("each", body, type="forEach", items="files", itemVar="file"), identifier="reviews"))
    run = empty.runs.start(flow, {"goal": "Review all"}, {"files": ["a.py", "b.py"]})
    run = empty.runs.submit(run.id, "review@1", "fine", {})
    client = visit(empty)

    page, row = client.get(f"/runs/{run.id}").text, client.get("/runs").text
    assert "Waiting for the output of" in page
    assert page.count("Review b.py, 2 of 2") >= 2
    assert "Review b.py, 2 of 2" in row
    assert "Review all" in row
    assert "{{" not in page + row
    assert re.search(r"<dt>Running for</dt><dd>[^<]+<br>agent ", page)

    empty.runs.cancel(run.id, "No need.")
    page = client.get(f"/runs/{run.id}").text
    assert '<span class="fate-word">cancelled</span>' in page
    assert 'class="node cancelled"' in page


def test_a_run_page_has_events_path_and_what_it_waits_for(furnished: Site, visit: OpenConsole) -> None:
    page = visit(furnished).get(f"/runs/{furnished.named['exhausted']}").text

    assert "Accept it as it is?" in page
    assert page.count("Output refused") >= 4
    assert "Show the line of the test run that says how many passed." in page
    assert '<a href="#why-tests" class="node waiting">' in page
    assert 'id="why-tests"' in page
    assert "refused 4 times: " in page
    assert "isBreaking is not set" in page


def test_a_denied_run_shows_who_denied_and_why(furnished: Site, visit: OpenConsole) -> None:
    page = visit(furnished).get(f"/runs/{furnished.named['denied']}").text

    assert "Not on a Friday. Move the tag to Monday&#39;s commit." in page
    assert "by <bdi>mira</bdi>" in page
    assert "Not confirmed" in page


def test_each_change_of_a_run_is_announced_once(furnished: Site, visit: OpenConsole) -> None:
    client, run = visit(furnished), furnished.runs.get(furnished.named["held"])
    whole = client.get(f"/runs/{run.id}/live?after=0").text
    last = client.get(f"/runs/{run.id}/live?after={run.sequence - 1}").text

    assert len(re.findall(r'<li id="e\d+"', whole)) == run.sequence
    assert re.findall(r'<li id="(e\d+)"', last) == [f"e{run.sequence}"]
    assert last.count('hx-swap-oob="true"') == 6
    assert client.get(f"/runs/{run.id}/live?after={run.sequence}").status_code == 204


def test_a_long_timeline_is_shortened_unless_all_of_it_is_requested(empty: Site, visit: OpenConsole) -> None:
    flow = build(
        document(step("only-step", validationCriteria=[{"type": "contains", "value": "x", "message": "No x."}]))
    )
    run = empty.runs.start(flow, {}, {})
    for number in range(200):
        run = empty.runs.submit(run.id, "only-step", str(number), {})
    client = visit(empty)

    assert len(re.findall(r'<li id="e\d+"', client.get(f"/runs/{run.id}").text)) == 300
    assert "Show 102 earlier events" in client.get(f"/runs/{run.id}").text
    assert len(re.findall(r'<li id="e\d+"', client.get(f"/runs/{run.id}?events=all").text)) == 402


def test_a_run_can_be_downloaded_as_journal_and_as_report(furnished: Site, visit: OpenConsole) -> None:
    client, run_id = visit(furnished), furnished.named["held"]
    journal = client.get(f"/runs/{run_id}/journal.jsonl")
    report = client.get(f"/runs/{run_id}/report.md")

    lines = [json.loads(line) for line in journal.text.splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert {line["runId"] for line in lines} == {run_id}
    assert report.text.startswith("# Release a version\n")
    for answer in (journal, report):
        assert answer.headers["content-disposition"].startswith(f'attachment; filename="{run_id}-')
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


def test_an_output_is_plain_text_that_nothing_runs(site: Site, visit: OpenConsole) -> None:
    hostile = "<script>alert(1)</script>\u202egnp.exe\x00"
    run = site.runs.get(site.named["fresh"])
    site.runs.submit(run.id, "changes", hostile, {})
    sequence = fold(run.id, site.runs.history(run.id)).sequence - 1
    client = visit(site)
    plain = client.get(f"/runs/{run.id}/outputs/{sequence}")
    part = client.get(f"/runs/{run.id}/outputs/{sequence}", headers={"hx-request": "true"})

    assert (plain.text, plain.headers["content-type"]) == (hostile, "text/plain; charset=utf-8")
    assert plain.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert "&lt;script&gt;" in part.text
    assert "<script" not in part.text
    assert (
        '<span class="mark" title="U+202E">RLO</span>gnp.exe<span class="mark" title="U+0000">\u2400</span>'
        in part.text
    )
    assert client.get(f"/runs/{run.id}/outputs/1").status_code == 404
    assert client.get(f"/runs/{run.id}/outputs/999").status_code == 404


# ── figures, tools, health ──────────────────────────────────────────────────────────────────────────────────────


def test_the_statistics_of_two_versions_are_shown_side_by_side(furnished: Site, visit: OpenConsole) -> None:
    page = visit(furnished).get("/statistics/release").text

    assert page.count('<span class="version"><bdi>1.1.0</bdi></span>') == page.count(
        '<span class="version"><bdi>1.0.0</bdi></span>'
    )
    assert "not in this version" in page
    assert re.search(r"\d+ of \d+ done, \d+ stopped", page)
    assert "Show the line of the test run that says how many passed." in page
    assert re.search(r'aria-label="Publish: usually [^"]+, nine in ten within [^"]+"', page)


def test_one_version_can_be_shown_alone(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished)

    assert '<span class="version">' not in client.get("/statistics/release?version=1.0.0&beside=").text
    assert client.get("/statistics/release?version=9.9.9").status_code == 404
    assert client.get("/statistics?since=odd").status_code == 400


def test_the_tools_and_their_providers_are_listed(furnished: Site, visit: OpenConsole) -> None:
    page = visit(furnished).get("/tools").text

    assert "<code>workflow_submit</code>" in page
    assert "It did not answer within 5 s." in page


def test_health_shows_problems_to_administrators(furnished: Site, visit: OpenConsole) -> None:
    page = visit(furnished).get("/health").text

    assert "Something needs attention" in page
    assert "3 documents, 1 with problems." in page
    assert furnished.settings.journal in page
    assert visit(furnished, "reader").get("/health").status_code == 404
    assert 'href="/health"' not in visit(furnished, "reader").get("/runs").text


def test_an_unreadable_journal_is_reported_without_its_path(empty: Site, visit: OpenConsole) -> None:
    write(empty.library, document(step("one-step")))
    client = visit(empty)
    instance_of(SqliteJournal, client.console.runs.journal).path = "/proc/no/such/place"
    answer = client.get("/runs")

    assert answer.status_code == 503
    assert "Storage error" in answer.text
    assert "/proc" not in answer.text
    assert "failing" in client.get("/health").text


# ── what pages load ─────────────────────────────────────────────────────────────────────────────────────────────


def test_pages_load_only_local_files_that_browsers_may_cache(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished)
    page = client.get("/runs").text
    loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)

    assert len(loaded) == 4
    for address in loaded:
        answer = client.get(address)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert client.get("/static/console.css").headers["cache-control"] == "no-cache"


def test_a_run_that_waits_for_variables_says_which(empty: Site, visit: OpenConsole) -> None:
    content = document(loop("each", [step("look-at")], type="forEach", items="files"), identifier="each-file")
    run = empty.runs.start(build(content), {}, {})

    page = visit(empty).get(f"/runs/{run.id}").text

    assert "waiting for variables" in page
    assert "files is not set: expected a list" in page
    assert "Variables are asked for" in page


def test_a_run_that_was_imported_says_from_where(empty: Site, visit: OpenConsole) -> None:
    run = empty.runs.start(build(document(step("one"))), {}, {})
    records = empty.runs.history(run.id)
    empty.runs.delete(run.id)
    empty.runs.import_run(run.id, records, "from-elsewhere.jsonl")

    assert "from-elsewhere.jsonl" in visit(empty).get(f"/runs/{run.id}").text
