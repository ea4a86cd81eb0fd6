"""Copies of S3 locations, whole or absent."""
