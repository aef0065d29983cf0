"""OAuth 2.1 as a resource server: JWTs of one issuer for one audience, verified with the keys that it publishes.

Why a token is refused is only logged, never sent to the client. The token itself is never logged.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import jwt
import msgspec

from workflowlookup.access import EVERYTHING, MAX_PATTERN_CHARS, MAX_PATTERNS, NAMELESS, SCOPES, Access
from workflowlookup.cache import BoundedCache
from workflowlookup.language.text import visible

log = logging.getLogger(__name__)

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The accepted algorithms by type of key. There is no `none`, and no algorithm with a shared secret."""
SCOPE_PREFIX: Final = "workflowlookup:"
PERSON: Final = "person"
"""The scope word of a token that a person uses themselves, not an agent on their behalf."""
LEEWAY: Final = 30
"""Seconds by which clocks may differ for `nbf` and `iat`. Expiry has no leeway."""
KEYS_SECONDS: Final = 300.0
"""How long the keys are cached."""
STALE_SECONDS: Final = 3_600.0
"""How long cached keys are used while `jwks_url` does not answer."""
PAUSE_SECONDS: Final = 10.0
"""The least time between two fetches, so that tokens with made-up key ids do not cause many of them."""
FETCH_SECONDS: Final = 5.0
MAX_JWKS_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
MAX_TOKEN_LENGTH: Final = 16_384
MAX_TOKENS: Final = 1_000
MAX_NAME: Final = 128
HASH_DIGITS: Final = 16
"""Of the hash in a name: enough that nobody finds two subjects with the same hash."""


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """The issuer whose tokens are accepted, and where the claims are: the settings of these names."""

    issuer: str
    audience: str
    jwks_url: str
    scopes_claim: str = "scope"
    workflows_claim: str = ""
    """The claim with patterns of workflow ids; if empty, tokens are valid for all workflows."""


class KeysUnavailable(Exception):
    """No token can be verified now: the issuer's keys cannot be fetched."""


class _Key(msgspec.Struct, frozen=True):
    """A key, and the algorithms that it may be used with."""

    key: Any
    algorithms: tuple[str, ...]


