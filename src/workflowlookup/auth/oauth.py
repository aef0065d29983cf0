"""OAuth 2.1 as a resource server: JWTs of one issuer for one audience, checked against the keys that it publishes.

Whatever is wrong with a token is told to nobody but the log, and the token itself not even there.
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

from workflowlookup.access import EVERYTHING, MAX_PATTERN_CHARS, MAX_PATTERNS, SCOPES, Access
from workflowlookup.cache import BoundedCache
from workflowlookup.language.text import visible

log = logging.getLogger(__name__)

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the type of a key: what it may have signed. There is no `none`, and no secret that two share."""
SCOPE_PREFIX: Final = "workflowlookup:"
PERSON: Final = "person"
"""The scope word of a token that a person holds, not an agent on their behalf."""
LEEWAY: Final = 30
"""Seconds by which clocks may differ when a token is new; one that has expired has expired."""
KEEP_SECONDS: Final = 300.0
"""How long the keys are taken as they are."""
STALE_SECONDS: Final = 3_600.0
"""How long they are while their place does not answer."""
PAUSE_SECONDS: Final = 10.0
"""The least time between two fetches: a token with a made-up key must not make us ask again and again."""
FETCH_SECONDS: Final = 5.0
MOST_BYTES: Final = 1 << 20
MOST_KEYS: Final = 100
MOST_TOKEN: Final = 16_384
MAX_TOKENS: Final = 1_000
MOST_NAME: Final = 128
HASH_DIGITS: Final = 16
"""Of the hash in a name, so that nobody finds two subjects with the same one."""


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tokens are taken, and where in them is what matters: the settings of these names."""

    issuer: str
    audience: str
    jwks_url: str
    scopes_claim: str = "scope"
    workflows_claim: str = ""
    """Where the patterns of workflow ids are; when there is no such setting, tokens are good for all."""


class KeysUnavailable(Exception):
    """No token can be checked now: the issuer's keys cannot be had."""


class _Key(msgspec.Struct, frozen=True):
    """A key, and what it may have signed."""

    key: Any
    algorithms: tuple[str, ...]


