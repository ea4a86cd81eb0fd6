"""The console's data: models, memory and the latest errors of a server."""
