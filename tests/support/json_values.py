"""Types of decoded JSON. The only `Any` of the tests: values of our own classes have their types."""

from typing import Any

Json = Any
"""Decoded JSON of any kind."""
JsonObject = dict[str, Any]
"""A decoded JSON object."""
