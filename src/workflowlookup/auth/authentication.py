"""Authentication of requests over HTTP, before anything else is done with them, and the login throttle.

A request has one `Authorization: Bearer` header, with a token of ours or a JWT of the issuer in the settings. For pages
of the console, and only there, the cookie of a session is accepted, too. On loopback, as long as no token was ever made
and no issuer is set, every caller is `LOOPBACK`: a program of the same user can read the files anyway.
"""

import functools
import hashlib
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from workflowlookup.access import LOOPBACK, SCOPES, Access
from workflowlookup.auth import cookies
from workflowlookup.auth.callers import Proxies
from workflowlookup.auth.oauth import KeysUnavailable, OAuthVerifier
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import StorageError
from workflowlookup.logs import audit
from workflowlookup.shares import TokenBuckets
from workflowlookup.store.journal import Token, now
from workflowlookup.store.sessions import ConsoleSessions
from workflowlookup.store.tokens import PREFIX, TokenStore
from workflowlookup.web import is_loopback_name

log = logging.getLogger(__name__)

METADATA: Final = "/.well-known/oauth-protected-resource"
TOKEN_POLL_SECONDS: Final = 0.25
"""How often the journal is polled for changed tokens: one poll for all callers without a token, and for all requests
that take long. A first token that is made with the same home directory takes effect at once.
"""
MAX_TOKENS: Final = 10_000
FAILURES_PER_MINUTE: Final = 20
MAX_FAILURES: Final = 20_000
"""How many wrong tokens (as hashes, with their address) are stored, and how many logged addresses."""
LOG_SECONDS: Final = 600.0
"""How often an address that sends wrong tokens is logged, at most."""
FORWARDED: Final = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)
"""Headers that a proxy adds. A request with one is not from this machine, even if its address is loopback."""

_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
_HOST: Final = re.compile(r"[A-Za-z0-9.:\[\]_-]+")
UNAUTHENTICATED: Final = (
    "Send Authorization: Bearer TOKEN. `workflowlookup token create` makes a token, on the machine of the server."
)
REFUSED: Final = "The token is not known, has expired or was revoked. Ask for another one."
_NO_STORE: Final = {"Cache-Control": "no-store"}


