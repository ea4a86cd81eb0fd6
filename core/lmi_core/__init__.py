"""Requests, models and answers, without any web framework, engine or dialect."""
