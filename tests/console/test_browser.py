"""The console in a real Chromium: every page and action, two viewers at once, runs that change, hostile outputs."""

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from console.sites import VIEWERS, OpenWindow, ServeSite, Site
from support.json_values import JsonObject
from support.make import document, step, write
from support.narrowing import not_none
from workflowlookup.language.document.building import build

PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures"
"""`make pictures` writes them; else they go where nobody keeps them."""
PLACES = {
    "runs": "/runs",
    "run": "/runs/{held}",
    "library": "/library",
    "workflow": "/library/release",
    "changes": "/library/release/changes",
    "statistics": "/statistics",
    "figures": "/statistics/release",
    "tools": "/tools",
    "health": "/health",
}
OTHERS = {
    "run that was refused": "/runs/{exhausted}",
    "run that was denied": "/runs/{denied}",
    "broken document": "/library/half-done",
    "people": "/people",
    "bundled workflow": "/library/bug-investigation",
}
HOSTILE = '<script>alert("owned")</script><img src=x onerror=alert(1)> \u202egnp.exe\u202c {{7*7}} \x1b[31m\x00'
LOOKS: dict[str, JsonObject] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 320, "height": 640}},
}


def width(page: Page) -> int:
    result: int = page.evaluate("document.documentElement.scrollWidth")
    return result


# ── every page, in every look ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_accessible_and_fits(
    furnished: Site, serve: ServeSite, window: OpenWindow, axe: str, look: str
) -> None:
    options = dict(LOOKS[look])
    opened = window(serve(furnished), reduced_motion="reduce", color_scheme=options.get("color_scheme", "light"))
    if "viewport" in options:
        opened.page.set_viewport_size(options["viewport"])
    for name, path in {**PLACES, **OTHERS}.items():
        page = opened.open(path.format(**furnished.named))
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(({violations}) => violations)")
        violations = [(one["id"], one["nodes"][0]["html"], one["nodes"][0].get("failureSummary")) for one in found]
        assert violations == [], name
        assert width(page) <= not_none(page.viewport_size)["width"], name


BUSY = (
    "/runs",
    "/runs?is=stuck",
    "/runs?q=review",
    "/approvals",
    "/approvals?run={asks}",
    "/runs/{long}",
    "/statistics",
)
"""Pages over 2,000 runs."""


@pytest.mark.parametrize(("width_", "scheme"), [(1440, "light"), (768, "dark"), (390, "dark")])
def test_pages_over_many_runs_are_accessible_and_fit(
    busy: Site, serve: ServeSite, window: OpenWindow, axe: str, width_: int, scheme: str
) -> None:
    opened = window(serve(busy), reduced_motion="reduce", color_scheme=scheme)
    opened.page.set_viewport_size({"width": width_, "height": 900})
    for path in BUSY:
        page = opened.open(path.format(**busy.named))
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(({violations}) => violations)")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path
        assert width(page) <= width_, path


@pytest.mark.parametrize("name", ["runs", "run", "library", "workflow", "statistics", "figures"])
def test_pictures_for_the_docs(
    furnished: Site, serve: ServeSite, window: OpenWindow, tmp_path: Path, name: str
) -> None:
    opened = window(serve(furnished), "judge", reduced_motion="reduce")  # the role judge does not see paths
    opened.page.set_viewport_size({"width": 1280, "height": 1500 if name in ("run", "figures") else 800})
    page = opened.open(PLACES[name].format(**furnished.named))
    page.wait_for_load_state("load")
    if name in ("runs", "run"):
        page.locator("#pulse").get_by_text("Live").wait_for()
    path = tmp_path / f"{name}.png"
    page.screenshot(path=path)

    assert path.stat().st_size > 10_000
    if os.environ.get("WORKFLOWLOOKUP_PICTURES") == "1":
        PICTURES.mkdir(exist_ok=True)
        shutil.copy(path, PICTURES / f"console-{name}.png")


def test_pages_work_without_scripts(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(site), java_script_enabled=False)
    page = opened.open("/library")
    page.get_by_label("Search", exact=True).fill("announcement")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Release a version").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Release a version"
    page.get_by_role("button", name="Compare").click()
    assert "Follow every link" in page.inner_text("main")

    page = opened.open("/runs?is=person")
    page.locator(f"#to-{site.named['held']}").click()
    page.locator("[data-yes]").click()
    page.get_by_text("You confirmed the step.").wait_for()
    assert site.runs.get(site.named["held"]).current == "announce"