class Authenticator:
    """Finds the caller of a request by its token or session."""

    def __init__(
        self,
        tokens: TokenStore,
        oauth: OAuthVerifier | None,
        *,
        is_open: bool,
        proxies: Proxies | None = None,
        sessions: ConsoleSessions | None = None,
    ) -> None:
        """`is_open`: whether callers on this machine need no token until the first one is made.

        `sessions`: the console sessions of browsers.
        """
        self._sessions = sessions
        self._tokens = tokens
        self._proxies = proxies or Proxies()
        self._throttle = LoginThrottle()
        self._oauth = oauth
        self._is_closed = oauth is not None or not is_open
        self._tokens_version: tuple[int, int] = (-1, -1)
        self._polled_at = float("-inf")
        self._poll_error: StorageError | None = None
        """Why the last poll failed."""
        self._is_unavailable = False
        self._valid: BoundedCache[bytes, Token] = BoundedCache(MAX_TOKENS)
        self._open_sessions: BoundedCache[tuple[str, str], tuple[float, str]] = BoundedCache(MAX_TOKENS)
        """By session id and address: when the session was last read, and its token."""

    async def authenticate(
        self, request: Request, *, by_cookie: bool = False, is_recheck: bool = False
    ) -> Access | Response:
        """The caller of a request, or the response that refuses it. `by_cookie`: for pages in a browser.

        `is_recheck`: for a request that is being served; its result may be as old as `TOKEN_POLL_SECONDS`.
        """
        try:
            if is_recheck:
                self._poll_tokens()
            access = await self._authenticate(request, by_cookie=by_cookie, is_recheck=is_recheck)
        except (StorageError, KeysUnavailable) as problem:
            if not self._is_unavailable:  # logged once: hundreds of requests may be rechecked every moment
                log.warning("requests cannot be authenticated: %s", problem or type(problem).__name__)
            self._is_unavailable = True
            description = "Requests cannot be authenticated now. Try again."
            body = {"error": "temporarily_unavailable", "error_description": description}
            return JSONResponse(body, 503, {**_NO_STORE, "Retry-After": "5"})
        except Exception:  # broad on purpose: a failure must not let anybody in
            log.exception("a request was refused because authenticating it failed")
            self._count_failure(request, request.headers.get("authorization", ""), "")
            return self._refuse(request, 401, "invalid_token", REFUSED)
        if self._is_unavailable and not self._tokens.is_away:  # while it is, cached tokens are accepted
            log.warning("requests can be authenticated again")
            self._is_unavailable = False
        return access

    def _poll_tokens(self) -> None:
        """Poll whether any token was made or revoked: one poll for all requests that are rechecked."""
        if time.monotonic() - self._polled_at < TOKEN_POLL_SECONDS and not self._tokens.is_stale():
            if self._poll_error is not None:
                raise self._poll_error
            return
        self._poll_error = None
        try:
            version = self._tokens.version()
        except StorageError as problem:
            self._poll_error = problem
            raise
        finally:
            self._polled_at = time.monotonic()
        if version != self._tokens_version:
            self._tokens_version = version
            self._valid.clear()

    async def _authenticate(self, request: Request, *, by_cookie: bool, is_recheck: bool) -> Access | Response:
        if b"authorization" in dict(request.scope["headers"]):
            headers = request.headers.getlist("authorization")
            if len(headers) > 1:
                return self._refuse(request, 400, "invalid_request", "Send one Authorization header.")
            bearer = _BEARER.fullmatch(headers[0])
            if bearer is None:
                return self._refuse(request, 401, "invalid_request", "Send Authorization: Bearer TOKEN.")
            secret = token = bearer[1]
        elif self._is_open(request):
            return LOOPBACK  # even with a cookie, which may be from another server on this machine
        elif by_cookie and (secret := cookies.session_in(request)):
            token = self._token_of(secret, cookies.address_of(request), is_recheck=is_recheck)
        else:
            return self._refuse(request, 401, "", UNAUTHENTICATED)
        access = await self._find(token, is_recheck=is_recheck) if token else None
        if access is None:
            if not is_recheck and (wait := self._count_failure(request, secret, token)):
                return _slow_down(wait)
            return self._refuse(request, 401, "invalid_token", REFUSED)
        if not access.may("read"):
            return self.forbid(request, f"The token has none of the scopes {', '.join(SCOPES)}. Ask for one that has.")
        return access

    def address_of(self, request: Request) -> str:
        """The address of the client."""
        return self._proxies.address_of(request.scope)

    def _count_failure(self, request: Request, secret: str, token: str) -> int:
        """Log and count a failed log-in. Returns the seconds to wait before the next one.

        The same secret from the same address is logged and counted once.
        """
        address = self.address_of(request)
        if self._throttle.has_failed(address, secret):
            return 0
        wait = self._throttle.fail(address, secret)
        if not wait:
            kind = "session" if not token else "token" if token.startswith(PREFIX) else "JWT"
            log.warning("a log-in from %s was refused: its %s is not known, has expired or was revoked", address, kind)
            audit("log-in refused", address=address, kind=kind)
        return wait

    async def _find(self, secret: str, *, is_recheck: bool) -> Access | None:
        if secret.startswith(PREFIX):
            token = self._find_cached(secret) if is_recheck else self._tokens.find(secret)
            self._is_closed |= token is not None  # even if the journal is deleted later
            return token.access if token is not None else None
        return await self._oauth.find(secret) if self._oauth is not None else None

    def _token_of(self, session_id: str, address: str, *, is_recheck: bool) -> str:
        """The token of a console session; empty if there is none. Cached for rechecks."""
        if self._sessions is None:
            return ""
        key, now_seconds = (session_id, address), time.monotonic()
        read_at, token = self._open_sessions.get(key) or (float("-inf"), "")
        if not is_recheck or now_seconds - read_at >= TOKEN_POLL_SECONDS:
            token = self._sessions.token_of(session_id, address) or ""
            self._open_sessions[key] = now_seconds, token
        return token

    def _find_cached(self, secret: str) -> Token | None:
        key = hashlib.sha256(secret.encode()).digest()
        token = self._valid.get(key)
        if token is None:
            version = self._tokens_version
            token = self._tokens.find(secret)
            if token is not None and version == self._tokens_version:  # else it may have been revoked meanwhile
                self._valid[key] = token
        return token if token is not None and token.state(now()) == "valid" else None

    def _is_open(self, request: Request) -> bool:
        """Whether a request needs no token. A first token of another account counts after `TOKEN_POLL_SECONDS`.

        Revoking the last token, or losing the journal, does not open the server again.
        """
        if not self._is_closed:
            self._poll_tokens()
            self._is_closed = self._tokens_version[0] > 0
        scope = request.scope
        if self._is_closed or not FORWARDED.isdisjoint(dict(scope["headers"])):
            return False
        return bool(scope.get("client")) and is_loopback(scope["client"][0])

    # ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────

    def forbid(self, request: Request, message: str, scope: str = "read") -> Response:
        """The response to a caller that is authenticated but lacks a right."""
        return self._refuse(request, 403, "insufficient_scope", message, scope)

    def _refuse(self, request: Request, status: int, error: str, message: str, scope: str = "") -> Response:
        parts = ['realm="workflowlookup"']
        if error:
            parts.append(f'error="{error}"')
        if scope:
            parts.append(f'scope="{scope}"')
        if self._oauth is not None:
            parts.append(f'resource_metadata="{self._oauth.metadata_url(_base(request))}"')
        headers = {**_NO_STORE, "WWW-Authenticate": f"Bearer {', '.join(parts)}"}
        body = {"error": error or "unauthorized", "error_description": message}
        return JSONResponse(body, status, headers)

    def routes(self) -> list[Route]:
        """The OAuth metadata (RFC 9728), which needs no authentication; 404 if no issuer is set."""

        async def not_found(_: Request) -> Response:
            return JSONResponse({"error": "not_found"}, 404)

        async def metadata(request: Request) -> Response:
            if self._oauth is None:
                return await not_found(request)
            return JSONResponse(self._oauth.metadata(_base(request)), headers={"Cache-Control": "max-age=300"})

        return [
            Route(METADATA, metadata),
            Route(METADATA + "/{path:path}", metadata),
            Route("/.well-known/{path:path}", not_found),
        ]


