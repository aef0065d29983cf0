"""Finds the steps of a page: numbered headings, else one numbered list, else the page is one step.

Every line of the page belongs to the title, to one step, or to the guidance, and stays as it is. What looks like steps
but is not, such as numbered principles or an example, is told by the words of the headings around it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.foreign.page import Heading, Item, OrderedList, Page
from workflowlookup.authoring.foreign.words import (
    is_example,
    is_generic_title,
    is_procedure,
    is_topic,
    is_verification,
    starts_with_verb,
)

Lines = tuple[int, int]
"""The first line, and the line after the last one."""

MAX_LEAD: Final = 80
"""Length of the title of a list item that has no bold words at its beginning."""


class StepLines(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the page."""

    title: str
    first: int
    """The line of its title."""
    text: Sequence[Lines]
    """What belongs to it, without the title if that is a heading."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A page in parts."""

    title: Heading | None
    steps: Sequence[StepLines]
    guidance: Sequence[Lines]
    words: str
    """How the steps were found."""
    is_split: bool
    passed_over: Sequence[tuple[str, int]] = ()
    """Other things that look like steps, each with its first line."""


def split(page: Page) -> Split:
    """The parts of a page."""
    title = _title(page)
    sequences = _heading_sequences(page, title)
    chosen = _choose(sequences)
    if chosen is not None:
        others = [
            (
                f"{len(other.headings)} other numbered headings from '{other.headings[0].text}' on",
                other.headings[0].first,
            )
            for other in sequences
            if other is not chosen
        ]
        return _by_headings(page, title, chosen, others)
    lists = [] if sequences else [found for found in _list_sequences(page) if _is_procedure_list(page, found)]
    named = [found for found in lists if (parent := page.parent(found.first)) and is_procedure(parent.text)]
    for choice in (lists, named):
        if len(choice) == 1:
            others = [(f"another numbered list of {len(x.items)} items", x.first) for x in lists if x is not choice[0]]
            return _by_list(page, title, choice[0], others)
    start = title.after if title is not None else page.body
    step = StepLines(title="", first=start, text=[(start, page.end)])
    passed = [
        *(
            (f"{len(x.headings)} numbered headings from '{x.headings[0].text}' on", x.headings[0].first)
            for x in sequences
        ),
        *((f"a numbered list of {len(found.items)} items", found.first) for found in lists),
    ]
    return Split(title=title, steps=[step], guidance=[], words="nothing", is_split=False, passed_over=passed)


def _title(page: Page) -> Heading | None:
    """The heading that names the page: of level 1, with nothing before it, and not a step."""
    if not page.headings:
        return None
    first = page.headings[0]
    is_title = first.level == 1 and page.is_blank(page.body, first.first) and not is_generic_title(first.text)
    return first if is_title and _numbered(first) is None else None


# ── headings ────────────────────────────────────────────────────────────────────────────────────────────────────

_UNIT: Final = (
    r"(?:step|phase|stage|task|milestone|étape|etape|schritt|paso|passo|etapa|fase|stap|steg|krok|шаг|этап"
    r"|步骤|步驟|阶段|階段|ステップ|手順|단계)"
)
_SPELT: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ROMAN: Final = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_CHINESE: Final = "零一二三四五六七八九十"
_DECORATION: Final = r"[^\w#]*"
_END: Final = r"(?=\s*(?:[:\uff1a.)\]|、\u2013\u2014*/(-]|$)|\s)"
_WITH_UNIT: Final = (
    re.compile(
        rf"{_DECORATION}{_UNIT}\s*#?\s*(?P<number>\d+(?:\.\d+)*[a-z]?(?:\ufe0f?\u20e3)?|{'|'.join(_SPELT)}){_END}",
        re.IGNORECASE,
    ),
    re.compile(rf"{_DECORATION}(?i:{_UNIT})\s+(?P<number>[IVX]+|[A-H])(?=\s*[:\uff1a.)\u2013\u2014-]|\s*$)"),
    re.compile(rf"{_DECORATION}第\s*(?P<number>\d+|[{_CHINESE}])\s*(?:步|阶段|階段|章)"),
    re.compile(rf"{_DECORATION}(?P<number>\d+)\s*단계"),
)
_BARE: Final = re.compile(
    rf"{_DECORATION}(?P<number>\d+(?:\.\d+)*)(?:\ufe0f?\u20e3\s*|\s*[.):\uff1a、\u2013\u2014]\s*|\s+[-|]\s+)(?=\S)"
)

