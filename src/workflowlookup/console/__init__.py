"""The web console: pages about the library, runs and statistics, rendered on the server."""
