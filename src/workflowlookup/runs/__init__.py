"""What a run is: its events, what they add up to, and what follows from them. Pure."""
