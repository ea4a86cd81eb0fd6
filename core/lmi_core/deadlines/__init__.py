"""Deadlines for work whose duration depends on a client's text: chat templates and tokenizers."""
