"""Which version the tables of a journal are at, and whether a program can work with them."""

import msgspec


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tables of a database are, as one program sees it."""

    version: int
    """0: there are none yet."""
    known: int
    """The version that this program makes."""
    least: int | None = None
    """The oldest version whose programs can work with the tables; None where nobody wrote that down yet."""
    is_foreign: bool = False
    """The database is that of another program."""

    @property
    def is_up_to_date(self) -> bool:
        """Whether there is nothing to be done."""
        return self.version >= self.known and not self.is_foreign

    @property
    def problem(self) -> str:
        """Why this program cannot work with the tables; nothing when it can."""
        if self.is_foreign:
            return "it is a SQLite file of another program, and was not touched. Give the journal another path"
        if self.version <= self.known or (self.least is not None and self.least <= self.known):
            return ""
        return "it was written by a newer version of workflowlookup. Update this one"
