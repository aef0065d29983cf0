"""The log: one line an event on standard error, as text or as JSON. Failing to write it never stops the work."""

import contextlib
import logging
import os
import re
import select
from typing import Final

_NAME: Final = "workflowlookup"
_DESCRIPTOR: Final = 2


def start_log(level: str, form: str) -> None:
    """Send the package's log to standard error."""
    handler = _StandardError()
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    logger = logging.getLogger(_NAME)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


class _StandardError(logging.Handler):
    """Writes to standard error, and drops what nobody reads: a client that never does must not stop the server."""

    def emit(self, record: logging.LogRecord) -> None:
        data = f"{self.format(record)}\n".encode(errors="backslashreplace")
        with contextlib.suppress(OSError):
            for start in range(0, len(data), select.PIPE_BUF):
                if not select.select([], [_DESCRIPTOR], [], 0)[1]:
                    return
                os.write(_DESCRIPTOR, data[start : start + select.PIPE_BUF])


def _one_line(text: str) -> str:
    """The text without what a terminal would obey: what is logged may quote a document that somebody else wrote."""
    from workflowlookup.core.text import HIDDEN, printable  # noqa: PLC0415 - with the first line

    if "\n" not in text and printable(text) == text:
        return text
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return re.sub(HIDDEN, lambda found: found[0].encode("unicode_escape").decode(), text)


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += ": " + self.formatException(record.exc_info)
        return f"{_NAME} {record.levelname.lower()}: {_one_line(text)}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import msgspec  # noqa: PLC0415 - imported long before, and not needed for text

        line = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()
