"""`workflow_validate_json` of documents of 20 kB, beside decoding them and validating them against the bare schema.

The documents are checked by a server, through its pipe; the bare part is done in this process, between two series.
"""

import time
from typing import Any, Final

import jsonschema_rs
import msgspec

import documents
from client import Peer, direct_calls
from workflowlookup.language.workflow_schema import workflow_schema

BYTES: Final = 20_000
VARIANTS: Final = 4
OURS: Final = "workflow_validate_json"
BARE: Final = "decode and jsonschema-rs"


def large(number: int) -> str:
    """A document of at least `BYTES`, with the steps of as many generated ones as that takes."""
    content = documents.document(number)
    steps: list[dict[str, Any]] = []
    for other in range(number, number + 100):
        steps += [{**step, "id": f"{step['id']}-{other}"} for step in documents.document(other)["steps"]]
        text = documents.encode({**content, "steps": steps})
        if len(text) >= BYTES:
            return text
    raise AssertionError("the generated documents are too small")


def measure(peer: Peer, rounds: int, calls: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds for one document, the mean of each round: what else the machine does slows down both."""
    texts = [large(number * 100) for number in range(VARIANTS)]
    question = direct_calls("workflow_validate_json", [{"workflowJson": text} for text in texts])
    validator = jsonschema_rs.validator_for(workflow_schema(), validate_formats=True)
    times: dict[str, list[float]] = {OURS: [], BARE: []}
    for number in range(rounds + 1):
        ours, bare = 1e6 / peer.pace(question, calls, seconds).calls_per_second, _bare(validator, texts, calls)
        if number:  # the first round only warms up
            times[OURS].append(ours)
            times[BARE].append(bare)
    return times


def _bare(validator: jsonschema_rs.Validator, texts: list[str], calls: int) -> float:
    encoded = [text.encode() for text in texts]
    start = time.perf_counter_ns()
    for number in range(10 * calls):
        assert not list(validator.iter_errors(msgspec.json.decode(encoded[number % len(encoded)])))
    return (time.perf_counter_ns() - start) / 10 / calls / 1_000
