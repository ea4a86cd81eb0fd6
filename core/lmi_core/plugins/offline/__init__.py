"""Model functions called with no server, for their authors."""
