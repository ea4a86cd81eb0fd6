"""Names to output formatters: to those that write any answer, and to those that write chats' alone."""

from inspect import Parameter, signature

from lmi_core.chats.chat_formatter import ChatAnswer, ChatFormatter
from lmi_core.errors import PluginError
from lmi_core.formatter import OutputFormatter
from lmi_core.plugins.registry import Registry, origin

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class FormatterRegistry(Registry[OutputFormatter]):
    """Output formatters that an option may name, so that a name is all that creating one needs."""

    def __init__(self) -> None:
        super().__init__("output formatter", OutputFormatter)
        self.of_chats: Registry[ChatFormatter] = Registry("chat formatter", ChatFormatter)

    def register(self, plugin: type[OutputFormatter]) -> None:
        """Raise PluginError for a name that is taken, and for a class that needs arguments."""
        if isinstance(plugin, type) and issubclass(plugin, ChatFormatter):
            self.of_chats.register(plugin)
            return
        if isinstance(plugin, type) and issubclass(plugin, OutputFormatter):
            _require_no_arguments(plugin)
        super().register(plugin)

    def require(self, name: str, *, chat: bool) -> None:
        """Raise PluginError where no formatter of that name can write an answer, or a chat's."""
        if not (chat and name in self.of_chats):
            self.get(name)

    def create(self, name: str) -> OutputFormatter:
        """Raise PluginError where no plugin registers the name."""
        return self.get(name)()

    def create_for_chat(self, name: str, answer: ChatAnswer) -> OutputFormatter:
        """Create the formatter of chats by that name, or the one that writes any answer."""
        return self.of_chats.get(name)(answer) if name in self.of_chats else self.create(name)


def _require_no_arguments(formatter: type[OutputFormatter]) -> None:
    parameters = signature(formatter).parameters.values()
    if any(each.default is each.empty and each.kind not in VARIADIC for each in parameters):
        raise PluginError(
            f"the output formatter {origin(formatter)} cannot be created without arguments, and its name in"
            " option.output_formatter gives none. One that only its own handler creates needs no registration"
        )
