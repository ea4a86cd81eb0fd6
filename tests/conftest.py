"""The fixtures that authors of plugins have too."""

from lmi_handlers.testing import (
    SCRIPTED,
    Answer,
    Golden,
    ModelDirectory,
    RunningServer,
    Serve,
    golden,
    model_dir,
    running_server,
    serve,
)

__all__ = [
    "SCRIPTED",
    "Answer",
    "Golden",
    "ModelDirectory",
    "RunningServer",
    "Serve",
    "golden",
    "model_dir",
    "running_server",
    "serve",
]