_AFTER_NUMBER: Final = " :\uff1a.)]|、\u2013\u2014-*/"

Number = tuple[int, ...]


class _Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """What the number of a heading says."""

    number: Number
    has_unit: bool
    """Whether it says "step" or the like."""
    rest: str
    """The text after the number."""


def _numbered(heading: Heading) -> _Numbered | None:
    for pattern in (*_WITH_UNIT, _BARE):
        match = pattern.match(heading.text)
        if match is not None:
            rest = heading.text[match.end() :].lstrip(_AFTER_NUMBER)
            return _Numbered(number=_value(match["number"]), has_unit=pattern is not _BARE, rest=rest)
    return None


def without_number(title: str) -> str:
    """A title without "Step 3:" or "3." at its beginning, if anything else is left."""
    for pattern in (*_WITH_UNIT, _BARE):
        match = pattern.match(title)
        if match is not None:
            return title[match.end() :].lstrip(_AFTER_NUMBER) or title
    return title


def _value(text: str) -> Number:
    text = text.rstrip("\ufe0f\u20e3").lower()
    for names in (_SPELT, _ROMAN, _CHINESE):
        if text in names and text:
            return (list(names).index(text),)
    if len(text) == 1 and text.isalpha():
        return (ord(text) - ord("a") + 1,)
    suffix = ord(text[-1]) if text[-1].isalpha() else 0
    return (*(int(part) for part in re.findall(r"\d{1,9}", text)), *([suffix] if suffix else []))


class _Sequence(msgspec.Struct, frozen=True, kw_only=True):
    """Numbered headings of one level that count upwards."""

    headings: Sequence[Heading]
    has_unit: bool
    parent: Heading | None
    after: int
    """The line after the section of its last heading."""

    @property
    def level(self) -> int:
        return self.headings[0].level

    @property
    def words(self) -> str:
        return f"{len(self.headings)} numbered headings, from '{self.headings[0].text}' on"

    @property
    def is_named(self) -> bool:
        """Whether the heading above says that this is a procedure."""
        return self.parent is not None and is_procedure(self.parent.text)


def _heading_sequences(page: Page, title: Heading | None) -> list[_Sequence]:
    """The sequences that are steps, the outermost only."""
    found: list[_Sequence] = []
    for has_unit in (True, False):
        for level in range(1, 7):
            found += _sequences_of(page, level, has_unit=has_unit)
    steps = [sequence for sequence in found if _are_steps(page, sequence, title)]
    steps.sort(key=lambda sequence: (sequence.level, sequence.headings[0].first))
    outermost: list[_Sequence] = []
    for sequence in steps:
        first = sequence.headings[0].first
        if not any(other.headings[0].first < first < other.after for other in outermost):
            outermost.append(sequence)
    return outermost


def _sequences_of(page: Page, level: int, *, has_unit: bool) -> Iterator[_Sequence]:
    run: list[tuple[Heading, Number]] = []
    for heading in page.headings:
        numbered = _numbered(heading) if heading.level == level else None
        if numbered is None or numbered.has_unit is not has_unit:
            continue
        if run and not _continues(page, run[-1], heading, numbered.number):
            yield from _sequence(page, run, has_unit=has_unit)
            run = []
        run.append((heading, numbered.number))
    yield from _sequence(page, run, has_unit=has_unit)


def _continues(page: Page, last: tuple[Heading, Number], heading: Heading, number: Number) -> bool:
    """Whether a numbered heading follows the last one: a higher number, and, below another heading, the next one."""
    before, previous = last
    if number <= previous:
        return False
    is_same_parent = page.parent(before.first, before.level) is page.parent(heading.first, heading.level)
    return is_same_parent or number[0] in (previous[0], previous[0] + 1)


