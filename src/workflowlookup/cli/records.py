"""What the parts of a checkup have in common."""

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the report."""


class Problem(Record, frozen=True, kw_only=True):
    """Something that is wrong, and what to do about it."""

    problem: str
    remedy: str
