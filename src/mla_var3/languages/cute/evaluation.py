"""Works out a CuTe kernel's grid and accumulators from its Python source, without a compile.

The host function's launch states the grid, and each accumulator the extents of its tile. Both are
arithmetic over shapes, constants and attributes of the host object, and only such arithmetic is
evaluated: whatever takes a layout or the device stays unknown.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.languages.base import Tile
from mla_var3.languages.cute import signature
from mla_var3.languages.cute.kernel import CuteKernel
from mla_var3.syntax import statements

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Is: operator.is_,
    ast.IsNot: operator.is_not, ast.Gt: operator.gt, ast.Lt: operator.lt, ast.Eq: operator.eq,
    ast.BitOr: operator.or_,
}  # fmt: skip
#: Rows that a warpgroup holds of a product: PTX ISA, wgmma.mma_async, shape m64nNkK.
_WARPGROUP_ROWS, _WARPGROUP = 64, 128


class UnknownValueError(HyperMlaError):
    """The source does not say a value without a compile."""


def grid(kernel: CuteKernel) -> tuple[int, ...]:
    """Blocks per axis under the current tiling; empty where the host function does not say."""
    found = _set(kernel, "grid")
    return tuple(int(extent) for extent in found[0]) if len(found) == 1 else ()


def is_cooperative(kernel: CuteKernel) -> bool:
    """Whether a launch asks that all of its blocks run at once."""
    return any(_set(kernel, "cooperative"))


def _set(kernel: CuteKernel, name: str) -> list[Any]:
    """What launches set by a name under the current tiling; none where it takes a compile."""
    host, arguments = _host(kernel)
    if host is None:
        return []
    function = _function(host if inspect.isroutine(host) else type(host).__call__)
    values = [a.tensor if isinstance(a, signature.Dynamic) else a for a in arguments]
    given = dict(zip(signature.parameter_names(host), values, strict=False))
    scope = _Scope(function, _known({"self": host, **given}))
    try:
        return list(_settings(scope, name))
    except UnknownValueError:
        return []


def _host(kernel: CuteKernel) -> tuple[Any, tuple[Any, ...]]:
    """The host function with its arguments; none where it is somebody's and not fetched."""
    try:
        return kernel.host()
    except NotExecutableError:
        return None, ()


def _settings(scope: _Scope, setting: str) -> Iterator[Any]:
    """A setting of the launches in a host function, and in the methods that it hands over to."""
    for call in _calls(scope.body, "launch"):
        for keyword in call.keywords:
            if keyword.arg == setting:
                yield scope.value(keyword.value)
            elif keyword.arg is None and setting in (options := _options(scope, keyword.value)):
                yield options[setting]
    for call, owner, name in _own_calls(scope.body):
        method = getattr(scope.value(owner), name, None)
        if inspect.ismethod(method) and "launch" in _function(method).__code__.co_names:
            yield from _settings(scope.entered(call, method), setting)


def _options(scope: _Scope, node: ast.expr) -> Mapping[str, Any]:
    """Settings of a launch that come from a method; empty where they take a compile."""
    try:
        return dict(scope.value(node))
    except UnknownValueError:
        return {}


def accumulators(kernel: CuteKernel) -> tuple[Tile, ...]:
    """The accumulators of warpgroup products, the largest of each name, the largest first."""
    host, _ = _host(kernel)
    found: dict[str, Tile] = {}
    for owner in (host, *vars(host).values()) if hasattr(host, "__dict__") else ():
        for tile in _fragments(owner):
            found[tile.name] = max(found.get(tile.name, tile), tile, key=_elements)
    return tuple(sorted(found.values(), key=lambda tile: (-_elements(tile), tile.name)))


def _elements(tile: Tile) -> int:
    return tile.rows * tile.columns


