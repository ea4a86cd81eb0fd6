"""Downloads from web servers."""
