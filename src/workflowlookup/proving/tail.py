"""The part of an output that matters: failing tests first, then the last lines; without escapes and secrets."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from workflowlookup.language.text import printable, shorten

MAX_TAIL_BYTES: Final = 2048
_MAX_LINE: Final = 300
_FAILING_BYTES: Final = 1200
"""What failing tests may take of the tail, so that the last lines are seen too."""

_ANSI: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[PX^_][^\x1b]{0,4096}(?:\x1b\\)?|[ -/]*[0-~])"
)

_FAILING: Final = re.compile(
    r"""(?x)
      (?:FAILED|ERROR)\ \S+(?:::|\.py|\ )                # pytest: FAILED tests/test_a.py::test_b - …
    | (?:FAIL|ERROR):\ \S                                # unittest: FAIL: test_a (tests.TestA)
    | \s*---\ FAIL:\ \S                                  # go
    | \ ?FAIL\s+\S                                        # go packages, jest and vitest files
    | test\ .+\ \.\.\.\ FAILED$                          # cargo
    | \s*(?:✖|✗|✘|\u00d7|❌)\ \S                              # node, vitest, JUnit's console
    | \s*not\ ok\ \d+                                    # TAP
    | \s*●\ \S                                           # jest
    | \s+\d+\)\ \S                                       # mocha
    | \[ERROR\]\ +(?:Failures|Errors|Tests\ run|\S+[.:]) # maven
    | .*\[X\]\ \S                                        # JUnit's tree
    """
)
_REASONS: Final = re.compile(
    r"""(?x)
      E\s{2,}\S                                          # pytest
    | \s*(?:\w+\.)*\w*(?:Error|Exception|Failure)\b\s*[:(\[]
    | thread\ '.*'\ panicked\ at | panic:\ | \s+\S+_test\.go:\d+:
    | error(?:\[\w+\])?:\ \S | \S+:\d+(?::\d+)?:\ (?:fatal\ )?error\b
    | \S*make(?:\[\d+\])?:\ \*\*\*                       # make
    | (?:FAILED\ \(|test\ result:\ FAILED|Tests:\s.*failed|\#\ fail\ [1-9]|\s*\d+\ failing\b)
    | (?:=+\ )?.*\b\d+\ (?:failed|errors?)\b.*
    | Tests\ run:.*(?:Failures|Errors):\ [1-9]
    """
)
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:SECRET|TOKEN|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH|DSN|(?:^|_)KEY(?:$|_)|(?:^|_)PASS(?:$|_)|(?:^|_)PWD$)"
)
_MIN_SECRET_LENGTH: Final = 6


def plain(data: bytes) -> str:
    """Output as text: without terminal sequences, and with harmless characters only. A line that was overwritten by a
    carriage return has only its last form."""
    text = _ANSI.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return printable(text)


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """The values of environment variables whose names look secret."""
    return frozenset(
        value
        for name, value in environment.items()
        if len(value) >= _MIN_SECRET_LENGTH and name not in ("PWD", "OLDPWD") and _SECRET_NAME.search(name)
    )


def tail(text: str) -> str:
    """At most `MAX_TAIL_BYTES` of the text: lines that name failing tests, then their reasons, then the last lines."""
    lines = [shorten(line.rstrip(), _MAX_LINE) for line in text.strip("\n").split("\n")]
    if _size(lines) <= MAX_TAIL_BYTES:
        return "\n".join(lines).strip()
    chosen: set[int] = set()
    room = _FAILING_BYTES
    for pattern in (_FAILING, _REASONS):
        for number, line in enumerate(lines):
            if number not in chosen and _size([line]) <= room and pattern.match(line):
                chosen.add(number)
                room -= _size([line])
    first = [lines[number] for number in sorted(chosen)]
    room = MAX_TAIL_BYTES - _size(first) - len("…\n".encode())
    last: list[str] = []
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if number in chosen:
            continue
        if _size([line]) > room:
            break
        room -= _size([line])
        last.append(line)
    return "\n".join([*first, "…", *reversed(last)]).strip()


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode(errors="replace")) + 1 for line in lines)