def _fragments(owner: object) -> Iterator[Tile]:
    """Accumulators that an object's methods make, by themselves or by a function that they call."""
    for function in _makers(type(owner)):
        scope = _Scope(function, _known({"self": owner}))
        for name, value in _named(scope.body):
            for call in _calls(value, "partition_shape_C"):
                try:
                    rows, columns = scope.value(call.args[0])
                except UnknownValueError:
                    continue
                if rows % _WARPGROUP_ROWS == 0:
                    threads = rows // _WARPGROUP_ROWS * _WARPGROUP
                    yield Tile(name, rows, columns, True, threads)


def _makers(kind: type) -> Iterator[FunctionType]:
    """Methods, inherited ones included, and functions beside them, that make accumulators."""
    found: dict[FunctionType, None] = {}
    for _, member in inspect.getmembers(kind, inspect.isfunction):
        method = _function(member)
        called = (method.__globals__.get(name) for name in method.__code__.co_names)
        functions = (_function(each) for each in called if inspect.isfunction(each))
        found |= dict.fromkeys((method, *functions))
    yield from (each for each in found if "partition_shape_C" in each.__code__.co_names)


def _function(member: Any) -> FunctionType:
    """A function as it was written, below the decorators of the DSL."""
    found = inspect.unwrap(getattr(member, "__func__", member))
    assert isinstance(found, FunctionType)
    return found


def _definition(function: FunctionType) -> ast.FunctionDef:
    code = function.__code__
    return _definitions(code.co_filename)[code.co_firstlineno]


@functools.cache
def _definitions(file: str) -> dict[int, ast.FunctionDef]:
    """The functions of a file by their first line, which is that of a decorator if there is one."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    found = (node for node in statements(tree) if isinstance(node, ast.FunctionDef))
    return {min([node.lineno, *(d.lineno for d in node.decorator_list)]): node for node in found}


@functools.cache  # One record after the other asks for the same few functions.
def _calls(node: ast.AST, name: str) -> tuple[ast.Call, ...]:
    found = (call for call in ast.walk(node) if isinstance(call, ast.Call))
    return tuple(c for c in found if isinstance(c.func, ast.Attribute) and c.func.attr == name)


@functools.cache  # One problem after the other asks.
def _own_calls(body: ast.AST) -> tuple[tuple[ast.Call, ast.Name, str], ...]:
    """Calls of a function's own methods, with its ``self`` and their names."""
    return tuple(
        (node, node.func.value, node.func.attr)
        for node in ast.walk(body)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    )


