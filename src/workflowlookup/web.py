"""Forms that browsers send: whether a page of ours sent one, and what is in it. Whose it is, is for others to say."""

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

KIND: Final = "application/x-www-form-urlencoded"
MOST_BYTES: Final = 64 << 10
MOST_FIELDS: Final = 20


class FormProblem(Exception):
    """A form that is not taken: the status that says so, and why."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status
        self.told = told


def is_from_here(request: Request) -> bool:
    """Whether a form was sent by one of our own pages; browsers say so."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in (None, "same-origin"):
        return False
    if origin is None:
        return site == "same-origin"
    return urlsplit(origin).netloc == request.headers.get("host", "")


async def read_fields(request: Request) -> dict[str, str]:
    """The fields by their names. Raises `FormProblem`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
        raise FormProblem(415, f"Forms are sent as {KIND}.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise FormProblem(413, f"A form may have {MOST_BYTES:,} bytes at most.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS))
    except ValueError:
        raise FormProblem(400, "The form cannot be read. Load the page again, then try once more.") from None
