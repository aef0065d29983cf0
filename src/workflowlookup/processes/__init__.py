"""Child processes: ending them with everything that they started, and supervising one whatever happens to us."""
