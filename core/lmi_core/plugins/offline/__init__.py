"""Calls of model functions without a server, for their authors."""