class OAuthVerifier:
    """Tokens of one issuer."""

    def __init__(
        self, issuer: Issuer, *, clock: Callable[[], float] = time.monotonic, pause: float = PAUSE_SECONDS
    ) -> None:
        self.issuer = issuer
        self._clock = clock
        self._pause = pause
        self._keys: Mapping[str, _Key] = {}
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._fetching = asyncio.Lock()
        self._valid: BoundedCache[bytes, tuple[Access, float]] = BoundedCache(MAX_TOKENS)

    async def find(self, token: str) -> Access | None:
        """Who holds the token, as long as it is good. Raises `KeysUnavailable`."""
        if len(token) > MOST_TOKEN or token.count(".") != 2:
            return None
        await self._freshen()
        digest = hashlib.sha256(token.encode()).digest()
        known = self._valid.get(digest)
        if known is not None and time.time() < known[1]:
            return known[0]
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header)
            claims = self._checked(token, key) if key is not None else None
            until = float(claims["exp"]) if claims is not None else 0.0
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as problem:
            log.info("a token of %s was refused: %s", self.issuer.issuer, type(problem).__name__)
            return None
        if claims is None or time.time() >= until:
            log.info("a token was refused: no key of %s has signed it, or it has expired", self.issuer.issuer)
            return None
        access = self._access(claims)
        self._valid[digest] = (access, until)
        return access

    def _checked(self, token: str, key: _Key) -> dict[str, Any]:
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
        words = {word.removeprefix(SCOPE_PREFIX) for word in _words(_at(claims, self.issuer.scopes_claim))}
        who = next((claims[name] for name in ("sub", "client_id", "azp") if isinstance(claims.get(name), str)), "")
        return Access(
            name=f"oauth {_name_of(who)}",
            kind="person" if PERSON in words else "agent",
            scopes=frozenset(words & set(SCOPES)),
            workflows=self._workflows(claims),
        )

    def _workflows(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        if not self.issuer.workflows_claim:
            return EVERYTHING
        patterns = _words(_at(claims, self.issuer.workflows_claim))
        usable = (pattern for pattern in patterns if len(pattern) <= MAX_PATTERN_CHARS and pattern.isprintable())
        return tuple(usable)[:MAX_PATTERNS]

    # ── the issuer's keys ───────────────────────────────────────────────────────────────────────────────────────

    async def _key(self, header: Mapping[str, Any]) -> _Key | None:
        """The key that a token names; the only one there is, when it names none."""
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

    async def _freshen(self) -> None:
        """See to it that the keys are not too old. Raises `KeysUnavailable`."""
        age = self._clock() - self._fetched
        if age > KEEP_SECONDS:
            await self._fetch()
            if self._clock() - self._fetched > STALE_SECONDS:
                self._keys = {}
                self._valid.clear()
                raise KeysUnavailable

    async def _fetch(self) -> None:
        """Ask for the keys, unless that was done a moment ago."""
        async with self._fetching:
            if self._clock() - self._tried < self._pause:
                return
            self._tried = self._clock()
            try:
                keys = _keys_in(await self._ask())
            except (httpx2.HTTPError, ValueError, RecursionError, TimeoutError) as problem:
                log.warning("the keys of %s cannot be had: %s", self.issuer.issuer, problem or type(problem).__name__)
                return
            self._fetched = self._clock()
            if keys.keys() != self._keys.keys():
                log.info("%s has %d keys now", self.issuer.issuer, len(keys))
            self._keys = keys
            self._valid.clear()

    async def _ask(self) -> bytes:
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
                if len(body) > MOST_BYTES:
                    raise ValueError("the answer is too long")
            return body

    def metadata(self, base: str) -> dict[str, Any]:
        """What RFC 9728 has a client read of this server, which it reached at this address."""
        return {
            "resource": self.resource(base),
            "authorization_servers": [self.issuer.issuer],
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_name": "workflowlookup",
        }

    def resource(self, base: str) -> str:
        """The address that tokens are made for: the audience, when it is one."""
        is_address = self.issuer.audience.startswith(("https://", "http://"))
        return self.issuer.audience if is_address else f"{base}/mcp"

    def metadata_address(self, base: str) -> str:
        """Where the metadata is: a well-known place of the host that tokens are made for."""
        parts = urlsplit(self.resource(base))
        return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path.rstrip('/')}"


def _name_of(subject: str) -> str:
    """A subject as the journal names it; one that cannot be shown as it is gets a hash, so no two have one name."""
    if not subject:
        return "somebody"
    encoded = subject.encode(errors="surrogatepass")
    name = visible("_".join(encoded.decode(errors="replace").split()))[:MOST_NAME]
    if name == subject and "~" not in name and name != "somebody":
        return name
    return f"{name}~{hashlib.sha256(encoded).hexdigest()[:HASH_DIGITS]}"


def _keys_in(data: bytes) -> dict[str, _Key]:
    """The keys of a set that can be used here; those of other kinds and for other uses are passed over."""
    document = msgspec.json.decode(data)
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise ValueError("the answer is no set of keys")  # noqa: TRY004 - the value is it
    keys: dict[str, _Key] = {}
    for number, one in enumerate(found[:MOST_KEYS]):
        key = _read_key(one)
        if key is not None:
            kid = one.get("kid")
            keys[kid if isinstance(kid, str) else f"#{number}"] = key
    return keys


def _read_key(jwk: Any) -> _Key | None:
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
    except Exception:  # noqa: BLE001 - what a library makes of a malformed key is not promised; the others count
        return None


def _at(claims: Mapping[str, Any], path: str) -> Any:
    """The claim of this name; or where a path with dots leads."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _words(value: Any) -> tuple[str, ...]:
    """The words of a text, or of a list of texts."""
    texts = value if isinstance(value, list) else [value]
    return tuple(word for text in texts if isinstance(text, str) for word in text.split())
