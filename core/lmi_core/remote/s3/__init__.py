"""Copies of S3 locations, each complete or absent."""
