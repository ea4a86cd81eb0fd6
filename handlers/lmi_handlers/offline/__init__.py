"""Models and formatters used from Python, without a server."""
