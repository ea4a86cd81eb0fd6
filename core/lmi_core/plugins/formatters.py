"""The registry of output formatters, for any answer or only for chats."""

from inspect import Parameter, signature

from lmi_core.errors import PluginError
from lmi_core.formatter import AnswerSchema, ChatAnswer, ChatFormatter, OutputFormatter, Variant
from lmi_core.plugins.registry import Lazy, Registry, origin

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class FormatterRegistry(Registry[OutputFormatter]):
    """The output formatters that an option may name. They are created without arguments."""

    def __init__(self) -> None:
        super().__init__("output formatter", OutputFormatter)
        self.of_chats: Registry[ChatFormatter] = Registry("chat formatter", ChatFormatter)
        self._variants: dict[Variant, type[OutputFormatter]] = {}

    def register(self, plugin: type[OutputFormatter] | Lazy) -> None:
        """Register a formatter class. Raise PluginError for a taken name, or a constructor that needs arguments."""
        if isinstance(plugin, type) and issubclass(plugin, ChatFormatter):
            self.of_chats.register(plugin)
        else:
            if isinstance(plugin, type) and issubclass(plugin, OutputFormatter) and _needs_arguments(plugin):
                raise PluginError(
                    f"the output formatter {origin(plugin)} must be creatable without arguments, because "
                    f"option.output_formatter only gives its name. A formatter that only its own handler creates "
                    "needs no registration"
                )
            super().register(plugin)
        self._register_variant(plugin)

    def variant(self, name: str, schema: AnswerSchema) -> str:
        """Return the name of the formatter's variant in the schema, or `name` if it has none."""
        variant = self._variants.get(Variant(name, schema))
        return variant.name if variant is not None else name

    def create(self, name: str) -> OutputFormatter:
        """Create the output formatter of that name. Raise PluginError if no plugin registers it."""
        return self.get(name)()

    def create_for_chat(self, name: str, answer: ChatAnswer) -> OutputFormatter:
        """Create the chat formatter of that name or, without one, the output formatter."""
        return self.of_chats.get(name)(answer) if name in self.of_chats else self.create(name)

    def _register_variant(self, plugin: type[OutputFormatter] | Lazy) -> None:
        variant: Variant | None = vars(plugin).get("variant")  # only its own, because a subclass has another name
        if variant is None or isinstance(plugin, Lazy):
            return
        taken = self._variants.setdefault(variant, plugin)
        if taken is not plugin:
            raise PluginError(
                f"two plugins register a variant of the output formatter `{variant.of}` for {variant.schema}:"
                f" {origin(taken)}, {origin(plugin)}"
            )


def _needs_arguments(formatter: type[OutputFormatter]) -> bool:
    if (formatter.__init__, formatter.__new__) == (object.__init__, object.__new__):  # whose signature takes long
        return False
    parameters = signature(formatter).parameters.values()
    return any(each.default is each.empty and each.kind not in VARIADIC for each in parameters)