def _sequence(page: Page, run: Sequence[tuple[Heading, Number]], *, has_unit: bool) -> Iterator[_Sequence]:
    if len(run) < 2 or run[0][1][0] > 1:
        return
    headings = [heading for heading, _ in run]
    parent = page.parent(headings[0].first, headings[0].level)
    yield _Sequence(headings=headings, has_unit=has_unit, parent=parent, after=page.section_end(headings[-1]))


def _are_steps(page: Page, sequence: _Sequence, title: Heading | None) -> bool:
    above = list(_above(page, sequence.headings[0]))
    if any(is_example(heading.text) for heading in above if heading is not title):
        return False
    if sequence.has_unit:
        return True
    if any(is_topic(heading.text) for heading in above if heading is not title):
        return False
    texts = [numbered.rest for heading in sequence.headings if (numbered := _numbered(heading))]
    verbs = sum(map(starts_with_verb, texts))
    if sequence.is_named and sequence.parent is not title:
        return verbs * 5 >= len(texts) or not any(map(str.isascii, texts))
    return verbs * 2 > len(texts)


def _above(page: Page, heading: Heading) -> Iterator[Heading]:
    """The headings whose sections contain a heading, innermost first."""
    current: Heading | None = heading
    while current is not None and (current := page.parent(current.first, current.level)) is not None:
        yield current


def _choose(sequences: Sequence[_Sequence]) -> _Sequence | None:
    """The sequence that is the procedure: one that says "step", is named so, or is by far the longest of several.

    A page with several that are alike describes several procedures; None then.
    """
    for subset in (
        [found for found in sequences if found.has_unit and found.is_named],
        [found for found in sequences if found.has_unit],
        [found for found in sequences if found.is_named],
        sequences,
    ):
        longest = sorted(subset, key=lambda found: -len(found.headings))
        if len(longest) == 1 or (longest and len(longest[0].headings) >= 2 * len(longest[1].headings)):
            return longest[0]
        if longest:
            return None
    return None


def _by_headings(page: Page, title: Heading | None, chosen: _Sequence, others: Sequence[tuple[str, int]]) -> Split:
    """Each heading begins a step. A section between two steps belongs to the one before it, or above the next one."""
    guidance: list[Lines] = [(title.after if title is not None else page.body, chosen.headings[0].first)]
    steps: list[StepLines] = []
    above_next: list[Lines] = []
    for number, heading in enumerate(chosen.headings):
        is_last = number == len(chosen.headings) - 1
        end = page.section_end(heading) if is_last else chosen.headings[number + 1].first
        text = [*above_next, (heading.after, end)]
        above_next = []
        if not is_last:  # a heading that contains the next step, such as "Part two", is read with that step
            outer = [x for x in page.headings if heading.first < x.first < end and x.level < chosen.level]
            if outer:
                text = [*text[:-1], (heading.after, outer[-1].first)]
                above_next = [(outer[-1].first, end)]
        steps.append(StepLines(title=heading.text, first=heading.first, text=text))
    rest_steps, rest_guidance = _sections_after(page, steps[-1].text[-1][1], chosen.headings[0])
    unit = "numbered headings" if not chosen.has_unit else "numbered step headings"
    return Split(
        title=title,
        steps=[*steps, *rest_steps],
        guidance=[*guidance, *rest_guidance],
        words=f"{len(steps)} {unit}",
        is_split=True,
        passed_over=others,
    )


def _sections_after(page: Page, start: int, near: Heading | None) -> tuple[list[StepLines], list[Lines]]:
    """What follows the last step: a section that verifies the result is a step, everything else is guidance.

    Such a section stands beside `near`, the heading of a step or of the list of steps, or beside one above that.
    """
    above = [] if near is None else list(_above(page, near))
    steps: list[StepLines] = []
    guidance: list[Lines] = []
    position = start
    for heading in (found for found in page.headings if found.first >= start and is_verification(found.text)):
        parent = page.parent(heading.first, heading.level)
        after = page.section_end(heading)
        is_beside = parent is None or parent in above
        if heading.first < position or not is_beside or page.is_blank(heading.after, after):
            continue
        guidance.append((position, heading.first))
        steps.append(StepLines(title=heading.text, first=heading.first, text=[(heading.after, after)]))
        position = after
    return steps, [*guidance, (position, page.end)]


