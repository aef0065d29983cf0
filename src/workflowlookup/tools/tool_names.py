"""Names for the tools that stand for workflows: made from the workflow's name, and kept for as long as it exists.

A name has letters, digits, `_` and `-`, at most 52 of them (some clients put a prefix before it and end at 64), and is
never that of a built-in tool. Where two would be the same but for their case, the second has the workflow's id added.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from workflowlookup.providers.config import Subject

LONGEST: Final = 52
_SOUND: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}")

Key: TypeAlias = tuple[str, str]
"""A provider and the id of one of its workflows."""
NO_NAMES: Final[Mapping[str, Key]] = {}


def assign(
    workflows: Iterable[Subject],
    kept: Mapping[Key, str],
    reserved: Collection[str],
    freed: Mapping[str, Key] = NO_NAMES,
) -> tuple[dict[Key, str], dict[Key, str]]:
    """A name for each workflow, and those among them that are new. `kept` names are given to nobody else, and those
    that were `freed` lately only to the workflow that had them.
    """
    names: dict[Key, str] = {}
    new: dict[Key, str] = {}
    taken = {name.lower() for name in (*reserved, *kept.values())}
    had = {key: name for name, key in freed.items() if name.lower() not in taken}
    taken |= {name.lower() for name in freed}
    for workflow in workflows:
        key = workflow.provider, workflow.id
        before = kept.get(key)
        if before is not None and before not in reserved:
            names[key] = before
            continue
        free = (name for name in _candidates(workflow) if name.lower() not in taken)
        names[key] = new[key] = had.get(key) or next(free)
        taken.add(names[key].lower())
    return names, new


def _candidates(workflow: Subject) -> Iterator[str]:
    """Names that would do, the best first, without end."""
    own, by_id, provider = slug(workflow.name), slug(workflow.id), slug(workflow.provider)
    base = own or by_id or "workflow"
    if own or by_id:
        yield base[:LONGEST]
    if by_id and by_id != base:
        yield _joined(base, by_id)
    if by_id:
        yield _joined(base, f"{by_id}_{provider}" if by_id != base else provider)
    import hashlib  # noqa: PLC0415 - seldom needed

    number = 0
    while True:  # what is left differs in what cannot be said in a name
        text = f"{workflow.provider}\0{workflow.id}\0{number}"
        yield _joined(base, hashlib.sha256(text.encode()).hexdigest()[:8])
        number += 1


def _joined(base: str, rest: str) -> str:
    """Both parts in one name, the first cut as far as the second needs it, and that to its beginning if need be."""
    rest = rest[: LONGEST - 9]
    return f"{base[: LONGEST - len(rest) - 1].rstrip('_-')}_{rest}"


def slug(text: str) -> str:
    """The text as a name: itself when it is one, else in small letters, with `_` for what cannot be in a name."""
    if _SOUND.fullmatch(text) and not text.istitle():
        return text
    plain = unicodedata.normalize("NFKD", text)
    letters = "".join(character for character in plain if not unicodedata.combining(character))
    return re.sub(r"[^a-z0-9_-]+", "_", letters.lower()).strip("_-")
