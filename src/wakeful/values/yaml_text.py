"""YAML as jobs are read and written in it: YAML 1.2 words, no duplicate keys, lines of values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import yaml

from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json


class _Loader(yaml.SafeLoader):
    """YAML 1.2: `on`, `09:30` and dates are text. Duplicate keys are an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; raise MarkedYAMLError if a key appears twice."""
        keys: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, list | dict | set):
                raise yaml.MarkedYAMLError(problem="a key is text", problem_mark=key_node.start_mark)
            if key_node.tag != "tag:yaml.org,2002:merge" and key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key}' appears twice", problem_mark=key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp", ":int"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BOOL: Final = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))


#: Characters that YAML reads as something else unless they are escaped, such as other line breaks, and those
#: that change the direction of text.
_ODD: Final = re.compile(
    "[^\n\x20-\x7e\xa0-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff"
    "\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


class _Dumper(yaml.SafeDumper):
    """Text of several lines is a block, and lists are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the items of a list."""
        super().increase_indent(flow, False)

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return the node of a text."""
        style = '"' if _ODD.search(text) else "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)


def load_yaml(text: str, where: str) -> object:
    """Return the value of a YAML or JSON text; InvalidArgument names the line of an error."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise InvalidArgument(f"{where}: not valid YAML or JSON: {line}{problem}") from error
    except (ValueError, LookupError, AttributeError, RecursionError) as error:  # of a tag such as !!bool
        raise InvalidArgument(f"{where}: not valid YAML or JSON: {error}") from error


def dump_yaml(value: Json) -> str:
    """Return a value as YAML that `load_yaml` reads.

    >>> print(dump_yaml({"name": "digest", "active": "on", "message": "one\\ntwo\\n"}), end="")
    name: digest
    active: 'on'
    message: |
      one
      two
    """
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class YamlLines:
    """The lines of the values of a text that was read."""

    def __init__(self, text: str) -> None:
        self._root: yaml.Node | None = yaml.compose(text, Loader=_Loader)

    def of(self, path: Sequence[str | int]) -> int | None:
        """Return the line of the value at this path, or of the last part of the path that exists.

        >>> lines = YamlLines("jobs:\\n- name: a\\n  tz: x\\n")
        >>> lines.of(["jobs", 0, "tz"]), lines.of(["jobs", 0, "lane"]), lines.of([])
        (3, 2, 1)
        """
        node, line = self._root, None if self._root is None else self._root.start_mark.line
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            node, line = found
        return None if line is None else line + 1


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    """Return the value of a key or an item, and the line on which it begins."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if getattr(key, "value", None) == part:
                return value, key.start_mark.line
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line
    return None
