"""Texts that are never generated, however they are split into tokens."""
