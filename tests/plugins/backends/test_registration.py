from lmi_core.plugins.loading import load_plugins
from lmi_plugins.backends.registration import BACKENDS


def test_declarations_are_those_of_the_classes() -> None:
    backends = load_plugins().backends
    for declared in BACKENDS:
        backend = backends.get(declared.name)
        assert (backend.name, backend.aliases) == (declared.name, declared.aliases)
        assert backend.auto_priority == declared.auto_priority
