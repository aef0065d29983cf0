"""What the server does by itself: it carries out the calls of runs, durably, on a thread of its own."""
