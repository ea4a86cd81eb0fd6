"""What the console shows of a server: its models, its memory and its latest errors."""
