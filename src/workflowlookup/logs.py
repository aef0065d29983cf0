"""The log: one line per event on standard error, as text or JSON. A failure to write it stops nothing.

The audit log records who did what: one line per action, on standard error or in a file of its own.
"""

import contextlib
import logging
import os
import re
import select
import sys
import threading
import types
from typing import Final

_NAME: Final = "workflowlookup"
_DESCRIPTOR: Final = 2
DETAILS: Final = "details"
"""The attribute of a record with fields that a JSON line shows apart from the message."""
_IS_PLAIN: Final = "is_plain"
"""The attribute of a record whose text is written without a prefix."""
_NEVER: Final = logging.CRITICAL + 1

_audit: Final = logging.getLogger(f"{_NAME}.audit")
_audit.setLevel(_NEVER)


def start_log(level: str, form: str) -> None:
    """Log to standard error: messages of this package from this level on, and warnings of libraries.

    With the form `json` every line is one JSON object, including exceptions that Python itself would print.
    """
    handler = _StandardError()
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    logger = logging.getLogger(_NAME)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
    root = logging.getLogger()
    root.handlers = [*(other for other in root.handlers if not isinstance(other, _StandardError)), handler]
    logging.captureWarnings(capture=True)
    if form == "json":
        sys.excepthook = _log_uncaught
        threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
        sys.unraisablehook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def announce(text: str) -> None:
    """Tell the user who started the server something, whatever the log level; as plain text or as a JSON line."""
    logger = logging.getLogger(_NAME)
    record = logger.makeRecord(_NAME, logging.INFO, "", 0, text, (), None, extra={_IS_PLAIN: True})
    if any(isinstance(handler, _StandardError) for handler in logger.handlers):
        logger.handle(record)
    else:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - no log was started


def start_audit(destination: str) -> None:
    """Start the audit log. `destination` is empty for none, `log` for standard error, or the path of a file.

    Call `start_log` first. Raises `OSError` when the file cannot be opened.
    """
    handlers: list[logging.Handler] = []
    if destination == "log":
        handlers = list(logging.getLogger(_NAME).handlers)
    elif destination:
        os.close(_open_to_append(destination))
        handlers = [_File(destination)]
        handlers[0].setFormatter(_JsonLines())
    _audit.handlers = handlers
    _audit.propagate = False
    _audit.setLevel(logging.INFO if handlers else _NEVER)


def audit(action: str, **details: object) -> None:
    """Record an action; `details` say who did it (`by`) and to what."""
    if _audit.isEnabledFor(logging.INFO):
        _audit.info("%s", action, extra={DETAILS: {name: value for name, value in details.items() if value}})


def _log_uncaught(
    kind: type[BaseException], problem: BaseException | None, traceback: types.TracebackType | None
) -> None:
    if issubclass(kind, SystemExit):
        return
    problem = problem or kind()
    logging.getLogger(_NAME).critical("an exception was not caught", exc_info=(kind, problem, traceback))


class _StandardError(logging.Handler):
    """Writes to standard error. Drops lines when the pipe is full: a client that never reads must not block us."""

    def emit(self, record: logging.LogRecord) -> None:
        data = f"{self.format(record)}\n".encode(errors="backslashreplace")
        with contextlib.suppress(OSError):
            for start in range(0, len(data), select.PIPE_BUF):
                if not select.select([], [_DESCRIPTOR], [], 0)[1]:
                    return
                os.write(_DESCRIPTOR, data[start : start + select.PIPE_BUF])


class _File(logging.Handler):
    """Appends lines to a file. Opens it for each line, so that it can be rotated at any time."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        try:
            descriptor = _open_to_append(self._path)
            try:
                os.write(descriptor, f"{self.format(record)}\n".encode(errors="backslashreplace"))
            finally:
                os.close(descriptor)
        except OSError as problem:
            message = "the audit log %s cannot be written (%s). It lacks this entry: %s %s"
            details = getattr(record, DETAILS, {})
            logging.getLogger(_NAME).log(
                logging.ERROR, message, self._path, problem.strerror, record.getMessage(), details
            )


def _open_to_append(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _quoted(value: object) -> str:
    """A field of a text line, quoted unless it is a plain word, so that a value cannot look like another field."""
    import msgspec  # noqa: PLC0415 - not needed for lines without fields

    text = str(value)
    return text if re.fullmatch(r"[^\s\"=]+", text) else msgspec.json.encode(text).decode()


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from workflowlookup.language.text import escaped  # noqa: PLC0415 - with the first line

        text = record.getMessage()
        if getattr(record, _IS_PLAIN, False):
            return text
        text += "".join(f" {name}={_quoted(value)}" for name, value in getattr(record, DETAILS, {}).items())
        if record.exc_info:
            text += ": " + self.formatException(record.exc_info)
        kind = "audit" if record.name == _audit.name else record.levelname.lower()
        return f"{_NAME} {kind}: {escaped(text)}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import msgspec  # noqa: PLC0415 - imported long before, and not needed for text

        line: dict[str, object] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        line |= getattr(record, DETAILS, {})
        return msgspec.json.encode(line).decode()


# ── what libraries log ───────────────────────────────────────────────────────────────────────────────────────────


class _LibraryHandler(logging.Handler):
    """Passes the records of a library to our log at debug level; failures that matter are logged by us as well."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._log = logging.getLogger(f"workflowlookup.{name}")

    def emit(self, record: logging.LogRecord) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            cause = record.exc_info[1] if record.exc_info else None
            self._log.debug("%s%s", record.getMessage(), f": {cause!r}" if cause is not None else "")


def capture_library_logs(*names: str) -> None:
    """Send the output of these loggers to our log. Call it before the library configures its own handlers."""
    for name in names:
        logger = logging.getLogger(name)
        logger.propagate = False
        if not any(isinstance(handler, _LibraryHandler) for handler in logger.handlers):
            logger.handlers = [_LibraryHandler(name)]
    root = logging.getLogger()
    if not root.handlers:  # otherwise Python prints to standard error, and blocks if nobody reads it
        root.addHandler(_LibraryHandler("libraries"))
