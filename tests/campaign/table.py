"""All attempts, and how many of them came to what."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from campaign.answers import ANSWERS
from campaign.attacker import Attempt, Outcome
from campaign.edits import EDITS
from campaign.journal import JOURNAL
from campaign.remote import REMOTE
from campaign.signatures import SIGNATURES

ATTEMPTS: Final[list[Attempt]] = [*EDITS, *JOURNAL, *ANSWERS, *SIGNATURES, *REMOTE]
_OUTCOMES: Final[tuple[Outcome, ...]] = ("refused", "shown", "passed")


def summary(results: Iterable[tuple[Attempt, Outcome]]) -> str:
    """The number of attempts that were refused, shown and passed: of all, and of each kind."""
    pairs = [(attempt.kind, outcome) for attempt, outcome in results]
    kinds = sorted({kind for kind, _ in pairs})
    return "\n".join(
        [_line("all", pairs), *(_line(kind, [pair for pair in pairs if pair[0] == kind]) for kind in kinds)]
    )


def _line(title: str, pairs: Collection[tuple[str, Outcome]]) -> str:
    counts = Counter(outcome for _, outcome in pairs)
    return f"{title}: {len(pairs)} attempts, " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES)
