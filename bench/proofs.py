"""What a proof adds to its command: an output that is proven over pipes, beside the command alone.

The project is a git repository, so that each proof also reads the commit and whether the tree is clean.
"""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from client import Peer, tool_calls

COMMAND: Final = "the command alone"
PROOF: Final = "a submission with the proof"
_SLEEP: Final = ["sleep", "0.1"]
_IDENTITY: Final = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")


def measure(
    command: Sequence[str], environment: Mapping[str, str], scratch: Path, rounds: int
) -> Mapping[str, Sequence[float]]:
    """Milliseconds, for each round."""
    project = scratch / "proven"
    library = project / "library"
    library.mkdir(parents=True)
    steps = [
        {
            "id": f"step-{number}",
            "title": f"Step {number}",
            "prompt": "Do it.",
            "proof": [{"kind": "command", "name": "it", "run": _SLEEP, "timeout": 10}],
        }
        for number in range(rounds + 2)
    ]
    workflow = {"id": "proven-run", "name": "Proven run", "description": "A run with proofs.", "steps": steps}
    (library / "proven-run.json").write_text(json.dumps(workflow))
    for words in (["init", "-q"], ["add", "."], [*_IDENTITY, "commit", "-qm", "begin"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    place = {"WORKFLOWLOOKUP_JOURNAL": str(scratch / "proofs.sqlite"), "WORKFLOWLOOKUP_DIRECTORIES": str(library)}
    took: dict[str, list[float]] = {COMMAND: [], PROOF: []}
    with Peer([*command, "--root", str(project)], {**environment, **place}) as peer:
        peer.ready()
        started = peer.ask(tool_calls("workflow_start", [{"workflowId": "proven-run"}]))[0]
        run_id = started["structuredContent"]["runId"]
        for number in range(rounds + 1):
            arguments = {"runId": run_id, "stepId": f"step-{number}", "output": "done"}
            answer, elapsed = peer.ask(tool_calls("workflow_submit", [arguments]))
            assert answer["structuredContent"]["verdict"]["valid"], answer
            began = time.perf_counter_ns()
            subprocess.run(_SLEEP, check=True)
            if number:  # the first proof starts the worker
                took[PROOF].append(elapsed)
                took[COMMAND].append((time.perf_counter_ns() - began) / 1e6)
    return took
