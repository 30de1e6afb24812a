"""Parts of paths that are any text: `{instance:instance}` in a route is the name of an instance."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor

from wakeful.values.instance_names import instance_from_path, instance_to_path


class InstanceConvertor(Convertor[str]):
    """Reads the name of an instance, which may have slashes. What follows it in a path is one fixed word."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        """Return the name."""
        return instance_from_path(value)

    def to_string(self, value: str) -> str:
        """Return the part of the path."""
        return instance_to_path(value)


register_url_convertor("instance", InstanceConvertor())
#: The parameter of a path that is the name of an instance.
INSTANCE = "{instance:instance}"