class OAuthVerifier:
    """Verifies the tokens of one issuer."""

    def __init__(
        self, issuer: Issuer, *, clock: Callable[[], float] = time.monotonic, pause: float = PAUSE_SECONDS
    ) -> None:
        self.issuer = issuer
        self._clock = clock
        self._pause = pause
        self._keys: Mapping[str, _Key] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._valid: BoundedCache[bytes, tuple[Access, float]] = BoundedCache(MAX_TOKENS)

    async def find(self, token: str) -> Access | None:
        """The caller with this token; None if it is not valid. Raises `KeysUnavailable`."""
        if len(token) > MAX_TOKEN_LENGTH or token.count(".") != 2:
            return None
        await self._refresh_keys()
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._valid.get(digest)
        if cached is not None and time.time() < cached[1]:
            return cached[0]
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header)
            claims = self._verify(token, key) if key is not None else None
            expires_at = float(claims["exp"]) if claims is not None else 0.0
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as problem:
            log.info("a token of %s was refused: %s", self.issuer.issuer, type(problem).__name__)
            return None
        if claims is None or time.time() >= expires_at:
            log.info("a token was refused: no key of %s has signed it, or it has expired", self.issuer.issuer)
            return None
        access = self._access(claims)
        self._valid[digest] = (access, expires_at)
        return access

    def _verify(self, token: str, key: _Key) -> dict[str, Any]:
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            audience=self.issuer.audience,
            issuer=self.issuer.issuer,
            leeway=LEEWAY,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        return claims

    def _access(self, claims: Mapping[str, Any]) -> Access:
        words = {word.removeprefix(SCOPE_PREFIX) for word in _words(_claim_at(claims, self.issuer.scopes_claim))}
        subject = next((claims[name] for name in ("sub", "client_id", "azp") if isinstance(claims.get(name), str)), "")
        return Access(
            name=f"oauth {_name_of(subject)}",
            kind="person" if PERSON in words else "agent",
            scopes=frozenset(words & set(SCOPES)),
            workflows=self._workflows(claims),
        )

    def _workflows(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        if not self.issuer.workflows_claim:
            return EVERYTHING
        patterns = _words(_claim_at(claims, self.issuer.workflows_claim))
        usable = (pattern for pattern in patterns if len(pattern) <= MAX_PATTERN_CHARS and pattern.isprintable())
        return tuple(usable)[:MAX_PATTERNS]

    # ── the issuer's keys ───────────────────────────────────────────────────────────────────────────────────────

    async def _key(self, header: Mapping[str, Any]) -> _Key | None:
        """The key that a token names; if it names none, the only key."""
        if "crit" in header or not any(header.get("alg") in names for names in ALGORITHMS.values()):
            return None
        kid = header.get("kid")
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        if not isinstance(kid, str):
            return None
        if kid not in self._keys:  # the issuer may have a new one
            await self._fetch()
        return self._keys.get(kid)

    async def _refresh_keys(self) -> None:
        """Fetch the keys if they are too old. Raises `KeysUnavailable`."""
        age = self._clock() - self._fetched_at
        if age > KEYS_SECONDS:
            await self._fetch()
            if self._clock() - self._fetched_at > STALE_SECONDS:
                self._keys = {}
                self._valid.clear()
                raise KeysUnavailable

    async def _fetch(self) -> None:
        """Fetch the keys, unless that was tried a moment ago."""
        async with self._fetching:
            if self._clock() - self._tried_at < self._pause:
                return
            self._tried_at = self._clock()
            try:
                keys = _keys_in(await self._download())
            except (httpx2.HTTPError, ValueError, RecursionError, TimeoutError) as problem:
                log.warning(
                    "the keys of %s cannot be fetched: %s", self.issuer.issuer, problem or type(problem).__name__
                )
                return
            self._fetched_at = self._clock()
            if keys.keys() != self._keys.keys():
                log.info("%s has %d keys now", self.issuer.issuer, len(keys))
            self._keys = keys
            self._valid.clear()

    async def _download(self) -> bytes:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx2.AsyncClient(follow_redirects=False, timeout=FETCH_SECONDS) as client,
            client.stream("GET", self.issuer.jwks_url, headers={"Accept": "application/json"}) as response,
        ):
            response.raise_for_status()
            if response.status_code != 200:
                raise ValueError(f"the answer has the status {response.status_code}")
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_JWKS_BYTES:
                    raise ValueError("the answer is too long")
            return body

    def metadata(self, base: str) -> dict[str, Any]:
        """The metadata of RFC 9728. `base`: the URL by which the client reached this server."""
        return {
            "resource": self.resource(base),
            "authorization_servers": [self.issuer.issuer],
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_name": "workflowlookup",
        }

    def resource(self, base: str) -> str:
        """The URL that tokens are made for: the audience, if that is a URL."""
        is_url = self.issuer.audience.startswith(("https://", "http://"))
        return self.issuer.audience if is_url else f"{base}/mcp"

    def metadata_url(self, base: str) -> str:
        """The URL of the metadata: a well-known path of the host that tokens are made for."""
        parts = urlsplit(self.resource(base))
        return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path.rstrip('/')}"


def _name_of(subject: str) -> str:
    """A subject as a name for the journal. If it cannot be shown unchanged, a hash makes the name unique."""
    if not subject:
        return NAMELESS
    encoded = subject.encode(errors="surrogatepass")
    name = visible("_".join(encoded.decode(errors="replace").split()))[:MAX_NAME]
    if name == subject and "~" not in name and name != NAMELESS:
        return name
    return f"{name}~{hashlib.sha256(encoded).hexdigest()[:HASH_DIGITS]}"


def _keys_in(data: bytes) -> dict[str, _Key]:
    """The usable keys of a JWKS; keys of other types and for other uses are ignored."""
    document = msgspec.json.decode(data)
    jwks = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(jwks, list):
        raise ValueError("the answer is not a JWKS")  # noqa: TRY004 - the value is wrong, not a type of ours
    keys: dict[str, _Key] = {}
    for number, jwk in enumerate(jwks[:MAX_KEYS]):
        key = _parse_key(jwk)
        if key is not None:
            kid = jwk.get("kid")
            keys[kid if isinstance(kid, str) else f"#{number}"] = key
    return keys


def _parse_key(jwk: Any) -> _Key | None:
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    kind = jwk.get("kty")
    algorithms = ALGORITHMS.get(kind, ()) if isinstance(kind, str) else ()
    if "alg" in jwk:
        algorithms = tuple(name for name in algorithms if name == jwk["alg"])
    if not algorithms:
        return None
    try:
        return _Key(jwt.PyJWK(jwk).key, algorithms)
    except Exception:  # noqa: BLE001 - the library may raise anything for a malformed key; other keys still count
        return None


def _claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """The claim with this name, or at this dotted path."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _words(value: Any) -> tuple[str, ...]:
    """The words of a string, or of a list of strings."""
    texts = value if isinstance(value, list) else [value]
    return tuple(word for text in texts if isinstance(text, str) for word in text.split())