# ── lists ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _ListSequence(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered list, and the parts into which code between its items has cut it."""

    items: Sequence[Item]

    @property
    def first(self) -> int:
        return self.items[0].first


def _list_sequences(page: Page) -> Iterator[_ListSequence]:
    run: list[Item] = []
    for found in page.lists:
        if run and _is_continued(page, run, found):
            run[-1] = Item(first=run[-1].first, after=found.items[0].first)
        else:
            if run:
                yield _ListSequence(items=run)
            run = []
        run.extend(found.items)
    if run:
        yield _ListSequence(items=run)


def _is_continued(page: Page, run: Sequence[Item], found: OrderedList) -> bool:
    between = any(run[-1].first < heading.first < found.items[0].first for heading in page.headings)
    return not between and found.start == len(run) + 1


def _is_procedure_list(page: Page, found: _ListSequence) -> bool:
    parent = page.parent(found.first)
    above = [] if parent is None else [parent, *_above(page, parent)]
    if any(is_topic(heading.text) or is_example(heading.text) for heading in above if heading.level > 1):
        return False
    leads = [_lead(page, item) for item in found.items]
    verbs = sum(map(starts_with_verb, leads))
    is_named = parent is not None and is_procedure(parent.text)
    if is_named:
        return len(leads) >= 2 and (verbs * 5 >= len(leads) or not any(map(str.isascii, leads)))
    return len(leads) >= 3 and verbs * 2 > len(leads)


_MARKER: Final = re.compile(r"\s{0,3}\d{1,9}[.)][ \t]+")
_BOLD: Final = re.compile(r"(?:\[[ xX]\]\s*)?(?:\*\*|__)(?P<lead>[^*_`\n][^\n]*?)(?:\*\*|__)")
_SENTENCE: Final = re.compile(r"(?P<lead>.{3,}?)(?:[.:\uff1a。;](?:\s|$)|\s[\u2013\u2014]\s|\s-\s)")


def _lead(page: Page, item: Item) -> str:
    """The words at the beginning of a list item that can be its title."""
    lines = [_MARKER.sub("", page.line(item.first), count=1)]
    for number in range(item.first + 1, item.after):
        line = page.line(number).strip()
        if not line or line[0] in "-*+>`|#0123456789" or number in page.code_lines:
            break
        lines.append(line)
    text = " ".join(" ".join(lines).split())
    for pattern in (_BOLD, _SENTENCE):
        match = pattern.match(text)
        if match is not None and match["lead"].strip(" *_:.") and len(match["lead"]) <= MAX_LEAD:
            return match["lead"].strip().rstrip(":\uff1a.").strip()
    if len(text) <= MAX_LEAD:
        return text.rstrip(":\uff1a.")
    return text[: text.rfind(" ", 0, MAX_LEAD) if " " in text[:MAX_LEAD] else MAX_LEAD] + "…"


def _by_list(page: Page, title: Heading | None, chosen: _ListSequence, others: Sequence[tuple[str, int]]) -> Split:
    """Each item is a step, with everything inside it."""
    steps = [
        StepLines(title=_lead(page, item), first=item.first, text=[(item.first, item.after)]) for item in chosen.items
    ]
    before = (title.after if title is not None else page.body, chosen.first)
    rest_steps, rest_guidance = _sections_after(page, chosen.items[-1].after, page.parent(chosen.first))
    return Split(
        title=title,
        steps=[*steps, *rest_steps],
        guidance=[before, *rest_guidance],
        words=f"a numbered list of {len(steps)} items",
        is_split=True,
        passed_over=others,
    )


def without_marker(lines: Sequence[str]) -> str:
    """The text of a list item: its lines without the number and the indentation that it asks for."""
    marker = _MARKER.match(lines[0])
    if marker is None:
        return "\n".join(lines)
    width = len(marker[0].expandtabs(4))
    return "\n".join([lines[0][marker.end() :], *(_dedented(line, width) for line in lines[1:])])


def _dedented(line: str, width: int) -> str:
    text = line.expandtabs(4) if line[:width].count("\t") else line
    return text[min(width, len(text) - len(text.lstrip(" "))) :]
