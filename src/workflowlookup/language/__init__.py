"""What a workflow means: values in, values out. No files, clock, randomness or logging."""
