"""Tells templates whose cost is bounded by the values that they put in from those that compute.

What is not known to be cheap counts as costly. Nothing is rendered here.
"""

from __future__ import annotations

from jinja2 import nodes

_PLAIN_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Const, nodes.If,
    nodes.CondExpr, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Concat, nodes.Add, nodes.Sub,
    nodes.Test, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Slice, nodes.Keyword, nodes.For, nodes.Filter,
)  # fmt: skip
_PLAIN_FILTERS = frozenset({
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int", "items", "join",
    "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "select",
    "selectattr", "sort", "string", "sum", "title", "tojson", "trim", "unique", "upper", "wordcount",
})  # fmt: skip
_PLAIN_METHODS = frozenset({
    "endswith", "get", "items", "keys", "lower", "lstrip", "rstrip", "split", "splitlines", "startswith", "strip",
    "title", "upper", "values",
})  # fmt: skip
_PLAIN_DEPTH = 3
"""Filters on filters: `tojson` of `tojson` doubles every backslash."""


def line_that_computes(tree: nodes.Template) -> int | None:
    """The line of the first part of a template whose cost its values do not bound; None when there is none."""
    return _first(tree, 0, 0)


def _first(node: nodes.Node, loops: int, filters: int) -> int | None:
    """As `line_that_computes`, within so many loops and filters."""
    if isinstance(node, nodes.Assign):
        return None if isinstance(node.target, nodes.Name) and _only_names(node.node) else node.lineno
    loops += isinstance(node, nodes.For)
    filters += isinstance(node, nodes.Filter)
    if loops > 1 or filters > _PLAIN_DEPTH or not _is_plain(node):
        return node.lineno
    below = (_first(child, loops, filters) for child in node.iter_child_nodes())
    return next((line for line in below if line is not None), None)


def _is_plain(node: nodes.Node) -> bool:
    if isinstance(node, nodes.For):
        return not node.recursive
    if isinstance(node, nodes.Filter):
        return _is_plain_filter(node)
    if isinstance(node, nodes.Call):
        return isinstance(node.node, nodes.Getattr) and node.node.attr in _PLAIN_METHODS
    return isinstance(node, _PLAIN_NODES)


def _is_plain_filter(node: nodes.Filter) -> bool:
    """Whether a filter gives little more than it gets: what is given to it is fixed, and short."""
    arguments = [*node.args, *(pair.value for pair in node.kwargs)]
    fixed = [argument.value for argument in arguments if isinstance(argument, nodes.Const)]
    if node.name in ("default", "d"):
        return True
    if node.name not in _PLAIN_FILTERS or node.dyn_args or node.dyn_kwargs or len(fixed) < len(arguments):
        return False
    if node.name == "replace":
        return len(fixed) == 2 and len(str(fixed[0])) > 0 and len(str(fixed[1])) <= 4 * len(str(fixed[0]))
    if node.name == "map" and node.args:
        return fixed[0] in _PLAIN_FILTERS - {"join", "map", "replace", "sum", "tojson"}
    return not fixed or (node.name != "tojson" and all(isinstance(one, str) and len(one) <= 16 for one in fixed))


def _only_names(node: nodes.Node) -> bool:
    """Whether an expression gives one of the values that it names, and makes none."""
    made = (nodes.Concat, nodes.Add, nodes.Filter, nodes.Call, nodes.List, nodes.Tuple, nodes.Dict)
    return (
        isinstance(node, _PLAIN_NODES) and not isinstance(node, made) and all(map(_only_names, node.iter_child_nodes()))
    )
