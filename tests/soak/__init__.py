"""A soak: mixed requests for minutes or an hour, with faults injected, and a look at what they leave behind."""
