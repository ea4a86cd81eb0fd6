"""Names for tests of plugins: the fixtures' types, the scripted backend, and `import_file` for plugins in files.

`docs/how_to/testing.md` describes it. (PYTEST_DONT_REWRITE: a test may import it before pytest does.)
"""

from lmi_core.plugins.loading import import_file
from lmi_handlers.testing import (
    Answer,
    Golden,
    ModelDirectory,
    PlainServe,
    PlainServer,
    RunningServer,
    Serve,
    plain_server,
    running_server,
)
from lmi_plugins.backends.scripted import Script, ScriptedBackend

__all__ = [
    "Answer",
    "Golden",
    "ModelDirectory",
    "PlainServe",
    "PlainServer",
    "RunningServer",
    "Script",
    "ScriptedBackend",
    "Serve",
    "import_file",
    "plain_server",
    "running_server",
]
