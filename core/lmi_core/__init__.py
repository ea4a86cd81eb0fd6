"""What a request is and how it is routed. Knows no web framework, no engine and no dialect."""
