"""What a run is: its events, their fold, and which events follow. Pure."""
