"""What libraries log: it joins our log, where only those who look closely see it, and it never prints by itself."""

import logging


class _Joined(logging.Handler):
    """Hands a record on to our log; a failure that matters is told by us, in our words."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._log = logging.getLogger(f"workflowlookup.{name}")

    def emit(self, record: logging.LogRecord) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            cause = record.exc_info[1] if record.exc_info else None
            self._log.debug("%s%s", record.getMessage(), f": {cause!r}" if cause is not None else "")


def join_log(*names: str) -> None:
    """Let what these loggers say join our log. To be called before the library has set up its own."""
    for name in names:
        logger = logging.getLogger(name)
        logger.propagate = False
        if not any(isinstance(handler, _Joined) for handler in logger.handlers):
            logger.handlers = [_Joined(name)]
