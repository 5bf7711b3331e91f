"""Parses tileiras's optimization remarks: cleans, merges, and ties them to source lines."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import yaml

from mla_var3.errors import ToolchainError
from mla_var3.evidence.facts import Remark, RemarkKind
from mla_var3.static.source import relative_source

_KINDS: dict[str, RemarkKind] = {
    "Passed": "passed",
    "Missed": "missed",
    "Failure": "failed",
    "Failed": "failed",
    "Analysis": "analysis",
}
_LOCATION = re.compile(r"^loc\([^)]*\):\s*")


class _Loader(yaml.SafeLoader):
    """SafeLoader that keeps a document's tag (the kind of remark) in its ``kind`` key.

    The compiler writes no alias; a chain of them would print as more text than memory holds.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "it has an alias", None)
        return super().compose_node(parent, index)


def _tagged(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "a remark is not a mapping", None)
    content = {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}
    return {**content, "kind": tag}


_Loader.add_multi_constructor("!", _tagged)


def parse_remarks(text: str) -> list[Remark]:
    """Remarks of a ``--remark-format=yaml`` file, in source order.

    The compiler writes every record twice and repeats reasons; records that agree in all, its own
    number included, are one remark, and a reason is said once.

    Raises:
        ToolchainError: The text is not such a file.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
        merged = Counter(r[1:] for r in {_record(document) for document in documents if document})
        return [
            Remark(file=file, line=line, kind=kind, category=category, message=message, count=count)
            for (file, line, kind, category, message), count in sorted(merged.items())
        ]
    except (
        yaml.YAMLError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise ToolchainError(
            f"the compiler's remarks cannot be read ({' '.join(str(error).split())[:120]})"
        ) from error


def _record(document: dict[str, Any]) -> tuple[int, str, int, RemarkKind, str, str]:
    arguments: dict[str, list[Any]] = {}
    for argument in document["Args"]:
        for key, value in argument.items():
            arguments.setdefault(key, []).append(value)
    where = document.get("DebugLoc") or {}
    return (
        int(arguments["RemarkId"][0]),
        relative_source(str(where.get("File", "unknown"))),
        int(where.get("Line", 0)),
        _KINDS[document["kind"]],
        str(document["Pass"]).lower(),
        _message(arguments),
    )


def _message(arguments: dict[str, list[Any]]) -> str:
    text = str(arguments["Remark"][0]).rstrip(".")
    if instruction := arguments.get("Instruction"):
        text += f": {instruction[0]}"
    shape = arguments.get("Shape")
    # An FMA fallback has the meaningless shape [1, 1, 1].
    if shape and str(shape[0]) != "[1, 1, 1]":
        text += f" {shape[0]}"
    reasons = dict.fromkeys(_LOCATION.sub("", str(r)).strip() for r in arguments.get("Reason", ()))
    return f"{text} ({'; '.join(reasons)})" if reasons else text
