"""Shows the fields of pydantic models on reference pages, each with the description in its `Field(…)`."""

import ast
from typing import Any

import griffe


class Fields(griffe.Extension):
    """Adds the fields of a model to its docstring, as a section of attributes."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called for each class that was read."""
        fields = [each for each in cls.attributes.values() if each.annotation and "instance-attribute" in each.labels]
        if not fields or cls.docstring is None or "Attributes:" in cls.docstring.value or cls.decorators:
            return
        lines = [f"    {field.name}: {_description(field)}" for field in fields]
        cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)


def _description(field: griffe.Attribute) -> str:
    """What a field's `Field(…, description=…)` says, "" for none."""
    if not isinstance(field.value, griffe.ExprCall):
        return ""
    for argument in field.value.arguments:
        if isinstance(argument, griffe.ExprKeyword) and argument.name == "description":
            return str(ast.literal_eval(str(argument.value)))
    return ""
