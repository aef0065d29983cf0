"""What is likely to mend a YAML syntax error: guessed from the parser's words and the line where it stopped."""

import itertools
import re
from typing import Final

Position = tuple[int, int]
"""Line and column, from 0."""

_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_LINE: Final = re.compile(r"\s*(?:-\s+)*(?:[^\s:#'\"{\[][^:]*:\s+)?(?P<value>.*)")
_NEEDS_QUOTES: Final = frozenset("{[@`%*&!")


def hint(problem: str, text: str, stopped: Position, opened: Position | None) -> str:
    """What to do; `opened` is where the parser says that it began what it could not finish."""
    row, column = stopped
    line = next(itertools.islice(_BREAK.split(text), row, None), "")
    value = _LINE.match(line)["value"]  # type: ignore[index]  # matches any line
    begin = f"line {opened[0] + 1}, column {opened[1] + 1}" if opened else "the place above"
    if "tab" in problem or line[column : column + 1] == "\t":
        return "Indent with spaces: YAML takes no tabs there"
    if "twice" in problem:
        return f"Remove one of the two, or rename it; the first stands at {begin}"
    if "quote" in problem:
        return f"Close the quote that opens at {begin}"
    if "escape" in problem:
        return "Use single quotes, in which a backslash is plain text, or write it twice"
    if "line break" in problem:
        return f"Begin the text on a line of its own below '{value[:1]}', or put it in quotes"
    if "mapping values" in problem and ": " in line[:column]:
        return "Put text that holds ': ' in quotes, as in title: \"Announce: the end\""
    if value[:1] in ("'", '"'):
        return f"The text ends at the second {value[0]}: write {value[0]} within it as {_ESCAPED[value[0]]}"
    if "',' or" in problem:
        return f"Close the bracket that opens at {begin}, or put a comma between its members"
    if value[:1] in _NEEDS_QUOTES:
        return f"Put text that begins with '{value[0]}' in quotes, as in title: \"{value[:20]}\""
    if "another document" in problem:
        return "Keep one document in a file: remove '---' and what follows it"
    return "Check the indentation and the quotes around this place; long text goes after '|'"


_ESCAPED: Final = {"'": "''", '"': '\\"'}
