"""The pages of the documentation that are generated from the code, and the example of serving.properties."""

from pathlib import Path

from lmi_core.plugins.loading import Plugins
from lmi_handlers.cli.report import example, option_types
from tools.docs import coming_from_djl, commands, container, errors, metrics, options, python_interface

ROOT = Path(__file__).parents[2]


def generated_pages(plugins: Plugins) -> dict[Path, str]:
    """Return the text of each generated file. Tables are updated between the marks of the file as it is."""
    how_to, reference = ROOT / "docs" / "how_to", ROOT / "docs" / "reference"
    types = option_types(plugins)
    return {
        ROOT / "serving.properties.example": example(types),
        reference / "options.md": options.document(types),
        how_to / "coming_from_djl.md": coming_from_djl.document(plugins),
        reference / "python.md": python_interface.document(),
        how_to / "container.md": container.with_tables((how_to / "container.md").read_text(encoding="utf-8")),
        reference / "cli.md": commands.document(),
        reference / "errors.md": errors.document(plugins),
        reference / "metrics.md": metrics.with_tables((reference / "metrics.md").read_text(encoding="utf-8")),
    }
