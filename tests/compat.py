"""`make compat`: every document of a directory is loaded, previewed and walked with an empty context.

Prints how many load, and for each that does not, why, in one line; then what was met and is not acted on.
Exits with 1 when a document that loads cannot be led to its end, or to a step that waits for context.
"""

import collections
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import track

from workflowlookup.core.document import Severity, build, check
from workflowlookup.core.guidance import guide
from workflowlookup.core.model import Workflow
from workflowlookup.core.navigation import next_step
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.library.files import PARSERS, parse_document, read_bytes, summarise
from workflowlookup.tools.resources import as_markdown

MOST_STEPS = 100_000


def walk(workflow: Workflow) -> tuple[int, int]:
    """Complete whatever comes next until nothing does: the steps handed out, and those that conditions passed over."""
    completed: list[str] = []
    while len(completed) < MOST_STEPS:
        found = next_step(workflow, completed, {})
        guidance = guide(workflow, found)
        if found.step is None:
            return len(completed), len(found.skipped)
        assert found.instance_id not in completed, f"{found.instance_id} was handed out twice"
        assert guidance.prompt.strip(), f"{found.instance_id} has nothing to say"
        completed.append(found.instance_id)
    raise AssertionError(f"no end after {MOST_STEPS} steps")


def main(directory: str) -> int:
    out = Console(highlight=False, soft_wrap=True)
    root = Path(directory)
    paths = sorted(path for path in root.rglob("*") if path.suffix in PARSERS)
    if not paths:
        out.print(f"no documents in {directory}")
        return 1
    refused: list[tuple[str, str]] = []
    broken: list[tuple[str, str]] = []
    features: collections.Counter[str] = collections.Counter()
    handed_out = skipped = 0
    started = time.perf_counter()
    for path in track(paths, "walking", console=out, transient=True):
        name = str(path.relative_to(root))
        try:
            data, _ = read_bytes(str(path), str(root))
            document = parse_document(data, str(path))
            summarise(document, name)
        except WorkflowLookupError as refusal:
            refused.append((name, str(refusal).replace(str(path), name).removeprefix(f"{name}: ")))
            continue
        features.update({finding.path[-1] for finding in check(document) if finding.severity is Severity.NOTE})
        try:
            workflow = build(document)
            as_markdown(workflow)
            steps, passed_over = walk(workflow)
        except Exception as problem:  # noqa: BLE001 - the report names it, whatever it is
            broken.append((name, f"{type(problem).__name__}: {problem}"))
            continue
        handed_out, skipped = handed_out + steps, skipped + passed_over
    loaded = len(paths) - len(refused)
    for name, reason in refused:
        out.print(f"[yellow]does not load[/]  {escape(name)}: {escape(reason)}")
    for name, reason in broken:
        out.print(f"[red]cannot be led[/]  {escape(name)}: {escape(reason)}")
    for feature, count in features.most_common():
        out.print(f"[cyan]not acted on[/]   '{feature}' in {count} documents (they load, with a warning)")
    out.print(
        f"[bold]{loaded} of {len(paths)} documents load[/], {loaded - len(broken)} were led to their end "
        f"with an empty context ({handed_out:,} steps handed out, {skipped:,} wait for context) in {time.perf_counter() - started:.1f} s"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
