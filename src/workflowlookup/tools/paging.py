"""Pages of a list. A cursor is the encoded key of the last item of a page, opaque to clients."""

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
    """At most `limit` items after the cursor, and the cursor of the next page.

    The items must be sorted by key. A cursor stays valid when items come and go, because it is a key, not an index.
    """
    start = bisect.bisect_right(items, decode_cursor(cursor), key=key) if cursor else 0
    stop = len(items) if limit is None else start + limit
    page_items = items[start:stop]
    return page_items, encode_cursor(key(page_items[-1])) if stop < len(items) else None


def encode_cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidParams(
            "cursor must be a nextCursor that this server gave; leave it out to start at the beginning"
        ) from None
