"""The proofs of a run: which are due, what follows from each, and their words."""
