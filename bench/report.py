"""Turns the raw figures into tables, ratios and verdicts; every target of the benchmark stands in this file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from statistics import linear_regression, mean, median, quantiles
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import chains
import hooks
import proofs
import validation
from client import Pace
from growth import LONG, SMALL
from installation import Weight
from reading import Reading
from runs import BARE_COMMITS, EMPTY, EVENTS, FILLED, IDLE_SECONDS, RunFigures
from web import CLIENTS, WebFigures
from web import SDK as SDK_SERVER
from workflow_tools import (
    BARE_CLIENT,
    BARE_DBOS,
    NO_PROVIDERS,
    POSTGRES,
    SECONDS,
    SQLITE,
    THREE_PROVIDERS,
    ToolFigures,
)
from workflow_tools import OURS as TOOL

Series = Mapping[str, Sequence[float]]
Paces = Mapping[str, Mapping[str, Mapping[str, Sequence[Pace]]]]  # library, tool, contestant

OURS: Final = "workflowlookup"
DIRECT: Final = "by its own name"
THROUGH_CALL: Final = "through tools/call"
CAT: Final = "cat"
BARE: Final = "bare interpreter"
SDK: Final = "SDK lowlevel"
BUNDLED: Final = "bundled"
THOUSAND: Final = "1,000"

COLD_OF_BARE: Final = 1.0
COLD_OF_SDK: Final = 1 / 5
HOOK_OF_BARE: Final = 1.3
PACE_OF_CAT: Final = 0.15
PACE_OF_SDK: Final = 12.0
PACED_TOOLS: Final = frozenset({"workflow_next", "workflow_get", "workflow_validate"})
FIRST_LIST_OF_LOOP: Final = 4.0  # every document is checked by the schema (docs/decisions/0002)
LATER_LIST_OF_LOOP: Final = 1.0  # nobody who opens the files again can be faster than the bare loop
MEMORY_MB: Final = 40.0
LIGHT_MB: Final = 70.0
LIGHT_DISTRIBUTIONS: Final = 10
LONG_OF_SMALL: Final = 4.0  # 500 steps, all but one of them completed; every id is checked each time
PACE_OF_COMMITS: Final = 0.3
FILLED_OF_EMPTY: Final = 1.5  # a call on a journal of many runs, of one on an empty journal
WAITING_MB: Final = 5.0
IDLE_CPU_MS: Final = 10.0  # the least that the kernel counts
MORE_THAN_JOB: Final = 0.25  # what a workflow tool may add to a job, of the job's own time
RUNS_OF_BARE_CLIENT: Final = 1 / 15  # durable runs of three calls on SQLite, of those calls without us
RUNS_OF_BARE_DBOS: Final = 0.7  # the same on PostgreSQL, of workflows of DBOS that make those calls
RUNS_OF_ONE_SERVER: Final = 1.0  # of two and of three servers on one PostgreSQL
COLD_WITH_PROVIDERS: Final = 1.1
WEB_OF_SDK: Final = 2.5
WEB_START_OF_SDK: Final = 0.7
VALIDATION_OF_BARE: Final = 0.053  # three times the pace that it had before it became a target
PROOF_MS: Final = 30.0  # what a proof adds to its command, p50
HASHES_OF_READ: Final = 0.25  # computing the hashes of a run, of reading it with its hashes verified
READING_OF_MARKDOWN: Final = 1.5  # bytes that a model reads in a run, of the workflow as Markdown
GROWTH: Final = 1.1  # the exponent of cost by completed steps; 1 is linear, and clocks are not perfect


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that a run measured, round by round."""

    cold_ms: Series
    hooks_ms: Series
    readings: Mapping[str, Reading]
    calls: Paces
    lists_ms: Mapping[str, Series]  # library; "first", "second" and, where there are files to read, "loop"
    memory_mb: Mapping[str, Series]  # library, contestant
    growth_us: Mapping[str, Mapping[int, Sequence[float]]]  # document, completed steps
    validations_us: Series
    runs: RunFigures
    chain_ms: Series
    proofs_ms: Series
    tools: ToolFigures
    web: WebFigures
    light: Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One target and how far the run got."""

    what: str
    value: float
    limit: float
    met: bool

    def __str__(self) -> str:
        value = f"{self.value:.2f}" if self.limit >= 0.1 else f"{self.value:.3f}"
        return f"[green]{value} ✓[/]" if self.met else f"[red]{value} ✗[/]"


class Report:
    """Prints one table per question and remembers the verdicts for the summary."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.checks: list[Check] = []

    def show(self, figures: Figures) -> None:
        """Print everything."""
        self._cold_start(figures.cold_ms)
        self._hooks(figures.hooks_ms)
        self._readings(figures.readings)
        self._calls(figures.calls)
        self._lists(figures.lists_ms)
        self._memory(figures.memory_mb)
        self._growth(figures.growth_us)
        self._validations(figures.validations_us)
        self._runs(figures.runs)
        self._waiting(figures.runs)
        self._chain(figures.chain_ms)
        self._proofs(figures.proofs_ms)
        self._jobs(figures.tools)
        self._tool_lists(figures.tools)
        self._three_calls(figures.tools)
        self._cold_providers(figures.tools)
        self._web_reads(figures.web)
        self._web_start(figures.web)
        self._pages(figures.web)
        self._submissions(figures.web)
        self._light(figures.light)
        missed = [
            f"{check.what} ({check.value:.2f}, target {check.limit:.2f})" for check in self.checks if not check.met
        ]
        colour, rest = ("yellow", f"; missed: {'; '.join(missed)}") if missed else ("green", "")
        self._console.print(
            f"[{colour}]{len(self.checks) - len(missed)} of {len(self.checks)} targets met{rest}[/]", highlight=False
        )

    def _at_most(self, what: str, value: float, limit: float) -> str:
        return self._judge(Check(what=what, value=value, limit=limit, met=value <= limit))

    def _at_least(self, what: str, value: float, limit: float) -> str:
        return self._judge(Check(what=what, value=value, limit=limit, met=value >= limit))

    def _judge(self, check: Check) -> str:
        self.checks.append(check)
        return str(check)

    def _light(self, light: Weight) -> None:
        table = _table(
            "The light installation in a fresh environment, pip left out",
            (f"MB\n≤ {LIGHT_MB:.0f}", f"distributions\n≤ {LIGHT_DISTRIBUTIONS}"),
        )
        table.add_row(
            self._at_most("MB of the light installation", light.megabytes, LIGHT_MB),
            self._at_most("distributions of the light installation", light.distributions, LIGHT_DISTRIBUTIONS),
        )
        self._console.print(table)

    def _cold_start(self, cold: Series) -> None:
        table = _table(
            "Cold start: from spawn to the answer to initialize",
            ("", "median ms", "min to max", f"of {BARE}\n≤ {COLD_OF_BARE}", f"of {SDK}\n≤ {COLD_OF_SDK}"),
        )
        bare, sdk = median(cold[BARE]), median(cold[SDK])
        for name, times in cold.items():
            middle = median(times)
            of_bare, of_sdk = f"{middle / bare:.2f}", f"{middle / sdk:.2f}"
            if name.startswith(OURS):
                of_bare = self._at_most(f"cold start of {name} / {BARE}", middle / bare, COLD_OF_BARE)
                of_sdk = self._at_most(f"cold start of {name} / {SDK}", middle / sdk, COLD_OF_SDK)
            table.add_row(name, f"{middle:.1f}", f"{min(times):.1f} to {max(times):.1f}", of_bare, of_sdk)
        self._console.print(table)

    def _hooks(self, took: Series) -> None:
        table = _table(
            "Cold hook: from spawn to end", ("", "median ms", "min to max", f"of {hooks.BARE}\n≤ {HOOK_OF_BARE}")
        )
        bare = median(took[hooks.BARE])
        for name, times in took.items():
            ratio = f"{median(times) / bare:.2f}"
            if name == hooks.OUTSIDE:
                ratio = self._at_most(f"{name} / {hooks.BARE}", median(times) / bare, HOOK_OF_BARE)
            table.add_row(name, f"{median(times):.1f}", f"{min(times):.1f} to {max(times):.1f}", ratio)
        self._console.print(table)

    def _readings(self, readings: Mapping[str, Reading]) -> None:
        limit = f"of the Markdown\n≤ {READING_OF_MARKDOWN}"
        table = _table(
            "What a model reads when tools lead it through a bundled workflow, in bytes",
            ("", "answers", "Markdown", "structuredContent", limit, "text", limit),
        )
        for name, one in readings.items():
            cells = [f"{one.answers}", f"{one.markdown:,}"]
            for half, size in (("structuredContent", one.structured), ("text", one.text)):
                ratio = self._at_most(f"{half} of {name} / Markdown", size / one.markdown, READING_OF_MARKDOWN)
                cells += [f"{size:,}", ratio]
            table.add_row(name, *cells)
        self._console.print(table)

    def _calls(self, calls: Paces) -> None:
        contestants, roads = (CAT, SDK, DIRECT, THROUGH_CALL), (DIRECT, THROUGH_CALL)
        heads = [f"{name}\ncalls/s p99 µs" for name in contestants]
        targets = (f"of {CAT}\n≥ {PACE_OF_CAT}", f"of SDK\n≥ {PACE_OF_SDK:.0f}")
        heads = [*heads[:3], *targets, heads[3], *targets]
        table = _table("Calls, one at a time, on one core", ("documents", *heads))
        for library, tools in calls.items():
            table.add_row(f"[bold]{library}[/]")
            for tool, paces in tools.items():
                speed = {name: median(pace.calls_per_second for pace in paces[name]) for name in contestants}
                p99 = {name: median(pace.p99_us for pace in paces[name]) for name in contestants}
                cells = [f"{speed[name]:,.0f} {p99[name]:6,.0f}" for name in (CAT, SDK)]
                for road in roads:
                    of_cat, of_sdk = speed[road] / speed[CAT], speed[road] / speed[SDK]
                    ratios = [f"{of_cat:.2f}", f"{of_sdk:.2f}"]
                    if tool in PACED_TOOLS:
                        what = f"{tool} {road}, {library}"
                        ratios = [
                            self._at_least(f"{what} / {CAT}", of_cat, PACE_OF_CAT),
                            self._at_least(f"{what} / {SDK}", of_sdk, PACE_OF_SDK),
                        ]
                    cells += [f"{speed[road]:,.0f} {p99[road]:6,.0f}", *ratios]
                table.add_row(tool, *cells)
            table.add_section()
        self._console.print(table)

    def _lists(self, lists: Mapping[str, Series]) -> None:
        table = _table(
            "workflow_list in a fresh process, and a bare loop over the same files",
            (
                "documents",
                "bare loop ms",
                "first ms",
                f"of the loop\n≤ {FIRST_LIST_OF_LOOP} at {THOUSAND}",
                "second ms",
                f"of the loop\n≤ {LATER_LIST_OF_LOOP:.0f} from the snapshot",
            ),
        )
        for library, times in lists.items():
            first, second = median(times["first"]), median(times["second"])
            loop, of_first, of_second = "", "", ""
            if "loop" in times:
                bare = median(times["loop"])
                loop, of_first = f"{bare:.1f}", f"{first / bare:.2f}"
                if library == THOUSAND:
                    of_first = self._at_most(f"first list of {library} / loop", first / bare, FIRST_LIST_OF_LOOP)
                of_second = self._at_most(f"second list of {library} / loop", second / bare, LATER_LIST_OF_LOOP)
            table.add_row(library, loop, f"{first:.1f}", of_first, f"{second:.1f}", of_second)
        self._console.print(table)

    def _memory(self, memory: Mapping[str, Series]) -> None:
        contestants = (OURS, CAT, BARE, SDK)
        table = _table(
            "Resident memory after the calls, MB",
            ("documents", *contestants, f"{OURS}\n≤ {MEMORY_MB:.0f} {BUNDLED}", f"of {SDK}"),
        )
        for library, used in memory.items():
            middle = {name: median(used[name]) for name in contestants}
            verdict = self._at_most("memory", middle[OURS], MEMORY_MB) if library == BUNDLED else ""
            ratio = f"{middle[OURS] / middle[SDK]:.2f}"
            table.add_row(library, *(f"{middle[name]:.1f}" for name in contestants), verdict, ratio)
        self._console.print(table)

    def _growth(self, growth: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
        table = _table(
            "How workflow_next grows: one call, best of the rounds",
            (
                "document",
                "completed",
                "µs",
                f"of {SMALL}\n≤ {LONG_OF_SMALL:.0f} at 499",
                f"growth: cost ~ completed ^\n≤ {GROWTH}, fitted",
            ),
        )
        small = min(min(times) for times in growth[SMALL].values())
        for label, counts in growth.items():
            best = {completed: min(times) for completed, times in counts.items()}
            last = max(best)
            begun = [(log(completed), log(cost)) for completed, cost in best.items() if completed]
            slope = linear_regression(*zip(*begun, strict=True)).slope if len(begun) > 1 else 0.0
            for completed, cost in best.items():
                ratio = f"{cost / small:.2f}"
                if label == LONG and completed == last:
                    ratio = self._at_most(f"{label}, {last} completed / {SMALL}", cost / small, LONG_OF_SMALL)
                exponent = ""
                if len(begun) > 1 and completed == last:
                    exponent = self._at_most(f"growth of {label}", slope, GROWTH)
                table.add_row(label, f"{completed:,}", f"{cost:,.1f}", ratio, exponent)
            table.add_section()
        self._console.print(table)

    def _validations(self, validations: Series) -> None:
        table = _table(
            f"A document of {validation.BYTES // 1_000} kB: one call, median of the rounds",
            ("", "µs", f"pace of {validation.BARE}\n≥ {VALIDATION_OF_BARE}"),
        )
        ours, bare = (validations[name] for name in (validation.OURS, validation.BARE))
        ratio = median(theirs / our for our, theirs in zip(ours, bare, strict=True))
        pace = self._at_least(f"{validation.OURS} / {validation.BARE}", ratio, VALIDATION_OF_BARE)
        table.add_row(validation.OURS, f"{median(ours):,.1f}", pace)
        table.add_row(validation.BARE, f"{median(bare):,.1f}", "")
        self._console.print(table)

    def _proofs(self, took: Series) -> None:
        table = _table(
            "A proof whose command takes 100 ms", ("", "median ms", "min to max", f"added, ms\n≤ {PROOF_MS:.0f}, p50")
        )
        for name, times in took.items():
            added = ""
            if name == proofs.PROOF:
                added = self._at_most("ms that a proof adds", median(times) - median(took[proofs.COMMAND]), PROOF_MS)
            table.add_row(name, f"{median(times):.1f}", f"{min(times):.1f} to {max(times):.1f}", added)
        self._console.print(table)

    def _chain(self, took: Series) -> None:
        table = _table(
            f"A run of {chains.EVENTS:,} events: processor time, median of the rounds",
            ("", "ms", f"of it\n≤ {HASHES_OF_READ}"),
        )
        read, hashes = (took[name] for name in (chains.READ, chains.HASHES))
        share = median(part / whole for part, whole in zip(hashes, read, strict=True))
        table.add_row(chains.READ, f"{median(read):,.0f}", "")
        limit = self._at_most(f"{chains.HASHES} / {chains.READ}", share, HASHES_OF_READ)
        table.add_row(chains.HASHES, f"{median(hashes):,.0f}", limit)
        self._console.print(table)

    def _runs(self, runs: RunFigures) -> None:
        filled = f"{runs.waiting:,} runs, {runs.waiting * EVENTS:,} events"
        table = _table(
            f"Runs: durable calls beside bare commits of SQLite; the filled journal has {filled}",
            (
                "",
                f"{BARE_COMMITS}\nper s p99 µs",
                f"{EMPTY}\nper s p99 µs",
                f"of bare\n≥ {PACE_OF_COMMITS}",
                f"by p99\n≥ {PACE_OF_COMMITS}",
                f"{FILLED}\nper s p99 µs",
                f"empty by it\n≤ {FILLED_OF_EMPTY}",
            ),
        )
        for tool, contestants in runs.took_us.items():
            speed = {name: 1e6 / median(map(mean, rounds)) for name, rounds in contestants.items()}
            p99 = {name: quantiles(chain(*rounds), n=100)[98] for name, rounds in contestants.items()}
            cells = {name: f"{speed[name]:,.0f} {p99[name]:6,.0f}" for name in contestants}
            of_bare = _by_rounds(contestants[BARE_COMMITS], contestants[EMPTY])
            table.add_row(
                tool,
                cells[BARE_COMMITS],
                cells[EMPTY],
                self._at_least(f"{tool} / {BARE_COMMITS}", of_bare, PACE_OF_COMMITS),
                self._at_least(f"p99 of {BARE_COMMITS} / {tool}", p99[BARE_COMMITS] / p99[EMPTY], PACE_OF_COMMITS),
                cells[FILLED],
                self._at_most(
                    f"{tool}, {FILLED} / {EMPTY}",
                    _by_rounds(contestants[FILLED], contestants[EMPTY]),
                    FILLED_OF_EMPTY,
                ),
            )
        self._console.print(table)

    def _waiting(self, runs: RunFigures) -> None:
        table = _table(
            f"What {runs.waiting:,} waiting runs cost a server that has nothing to do",
            (
                "",
                "memory MB",
                f"more than empty\n≤ {WAITING_MB:.0f}",
                f"CPU ms in {IDLE_SECONDS:.0f} s\n≤ {IDLE_CPU_MS:.0f}",
            ),
        )
        for name in (EMPTY, FILLED):
            more, idle = "", f"{runs.idle_cpu_ms[name]:.0f}"
            if name == FILLED:
                extra = runs.memory_mb[FILLED] - runs.memory_mb[EMPTY]
                more = self._at_most(f"memory of {runs.waiting:,} waiting runs", extra, WAITING_MB)
                idle = self._at_most(f"idle CPU of {runs.waiting:,} waiting runs", runs.idle_cpu_ms[name], IDLE_CPU_MS)
            table.add_row(name, f"{runs.memory_mb[name]:.1f}", more, idle)
        self._console.print(table)

    def _jobs(self, tools: ToolFigures) -> None:
        own = SECONDS * 1e3
        table = _table(
            f"A job of another system that takes {own:.0f} ms: what is added to it",
            ("", "p50 ms", "p99 ms", f"added, of the job\n≤ {MORE_THAN_JOB} of {TOOL}, p50", "p99"),
        )
        for name in (BARE_CLIENT, TOOL):
            cuts = quantiles(tools.job_ms[name], n=100, method="inclusive")
            added = [(cuts[cut] - own) / own for cut in (49, 98)]
            shown = [f"{one:.2f}" for one in added]
            if name == TOOL:
                shown[0] = self._at_most(f"what a {TOOL} adds to a job", added[0], MORE_THAN_JOB)
            table.add_row(name, f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", *shown)
        self._console.print(table)

    def _tool_lists(self, tools: ToolFigures) -> None:
        table = _table("tools/list", ("workflow tools", "bytes", "µs", "cat, as many bytes µs", "of cat"))
        for count, took in tools.list_us.items():
            ours, cat = median(took[TOOL]), median(took[CAT])
            table.add_row(
                f"{count:,}", f"{tools.list_bytes[count]:,}", f"{ours:,.0f}", f"{cat:,.0f}", f"{ours / cat:.2f}"
            )
        self._console.print(table)

    def _three_calls(self, tools: ToolFigures) -> None:
        paces = tools.runs_per_second
        table = _table(
            "Durable runs of three calls a second, beside the same calls by others",
            (
                "",
                "one server",
                f"of {BARE_CLIENT}\n≥ {RUNS_OF_BARE_CLIENT:.3f}",
                f"of {BARE_DBOS}\n≥ {RUNS_OF_BARE_DBOS}",
                "two servers",
                f"of one\n≥ {RUNS_OF_ONE_SERVER} on {POSTGRES}",
                "three servers",
                f"of one\n≥ {RUNS_OF_ONE_SERVER} on {POSTGRES}",
            ),
        )
        for name in (BARE_CLIENT, BARE_DBOS, SQLITE, POSTGRES):
            row = [name, f"{median(paces[name][1]):,.0f}", "", "", "", "", "", ""]
            if name == SQLITE:
                ratio = _of(paces[name][1], paces[BARE_CLIENT][1])
                row[2] = self._at_least(f"runs on {name} / {BARE_CLIENT}", ratio, RUNS_OF_BARE_CLIENT)
            if name == POSTGRES:
                ratio = _of(paces[name][1], paces[BARE_DBOS][1])
                row[3] = self._at_least(f"runs on {name} / {BARE_DBOS}", ratio, RUNS_OF_BARE_DBOS)
            for number, column in ((2, 4), (3, 6)):
                if number in paces[name]:
                    ratio = _of(paces[name][number], paces[name][1])
                    row[column], row[column + 1] = f"{median(paces[name][number]):,.0f}", f"{ratio:.2f}"
                    if name == POSTGRES:
                        what = f"runs on {name}, {number} servers / one"
                        row[column + 1] = self._at_least(what, ratio, RUNS_OF_ONE_SERVER)
            table.add_row(*row)
        self._console.print(table)

    def _cold_providers(self, tools: ToolFigures) -> None:
        table = _table(
            "Cold start with other systems", ("", "median ms", f"of {NO_PROVIDERS}\n≤ {COLD_WITH_PROVIDERS}")
        )
        none = median(tools.cold_ms[NO_PROVIDERS])
        for name, took in tools.cold_ms.items():
            ratio = f"{median(took) / none:.2f}"
            if name == THREE_PROVIDERS:
                ratio = self._at_most(f"cold start with {name}", median(took) / none, COLD_WITH_PROVIDERS)
            table.add_row(name, f"{median(took):.1f}", ratio)
        self._console.print(table)

    def _web_reads(self, web: WebFigures) -> None:
        heads = [f"{name}\ncalls/s p99 µs" for name in (OURS, SDK_SERVER)]
        table = _table(
            f"HTTP: calls one at a time; {SDK_SERVER} repeats our answers",
            ("", *heads, f"calls/s, of {SDK_SERVER}\n≥ {WEB_OF_SDK}", f"p99, of {SDK_SERVER}"),
        )
        for era, tools in web.reads.items():
            table.add_row(f"[bold]{era}[/]")
            for tool, paces in tools.items():
                speed = {name: median(pace.calls_per_second for pace in series) for name, series in paces.items()}
                p99 = {name: median(pace.p99_us for pace in series) for name, series in paces.items()}
                verdict = self._at_least(
                    f"{tool} over HTTP, {era} / {SDK_SERVER}", speed[OURS] / speed[SDK_SERVER], WEB_OF_SDK
                )
                cells = [f"{speed[name]:,.0f} {p99[name]:6,.0f}" for name in (OURS, SDK_SERVER)]
                table.add_row(tool, *cells, verdict, f"{p99[OURS] / p99[SDK_SERVER]:.2f}")
            table.add_section()
        self._console.print(table)

    def _web_start(self, web: WebFigures) -> None:
        table = _table("HTTP: from spawn to ready", ("", "median ms", f"of {SDK_SERVER}\n≤ {WEB_START_OF_SDK}"))
        sdk = median(web.ready_ms[SDK_SERVER])
        for name, took in web.ready_ms.items():
            ratio = f"{median(took) / sdk:.2f}"
            if name == OURS:
                ratio = self._at_most(f"ready over HTTP / {SDK_SERVER}", median(took) / sdk, WEB_START_OF_SDK)
            table.add_row(name, f"{median(took):,.0f}", ratio)
        self._console.print(table)

    def _pages(self, web: WebFigures) -> None:
        read = median(pace.p50_us for tools in web.reads.values() for pace in tools["workflow_get"][OURS]) / 1e3
        table = _table("Console: to the first byte of a page", ("", "median ms", "p99 ms", "of a workflow_get"))
        for name, took in web.pages_ms.items():
            middle, worst = median(took), quantiles(took, n=100, method="inclusive")[98]
            table.add_row(name, f"{middle:.1f}", f"{worst:.1f}", f"{middle / read:.1f}")
        self._console.print(table)

    def _submissions(self, web: WebFigures) -> None:
        table = _table(
            f"Submissions over HTTP, {CLIENTS} clients, one PostgreSQL", ("replicas", "a second", "of one replica")
        )
        for replicas, pace in web.submissions.items():
            table.add_row(str(replicas), f"{pace:,.0f}", f"{pace / web.submissions[1]:.2f}")
        self._console.print(table)


def _by_rounds(times: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """The middle of the ratios of each round: the disk changes its mind from one second to the next."""
    return median(mean(one) / mean(other) for one, other in zip(times, others, strict=True))


def _of(paces: Sequence[float], others: Sequence[float]) -> float:
    """The middle of the ratios of each round."""
    return median(one / other for one, other in zip(paces, others, strict=True))


def _table(title: str, heads: Sequence[str]) -> Table:
    """A table whose first column holds names and whose others hold figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for position, head in enumerate(heads):
        table.add_column(head, justify="right" if position else "left", no_wrap=True)
    return table
