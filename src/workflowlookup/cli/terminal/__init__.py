"""A person leads a run in the terminal."""
