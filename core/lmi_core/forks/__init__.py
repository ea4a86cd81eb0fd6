"""Processes that fork: prepared once, so that each fork starts in milliseconds."""
