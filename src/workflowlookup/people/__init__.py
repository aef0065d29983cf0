"""People who can prove that they are people: their public keys, and the signatures that they make."""
