"""An issuer of tokens on loopback: real keys, and a real server that publishes them."""

import base64
import http.server
import json
import threading
import time
from collections.abc import Callable

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from support.json_values import Json, JsonObject

AUDIENCE = "https://flows.example.com/mcp"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
KINDS: dict[str, tuple[Callable[[], PrivateKey], type[RSAAlgorithm] | type[ECAlgorithm] | type[OKPAlgorithm]]] = {
    "RS256": (lambda: rsa.generate_private_key(65537, 2048), RSAAlgorithm),
    "ES256": (lambda: ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate, OKPAlgorithm),
}


class Issuer:
    """Publishes its keys at `jwks_url`, and counts how often it was asked."""

    def __init__(self) -> None:
        self.private: dict[str, tuple[str, PrivateKey]] = {}
        self.published: list[JsonObject] = []
        self.key_requests = 0
        self.status = 200
        self.raw: bytes | None = None
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.key_requests += 1
                body = issuer.raw if issuer.raw is not None else json.dumps({"keys": issuer.published}).encode()
                self.send_response(issuer.status)
                if issuer.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"http://127.0.0.1:{self._server.server_port}/issuer"
        self.jwks_url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def add_key(self, kid: str, algorithm: str = "ES256", **fields: Json) -> PrivateKey:
        make, kind = KINDS[algorithm]
        key = make()
        self.private[kid] = (algorithm, key)
        public: JsonObject = kind.to_jwk(key.public_key(), as_dict=True)  # type: ignore[call-overload]  # a kind for each key
        self.published.append({**public, "kid": kid, "use": "sig", **fields})
        return key

    def claims(self, **changed: Json) -> JsonObject:
        now = int(time.time())
        claims = {"iss": self.name, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 60, "scope": "read run"}
        return {name: value for name, value in {**claims, **changed}.items() if value is not None}

    def token(
        self,
        kid: str = "one",
        *,
        headers: JsonObject | None = None,
        key: PrivateKey | str | None = None,
        algorithm: str | None = None,
        **changed: Json,
    ) -> str:
        public, private = self.private[kid]
        header = {"kid": kid, **(headers or {})}
        header = {name: value for name, value in header.items() if value is not None}
        payload = json.dumps(self.claims(**changed)).encode()
        return jwt.PyJWS().encode(payload, key or private, algorithm or public, {"typ": "at+jwt", **header})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def part(value: Json) -> str:
    """A part of a JWT, made by hand."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