# ── finding one's way ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_library_is_searched_while_typing(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(furnished))
    page = opened.open("/library")
    page.keyboard.press("/")
    page.keyboard.type("announcement")
    page.get_by_role("list", name="Workflows").get_by_text("bug-investigation").wait_for(state="detached")
    expect(page.get_by_role("list", name="Workflows").get_by_role("listitem")).to_have_count(1)
    assert page.evaluate("document.activeElement.id") == "q"
    page.wait_for_url("**/library?q=announcement")
    page.go_back()
    page.get_by_text("bug-investigation").first.wait_for()


def test_runs_are_filtered_in_place(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(furnished))
    page = opened.open("/runs")
    page.locator("#since").select_option("1h")
    page.locator(f"#run-{furnished.named['held']}").wait_for(state="detached")
    assert "since=1h" in page.url
    page.locator("#since").select_option("")
    page.locator("#tab-person").click()
    expect(page.locator("#rows li")).to_have_count(2)
    page.locator("#q").press_sequentially(furnished.named["held"][2:8])
    expect(page.locator("#rows li")).to_have_count(1)
    assert page.evaluate("document.activeElement.id") == "q"
    assert "q=" in page.url


def test_what_waits_is_in_the_title_and_announced_by_the_browser(
    site: Site, serve: ServeSite, window: OpenWindow
) -> None:
    opened = window(serve(site), permissions=["notifications"])
    page = opened.open("/runs")
    expect(page.locator("#attention")).to_have_text(re.compile(r"^\d wait$"))
    expect(page).to_have_title(re.compile(r"^\(\d\) Runs"))
    page.evaluate("""() => {
        window.Notification = class extends EventTarget {
            static permission = "granted";
            static requestPermission() { return Promise.resolve("granted"); }
            constructor(title) { super(); document.body.dataset.notice = title; }
        };
    }""")
    page.locator("[data-notify]").click()
    expect(page.locator("[data-notify]")).to_have_text("Stop notifying me")
    flow = build(document(step("sign", requireConfirmation=True), name="A flow", identifier="a-flow"))
    run = site.runs.start(flow, {}, {})
    site.runs.submit(run.id, "sign", "done", {})
    expect(page.locator("body")).to_have_attribute("data-notice", "A run needs a person: A flow")


def test_every_section_can_be_reached_by_keyboard(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(furnished))
    page = opened.open("/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.id") == f"to-{furnished.named['fresh']}"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{furnished.named['fresh']}")
    for key, place in {"l": "library", "s": "statistics", "t": "tools", "h": "health", "r": "runs"}.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/{place}")


def test_shortcuts_are_listed_and_can_be_switched_off(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(furnished))
    page = opened.open("/runs")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    page.get_by_label("Enable shortcuts").uncheck()
    page.get_by_role("button", name="Close").click()
    for key in "?gl":
        page.keyboard.press(key)
    assert not page.locator("#keys").is_visible()
    page.reload()
    page.keyboard.press("?")
    assert not page.locator("#keys").is_visible()
    assert page.url.endswith("/runs")


def test_a_card_of_the_flow_links_to_its_step(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(furnished))
    page = opened.open("/library/release")
    page.locator('.flow a[href="#step-publish"]').click()
    page.wait_for_url("**#step-publish")
    page = opened.open(f"/runs/{furnished.named['held']}")
    page.locator('.flow a[href="#why-migration"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**#why-migration")
    assert "isBreaking is false" in page.locator("#why-migration").inner_text()


def test_the_link_to_a_run_is_copied(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    served = serve(furnished)
    opened = window(served, permissions=["clipboard-read", "clipboard-write"])
    page = opened.open(f"/runs/{furnished.named['held']}")
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"{served.address}/runs/{furnished.named['held']}"
    page.get_by_role("button", name="Copied").click()  # again, before it has its own name back
    page.get_by_role("button", name="Copy link").wait_for()


def test_report_and_journal_of_a_run_are_downloaded(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(furnished))
    page = opened.open(f"/runs/{furnished.named['held']}")
    for name, ending in {"Report": "report.md", "Journal": "journal.jsonl"}.items():
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        assert download.value.suggested_filename == f"{furnished.named['held']}-{ending}"


def test_versions_and_periods_can_be_selected(furnished: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(furnished))
    page = opened.open("/statistics")
    page.get_by_role("link", name="release").click()
    page.get_by_label("Compare with").select_option("")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".plot .version")).to_have_count(0)
    page = opened.open("/library/release")
    page.get_by_label("From version 1.1.0").check()
    page.get_by_label("To version 1.0.0").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".badge.removed")).to_have_count(1)


