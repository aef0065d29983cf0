"""Proofs of kind `http`: asks a service until it answers as it should, or the time is over.

A redirect is an answer like any other. `checked_http` makes the requests.
"""

import time
import urllib.parse
from collections.abc import Iterator
from typing import Final

from workflowlookup.checked_http import (
    HTTP_ERRORS,
    MAX_BODY_BYTES,
    AddressRefused,
    Answer,
    Target,
    parse_address,
    request,
    resolve,
)
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.proof import HttpProof
from workflowlookup.language.text import shorten
from workflowlookup.proving.contract import CannotJudge, Fault, ProofTask, World, may_be_cut, unmet_criteria
from workflowlookup.proving.tail import plain, tail
from workflowlookup.runs.events import Judgement

FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 1.0


def take_http(task: ProofTask, world: World) -> Judgement:
    """Take the proof. Raises `CannotJudge`."""
    proof = task.proof
    assert isinstance(proof, HttpProof)
    start = time.monotonic()
    deadline = start + proof.within
    url = task.fill(proof.url, lambda text: urllib.parse.quote(text, safe=""))
    target = _resolve(url, world, deadline)
    summary = shorten(f"{proof.method} {url}", 300)
    pause, fault, answer = FIRST_PAUSE_SECONDS, ("It was not asked.", "Raise `within`."), None
    is_first = True
    while time.monotonic() < deadline and not world.stop.is_set():
        try:
            answer = request(proof.method, target, deadline, world.stop)
        except HTTP_ERRORS as problem:
            if is_first or time.monotonic() < deadline:  # else we cut it, and the answer before says more
                words = str(problem) or type(problem).__name__
                fault = (
                    f"It did not answer: {shorten(words, 200)}.",
                    "Start the service, and see that it listens there.",
                )
        else:
            unmet = next(_faults(task, answer), None)
            if unmet is None:
                return _judgement(proof, summary, start, answer, None)
            fault = unmet
        is_first = False
        world.on_progress(f"{summary}, {time.monotonic() - start:.0f} s")
        world.stop.wait(min(pause, deadline - time.monotonic()))
        pause = min(2 * pause, MAX_PAUSE_SECONDS)
    reason, remedy = fault
    return _judgement(proof, summary, start, answer, (f"Within {proof.within:g} s: {reason}", remedy))


def _judgement(proof: HttpProof, summary: str, start: float, answer: Answer | None, fault: Fault | None) -> Judgement:
    reason, remedy = fault or ("", "")
    return Judgement(
        name=proof.name,
        kind="http",
        verdict="failed" if fault else "passed",
        summary=summary,
        reason=reason,
        remedy=remedy,
        seconds=round(time.monotonic() - start, 3),
        tail=tail(plain(answer.body)) if answer is not None else "",
    )


def _resolve(url: str, world: World, deadline: float) -> Target:
    """Where the request goes. Raises `CannotJudge` unless the host is allowed, or is this machine."""
    try:
        target = resolve(url, deadline)
    except AddressRefused as refusal:
        raise CannotJudge(refusal.reason, refusal.remedy) from None
    if not target.is_named_in(world.allowed_hosts()):
        for address in target.addresses:
            if not parse_address(address).is_loopback:
                raise CannotJudge(
                    f"The host {target.host} is not this machine ({address}), and the settings do not allow it.",
                    "Add the host to `proof_hosts` in the user's settings, or use a service on this machine.",
                )
    return target


def _faults(task: ProofTask, answer: Answer) -> Iterator[Fault]:
    proof = task.proof
    assert isinstance(proof, HttpProof)
    if answer.status != proof.status:
        to = f" to {shorten(answer.location, 100)}, which is not followed" if answer.location else ""
        yield f"It answered with status {answer.status}{to}; {proof.status} is needed.", "Fix the service."
    if proof.body is not None:
        if not answer.is_whole and not may_be_cut(proof.body):
            raise CannotJudge(
                f"The body is longer than {MAX_BODY_BYTES:,} bytes, so that its criteria cannot be judged.",
                "Ask for a smaller answer.",
            )
        yield from unmet_criteria(proof.body, plain(answer.body), "body", task, Budget())
