"""What pages load: a stylesheet, a script, htmx and an icon, all from this package and kept in memory."""

import functools
import hashlib
import os
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

FILES: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_FOLDER: Final = os.path.join(os.path.dirname(__file__), "static")


@functools.cache
def _content(name: str) -> tuple[bytes, str]:
    with open(os.path.join(_FOLDER, name), "rb") as file:
        data = file.read()
    return data, hashlib.sha256(data).hexdigest()[:12]


def address(name: str) -> str:
    """Where a file is found; another address when it has changed, so that browsers may keep it."""
    return f"/static/{name}?{_content(name)[1]}"


def serve(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        return Response("There is no such file.", 404, media_type="text/plain")
    data, digest = _content(name)
    is_exact = request.url.query == digest
    kept = "public, max-age=31536000, immutable" if is_exact else "no-cache"
    return Response(data, headers={"Content-Type": FILES[name], "Cache-Control": kept, "ETag": f'"{digest}"'})
