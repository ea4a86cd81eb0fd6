"""Calls: the client's request, its parsed form, and the answer."""
