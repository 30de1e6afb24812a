"""The values of options, without Typer's Pydantic adapters where there is nothing to convert.

Typer builds an adapter for every option of a command, given or not. That imports Pydantic and takes a third
of the time of a short command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter


class QuickCoercion:
    """Accepts absent values, defaults and text as they are; leaves the rest to Typer."""

    def __init__(self, annotation: object) -> None:
        self._annotation = annotation

    def coerce(self, value: object, param: Any, ctx: Context) -> object:
        """Return the value for the command."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many and self._annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        if not many and isinstance(self._annotation, type) and type(value) is self._annotation:
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def coerce_quickly(params: list[Parameter]) -> list[Parameter]:
    """Return the parameters with a quick coercion, if this version of Typer builds adapters for them."""
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is not None and getattr(param, "_runtime_param", True) is None:
            param._runtime_param = QuickCoercion(descriptor.annotation)  # type: ignore[attr-defined]
    return params