# ── doing things ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_person_denies_cancels_and_starts_again(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(site))
    page = opened.open(f"/runs/{site.named['held']}")
    page.get_by_label("Note").fill("Not on a Friday.")
    page.locator("[data-no]").click()
    page.get_by_text("You did not confirm the step.").wait_for()
    assert page.locator("#now blockquote").inner_text() == "Not on a Friday."

    page.get_by_text("Cancel the run").click()
    page.get_by_label("Why", exact=True).fill("Put off.")
    page.get_by_role("button", name="Cancel permanently").click()
    page.get_by_text("You cancelled the run.").wait_for()
    assert "Put off." in page.locator("#now").inner_text()

    page.get_by_role("button", name="Start again").click()
    page.get_by_text("You started this run").wait_for()
    assert site.named["held"] not in page.url
    assert "Collect the changes" in page.locator("#now").inner_text()


def test_a_person_pauses_and_resumes(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    run_id = site.named["fresh"]
    page = window(serve(site)).open(f"/runs/{run_id}")
    page.get_by_text("Pause the run").click()
    page.get_by_label("Reason", exact=True).fill("The other team has to answer first.")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("You paused the run.").wait_for()
    assert "hooks let the agent stop" in page.locator("#now").inner_text()
    assert page.get_by_text("The other team has to answer first.").count() == 1
    assert site.runs.get(run_id).is_paused

    page.get_by_role("button", name="Resume").click()
    page.get_by_text("You resumed the run.").wait_for()
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    assert not site.runs.get(run_id).is_paused


def test_a_reader_is_offered_nothing_to_do(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(site), "reader")
    page = opened.open(f"/runs/{site.named['held']}")

    expect(page.get_by_role("button", name=re.compile("Accept|Send back|Cancel|Start again"))).to_have_count(0)
    assert "You can see this question, but not answer it" in page.inner_text("#now")


# ── while one looks ─────────────────────────────────────────────────────────────────────────────────────────────


def live(page: Page) -> Page:
    page.locator("#pulse").get_by_text("Live").wait_for()
    return page


def test_the_list_changes_while_it_is_watched(empty: Site, serve: ServeSite, window: OpenWindow) -> None:
    flow = build(document(step("first-step"), step("second-step"), name="A flow", identifier="a-flow"))
    opened = window(serve(empty))
    page = live(opened.open("/runs"))
    run = empty.runs.start(flow, {}, {})
    row = page.locator(f"#run-{run.id}")
    row.get_by_text("works").wait_for()
    row.get_by_role("link").focus()
    empty.runs.submit(run.id, "first-step", "done", {})
    row.get_by_text("1 of 2").wait_for()
    assert page.evaluate("document.activeElement.id") == f"to-{run.id}"
    empty.runs.cancel(run.id)
    row.get_by_text("cancelled").wait_for()
    assert page.locator("#announcement").inner_text() == "A run has changed."


def test_a_run_page_updates_live_and_keeps_opened_parts_open(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(site))
    run = site.runs.get(site.named["fresh"])
    long = "\n".join(f"- change {number}" for number in range(100))
    site.runs.submit(run.id, "changes", long, {})
    page = live(opened.open(f"/runs/{run.id}"))
    page.locator("#timeline .entry summary").first.click()
    page.evaluate("document.querySelector('#timeline .entry').dataset.kept = 'yes'")
    site.runs.submit(run.id, "tests", "All fine.", {})
    page.locator("#timeline").get_by_text("Output refused").wait_for()
    site.runs.submit(run.id, "tests", "$ make test: 12 passed", {"platforms": []})
    page.locator("#now").get_by_text("Follow every link").wait_for()

    expect(page.locator("#timeline .entry details[open]")).to_have_count(1)
    expect(page.locator("#timeline li[data-kept]")).to_have_count(1)
    numbers = page.evaluate("[...document.querySelectorAll('#timeline .entry')].map((one) => one.id)")
    assert numbers == [f"e{record.sequence}" for record in site.runs.history(run.id)]
    assert "waiting for output, step Follow every link" in page.locator("#announcement").inner_text()
    expect(page.locator('.flow a.waiting[href="#why-links"]')).to_have_count(1)


def test_a_run_answered_by_one_person_is_updated_for_another(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    served = serve(site)
    first, second = window(served, "mira"), window(served, "judge")
    path = f"/runs/{site.named['held']}"
    mine, theirs = live(first.open(path)), live(second.open(path))
    mine.get_by_label("Note").fill("I agree.")
    theirs.get_by_label("Note").fill("not yet sent")
    mine.locator("[data-yes]").click()
    mine.get_by_text("You confirmed the step.").wait_for()
    theirs.locator("#now").get_by_text("Announce it").wait_for()

    expect(theirs.locator("[data-yes]")).to_have_count(0)
    assert "I agree." in theirs.locator("#timeline").inner_text()
    assert site.runs.get(site.named["held"]).answers["publish"][1].note == "I agree."


def test_an_unsent_note_survives_a_lost_connection(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened = window(serve(site))
    page = live(opened.open(f"/runs/{site.named['held']}"))
    page.get_by_label("Note").fill("half a sentence")
    page.evaluate("dispatchEvent(new Event('pagehide')); dispatchEvent(new Event('pageshow'))")
    page.wait_for_timeout(500)
    live(page)

    assert page.get_by_label("Note").input_value() == "half a sentence"


# ── hostile ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_hostile_outputs_are_text(empty: Site, serve: ServeSite, window: OpenWindow) -> None:
    flow = document(
        step("first-step", title=HOSTILE.replace("\x00", "").replace("\x1b", ""), requireConfirmation=True),
        identifier="hostile",
        name="<i>Hostile</i> \u202eeman",
        description="<b>bold</b>",
    )
    write(empty.library, flow)
    run = empty.runs.start(build(flow), {"<u>name</u>": HOSTILE}, {}, by="<s>agent</s>")
    empty.runs.submit(run.id, "first-step", HOSTILE, {})
    empty.runs.deny(run.id, "first-step", note=HOSTILE.replace("\x00", ""), by="<s>person</s>", how="console")
    empty.runs.submit(run.id, "first-step", HOSTILE + "again", {})
    opened = window(serve(empty))
    for path in (f"/runs/{run.id}", "/runs", "/library", "/library/hostile", "/statistics/hostile"):
        page = opened.open(path)
        page.wait_for_timeout(200)
        expect(page.locator("main :is(script, i, u, s, img)")).to_have_count(0)
    page = opened.open(f"/runs/{run.id}")
    shown = page.locator("#now pre.output")
    assert '<script>alert("owned")</script>' in shown.inner_text()
    assert "RLO" in shown.inner_text()
    assert shown.evaluate("(element) => getComputedStyle(element).unicodeBidi") == "plaintext"


def test_a_huge_output_is_folded_and_there_in_full(empty: Site, serve: ServeSite, window: OpenWindow) -> None:
    flow = build(document(step("first-step", requireConfirmation=True), identifier="huge"))
    run = empty.runs.start(flow, {}, {})
    text = "".join(f"{number:07d} {'x' * 92}\n" for number in range(10_000))
    empty.runs.submit(run.id, "first-step", text, {})
    opened = window(serve(empty))
    page = opened.open(f"/runs/{run.id}")
    assert len(page.content()) < 100_000
    fold = page.locator("#timeline .entry details").first
    assert "1,010,000 characters" in fold.inner_text()
    fold.locator("summary").click()
    fold.get_by_role("link", name="Show all").click()
    fold.get_by_text("All 1,010,000 characters.").wait_for()
    assert fold.locator("pre").evaluate("(element) => element.textContent") == text
    assert width(page) <= 1280


def test_right_to_left_text_is_isolated(empty: Site, serve: ServeSite, window: OpenWindow) -> None:
    words = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd"
    flow = build(document(step("first-step", title=words, requireConfirmation=True), name=words, identifier="rtl"))
    run = empty.runs.start(flow, {}, {}, by=words)
    empty.runs.submit(run.id, "first-step", words, {})
    opened = window(serve(empty))
    page = opened.open(f"/runs/{run.id}")

    assert page.locator("#now pre.output").evaluate("(element) => getComputedStyle(element).direction") == "rtl"
    assert page.locator("html").evaluate("(element) => getComputedStyle(element).direction") == "ltr"
    assert page.locator("h1 bdi").inner_text() == words


# ── an update never throws the page ─────────────────────────────────────────────────────────────────────────────


def test_a_focused_row_stays_at_its_place_while_the_list_grows(
    empty: Site, serve: ServeSite, window: OpenWindow
) -> None:
    flow = build(document(step("first-step"), identifier="a-flow"))
    ids = [empty.runs.start(flow, {}, {}).id for _ in range(45)]
    opened = window(serve(empty))
    page = live(opened.open("/runs"))
    link = page.locator(f"#to-{ids[10]}")
    link.evaluate("(element) => element.scrollIntoView({block: 'center'})")
    link.focus()
    assert page.evaluate("scrollY") > 100
    for number in range(3):
        before = not_none(link.bounding_box())["y"]
        new = empty.runs.start(flow, {}, {})
        page.locator(f"#run-{new.id}").wait_for()
        assert abs(not_none(link.bounding_box())["y"] - before) < 1, number
        assert page.evaluate("document.activeElement.id") == f"to-{ids[10]}"
    following = page.locator(f"#run-{ids[10]} + li a.name").get_attribute("id")
    empty.runs.delete(ids[10])
    empty.runs.start(flow, {}, {})
    link.wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == following


def test_what_somebody_types_survives_updates_and_other_answers(
    site: Site, serve: ServeSite, window: OpenWindow
) -> None:
    opened, run_id = window(serve(site)), site.named["held"]
    page = live(opened.open(f"/runs/{run_id}"))
    page.get_by_label("Note").fill("half a sentence")
    page.get_by_text("Cancel the run").click()
    page.get_by_label("Why", exact=True).press_sequentially("because")
    site.runs.pause(run_id, by="ada")
    page.get_by_role("button", name="Resume").wait_for()
    assert page.get_by_label("Note").input_value() == "half a sentence"
    assert page.get_by_label("Why", exact=True).input_value() == "because"
    assert page.evaluate("document.activeElement.id") == "reason"

    site.runs.confirm(run_id, "publish", how="console", by="ada")
    page.get_by_role("heading", name="The run went on while you wrote").wait_for()
    assert page.locator("#unsent textarea").input_value() == "half a sentence"
    assert page.get_by_label("Why", exact=True).input_value() == "because"


def test_approvals_tell_when_somebody_else_was_faster(site: Site, serve: ServeSite, window: OpenWindow) -> None:
    opened, run_id = window(serve(site)), site.named["held"]
    page = live(opened.open(f"/approvals?run={run_id}"))
    page.get_by_label("Note").fill("half a sentence")
    site.runs.confirm(run_id, "publish", how="console", by="ada")
    page.get_by_text("ada was faster: this question is answered.").wait_for()
    assert page.get_by_label("Note").input_value() == "half a sentence"
    expect(page.locator("[data-yes]")).to_be_hidden()
    page.get_by_role("link", name="See what happened").click()
    expect(page.locator(".entry:target")).to_contain_text("Confirmed")


def test_a_revoked_token_is_told_on_a_live_page(
    site: Site, serve: ServeSite, window: OpenWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(site)
    opened, other = window(served, "judge"), window(served, "mira")
    path = f"/runs/{site.named['held']}"
    theirs, mine = live(opened.open(path)), live(other.open(path))
    monkeypatch.delitem(VIEWERS, "judge")
    site.runs.pause(site.named["held"])
    theirs.get_by_role("alert").get_by_text("your token was revoked or has expired").wait_for()
    assert theirs.locator("#pulse").inner_text() == "Signed out"
    mine.get_by_role("button", name="Resume").wait_for()
    expect(mine.locator("#ended")).to_be_hidden()
    opened.complaints.clear()  # the browser's own, about the answer 401


def test_a_long_run_is_grouped_and_a_link_opens_any_of_its_events(
    busy: Site, serve: ServeSite, window: OpenWindow
) -> None:
    opened = window(serve(busy))
    page = opened.open(f"/runs/{busy.named['long']}")
    assert page.evaluate("document.documentElement.scrollHeight") < 6_000
    expect(page.locator("#timeline > details[open]")).to_have_count(1)
    page.goto(f"{opened.address}/runs/{busy.named['long']}?order=newest#e9")
    expect(page.locator("#e9")).to_be_in_viewport()
    assert "order=newest" in page.url
    page.get_by_role("link", name="Refusals only").click()
    expect(page.locator("#timeline .entry:visible")).to_have_count(8)
    assert "order=newest" in page.url
    page.get_by_text("Variables now").click()
    expect(page.locator("#variables tbody tr").filter(has_text="goal")).to_contain_text("the input")
