"""Write every generated page: `python -m tools.docs`."""

from lmi_core.plugins.loading import load_plugins
from tools.docs.pages import generated_pages

for path, text in generated_pages(load_plugins()).items():
    path.write_text(text, encoding="utf-8")
