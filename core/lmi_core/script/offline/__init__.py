"""A handler's functions called with no server, for their authors."""
