"""Cursors for everything that comes in pages: the key of the last item shown, opaque to clients."""

import base64
import binascii
import bisect
from collections.abc import Callable, Sequence
from typing import TypeVar

from workflowlookup.errors import InvalidParams

Item = TypeVar("Item")


def page(
    items: Sequence[Item], key: Callable[[Item], str], cursor: str | None, limit: int | None
) -> tuple[Sequence[Item], str | None]:
    """The items after the cursor, at most `limit`, and the cursor of the page that follows.

    The items are ordered by key. A cursor stays good when items come and go: it names a place, not a position.
    """
    start = bisect.bisect_right(items, decode_cursor(cursor), key=key) if cursor else 0
    stop = len(items) if limit is None else start + limit
    shown = items[start:stop]
    return shown, encode_cursor(key(shown[-1])) if stop < len(items) else None


def encode_cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidParams(
            "cursor must be a nextCursor that this server gave; leave it out to start at the beginning"
        ) from None
