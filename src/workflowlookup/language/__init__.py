"""What a workflow document means. Pure: no I/O, clock, randomness or logging."""
