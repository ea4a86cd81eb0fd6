"""One log format for the server and its workers."""

import logging

LOG_LEVEL_VARIABLE = "LMI_LOG_LEVEL"  # passes the server's level to workers
FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def configure_logging(level: str) -> None:
    """Log to standard error; `level` is a name such as `info`."""
    logging.basicConfig(level=level.upper(), format=FORMAT, force=True)