def _named(body: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Values with the variable or the parameter that they are given to."""
    for node in ast.walk(body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.keyword(arg=str(name), value=value) if not isinstance(value, ast.Name):
                yield name, value


@dataclass(frozen=True)
class _View:
    """A tensor or a layout, of which only the shape is known."""

    shape: tuple[int, ...]


def _select(layout: Any, mode: Any) -> _View:
    return _View(tuple(layout.shape[axis] for axis in mode))


def _same(value: Any) -> Any:
    return value


#: Functions of the DSL that are arithmetic on numbers or shapes, by name.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ceil_div": lambda a, b: -(-a // b), "min": min, "max": max, "const_expr": _same,
    "make_layout": lambda shape: _View(shape), "make_tensor": lambda _, layout: layout,
    "select": _select,
}  # fmt: skip
#: What a name, or a parameter, is worth when it is asked for.
_Known = Mapping[str, Callable[[], Any]]


def _known(values: Mapping[str, Any]) -> _Known:
    return {name: functools.partial(_same, value) for name, value in values.items()}


class _Scope:
    """A function whose parameters are known, up to one of its statements.

    Args:
        function: The function.
        given: Its parameters.
        until: Statements before which names are looked up; all of them by default.
    """

    def __init__(self, function: FunctionType, given: _Known, until: int | None = None) -> None:
        self.function, self.given = function, given
        self.body = _definition(function)
        self.statements = self.body.body[:until]
        self._values: dict[str, Any] = {}

    def value(self, node: ast.expr) -> Any:
        """What an expression is worth.

        Raises:
            UnknownValueError: It is no arithmetic over known values.
        """
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self.value(owner), name)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Dict(keys=keys, values=values) if all(keys):
                worth = map(self.value, values)
                return dict(zip((self.value(key) for key in keys if key), worth, strict=True))
            case ast.Subscript(value=items, slice=place):
                return self.value(items)[self.value(place)]
            case ast.BinOp(left=one, op=op, right=other) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.value(one), self.value(other))
            case ast.Compare(left=one, ops=[op], comparators=[other]) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.value(one), self.value(other))
            case ast.IfExp(test=test, body=one, orelse=other):
                return self.value(one if self.value(test) else other)
            case ast.ListComp(elt=item, generators=[ast.comprehension(ast.Name(id=name), of)]):
                return tuple(
                    _Scope(self.function, {**self.given, **_known({name: each})}).value(item)
                    for each in self.value(of)
                )
            case ast.Call(func=function):
                return self._call(self.value(function), node)
        raise UnknownValueError(f"{ast.unparse(node)} takes a compile")

    def entered(self, call: ast.Call, called: Callable[..., Any]) -> _Scope:
        """The scope of a function or a method that is called from this one."""
        function = _function(called)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        thunks: list[Callable[[], Any]] = []
        if inspect.ismethod(called):
            thunks += _known({"self": called.__self__}).values()
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                thunks += (functools.partial(_same, each) for each in self.value(argument.value))
            else:
                thunks.append(functools.partial(self.value, argument))
        return _Scope(function, dict(zip(names, thunks, strict=False)))

    def _name(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._looked_up(name)
        return self._values[name]

    def _looked_up(self, name: str) -> Any:
        for at in reversed(range(len(self.statements))):
            statement = self.statements[at]
            before = _Scope(self.function, self.given, at)
            match statement:
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    return before.value(value)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                    for place, target in enumerate(names):
                        if isinstance(target, ast.Name) and target.id == name:
                            return before.item(value, place)
                case ast.stmt() if name in _assigned(statement):
                    raise UnknownValueError(f"{name} depends on the way through the function")
        if name in self.given:
            return self.given[name]()
        if name not in self.function.__globals__:
            raise UnknownValueError(f"{name} is set when it is compiled")
        return self.function.__globals__[name]

    def item(self, value: ast.expr, place: int) -> Any:
        """One of several values that are assigned together."""
        if isinstance(value, ast.Tuple):
            return self.value(value.elts[place])
        return self.value(value)[place]

    def _attribute(self, owner: Any, name: str) -> Any:
        if name == "iterator":
            return None
        if name == "layout" and hasattr(owner, "shape"):
            return _View(tuple(owner.shape))
        if not hasattr(owner, name):
            raise UnknownValueError(f"{name} is set when it is compiled")
        return getattr(owner, name)

    def _call(self, function: Any, call: ast.Call) -> Any:
        """Arithmetic of the DSL, a tuple, or a function that returns an expression."""
        name, of_dsl = ast.unparse(call.func).rpartition(".")[2], _is_of_dsl(function)
        if of_dsl and name in _FUNCTIONS:
            more = {k.arg: self.value(k.value) for k in call.keywords if k.arg == "mode"}
            return _FUNCTIONS[name](*map(self.value, call.args), **more)
        if isinstance(function, type) and issubclass(function, tuple):
            return function(*map(self.value, call.args))
        if of_dsl or not inspect.isroutine(function):
            raise UnknownValueError(f"{name} takes a compile")
        inner = self.entered(call, function)
        match inner.body.body[-1]:
            case ast.Return(value=ast.expr() as returned):
                return inner.value(returned)
        raise UnknownValueError(f"{name} returns no expression")


def _is_of_dsl(function: Any) -> bool:
    """Whether the DSL made a function; some of its own are objects, whose class is its."""
    return any(
        str(getattr(owner, "__module__", "")).startswith("cutlass")
        for owner in (function, type(function))
    )


@functools.cache
def _assigned(statement: ast.stmt) -> set[str]:
    """Names that a statement may assign to; those of a class or function inside are its own."""
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
        return {statement.name}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