class LoginThrottle:
    """Failed authentications by address: too many wrong tokens are answered with 429; valid ones are always served.

    A valid token is served even while its address is throttled, so every token is checked. That is safe: a token has
    256 random bits, so guessing one is hopeless at any rate. The throttle limits what wrong tokens write to the log,
    and the 429 tells a client why it is refused.
    """

    def __init__(self) -> None:
        self._rate = TokenBuckets(FAILURES_PER_MINUTE)
        self._failed: BoundedCache[tuple[str, bytes], None] = BoundedCache(MAX_FAILURES)
        self._logged_at: BoundedCache[str, float] = BoundedCache(MAX_FAILURES)

    def fail(self, address: str, secret: str) -> int:
        """Count a wrong token. Returns the `Retry-After` of the 429, or 0 while there are few.

        The same token again does not count: a client that does not notice that its token has expired is not throttled.
        """
        if self.has_failed(address, secret):
            return 0
        _, wait = self._rate.take(address)
        if wait:
            self._log(address)
        else:
            self._failed[_failure_key(address, secret)] = None
        return wait

    def has_failed(self, address: str, secret: str) -> bool:
        """Whether this wrong token was counted for this address before."""
        return _failure_key(address, secret) in self._failed

    def _log(self, address: str) -> None:
        now = time.monotonic()
        logged_at = self._logged_at.get(address)
        if logged_at is None or logged_at < now - LOG_SECONDS:
            self._logged_at[address] = now
            log.warning("too many wrong tokens came from %s: further ones are answered with 429 for now", address)


def _failure_key(address: str, secret: str) -> tuple[str, bytes]:
    return address, hashlib.sha256(secret.encode(errors="replace")).digest()


@functools.lru_cache(1024)
def is_loopback(address: str) -> bool:
    """Whether an address, in the form of a socket address, is loopback."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def why_tokens_are_required(address: str, allowed_hosts: Iterable[str] = (), *, is_required: bool = False) -> str:
    """Why a server at this address requires tokens from the start; empty if callers on this machine need none."""
    if not is_loopback(address):
        return f"other machines reach {address}"
    if is_required:
        return "the setting require_tokens is on"
    public = [name for name in allowed_hosts if not is_loopback_name(name)]
    if public:
        return f"the setting allowed_hosts names '{public[0]}', so other machines may reach it through a proxy"
    return ""


def why_not_listen(reason: str, *, has_tokens: Callable[[], bool], has_issuer: bool) -> str:
    """Why a server that requires tokens for this reason must not start; empty if it may."""
    if not reason or has_issuer or has_tokens():
        return ""
    return (
        f"not started: {reason}, and there is no valid token. Make one "
        "(`workflowlookup token create --name NAME --scope run`), or set an issuer of tokens (the settings "
        "oauth_issuer, oauth_audience and oauth_jwks_url). Callers on this machine need no token if the server "
        "listens at 127.0.0.1, allowed_hosts names no other machine and require_tokens is off."
    )


def _slow_down(wait: int) -> Response:
    message = f"Too many wrong tokens came from your address. Wait {wait} seconds before you try another."
    body = {"error": "slow_down", "error_description": message}
    return JSONResponse(body, 429, {**_NO_STORE, "Retry-After": str(wait)})


def _base(request: Request) -> str:
    """The URL by which the client reached this server. `Site` has checked the host."""
    host = request.headers.get("host", "")
    return f"{request.scope.get('scheme', 'http')}://{host if _HOST.fullmatch(host) else 'localhost'}"
