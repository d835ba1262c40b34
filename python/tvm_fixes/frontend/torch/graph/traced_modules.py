# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
"""Export of a traced module, whose calls PyTorch runs one by one.

What differs from PyTorch is what TVM's importer defines: dropout and stochastic depth return their
operand, even in training mode; interpolation may read channels last; and the caller may have
converters of his own for some functions and modules.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ....errors import OpAttributeInvalid, OpNotImplemented
from .recurrent_shapes import recurrent_shapes
from .traced_inputs import TracedInputs, is_number

__all__ = [
    "CONVERTED",
    "TRACED",
    "Constant",
    "ConvertedCall",
    "Exported",
    "Leaf",
    "Sizes",
    "Tree",
    "export_traced",
    "forget",
]

CONVERTED = "converted.default"
"""The name of the operator that stands for a call with a converter of the caller."""

TRACED = "traced"
"""The name of the traced module in the exported one, a prefix of the names of its parameters."""

_DROPOUTS = {
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout),
    *(F.feature_alpha_dropout, torch.dropout, torch.feature_dropout, torch.alpha_dropout),
    torch.feature_alpha_dropout,
}
# Methods that TVM's importer converts, and that tensors do not have.
_METHODS: dict[str, Callable[..., Any]] = {"astype": torch.Tensor.to, "getattr": getattr}

_UPSAMPLES = nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d

_calls: dict[str, "ConvertedCall"] = {}
_numbers = itertools.count()


@dataclass(frozen=True)
class Leaf:
    """A tensor or a symbolic number that a module returns, and its place among them."""

    place: int
    is_number: bool


@dataclass(frozen=True)
class Constant:
    """A number, a string or None that a module returns."""

    value: Any


@dataclass(frozen=True)
class Sizes:
    """A shape that a module returns."""

    extents: tuple[Any, ...]


Tree: TypeAlias = Leaf | Constant | Sizes | tuple["Tree", ...]
"""Results of a module."""


@dataclass(frozen=True)
class Exported:
    """An exported module.

    Attributes
    ----------
    program : ExportedProgram
    returned : Tree
        What the module returns; its leaves are outputs of the program.
    calls : mapping of str to ConvertedCall
        The calls with a converter of the caller, by their key.
    """

    program: ExportedProgram
    returned: Tree
    calls: Mapping[str, "ConvertedCall"]


@dataclass(frozen=True)
class ConvertedCall:
    """A call that a converter of the caller converts.

    Attributes
    ----------
    node : torch.fx.Node
        The node of the traced module.
    run : callable
        Calls PyTorch with the call's arguments.
    leaves : list
        The leaves of the arguments, with None for tensors.
    tree : pytree.TreeSpec
        The structure of the positional and the keyword arguments.
    """

    node: fx.Node
    run: Callable[..., Any]
    leaves: list[Any]
    tree: pytree.TreeSpec

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments, with `tensors` in their places."""
        rest = iter(tensors)
        leaves = [next(rest) if leaf is _TENSOR else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return args, kwargs

    def results(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that PyTorch returns."""
        args, kwargs = self.arguments(tensors)
        found = self.run(*args, **kwargs)
        return list(found) if isinstance(found, tuple | list) else [found]


_TENSOR = object()


@functools.cache
def _converted() -> Any:
    """The operator that stands for calls with a converter of the caller."""
    library = torch.library.Library("tvm_fixes", "FRAGMENT")
    library.define("converted(Tensor[] operands, str key) -> Tensor[]")

    @torch.library.register_fake("tvm_fixes::converted", lib=library)
    def shapes(operands: list[torch.Tensor], key: str) -> list[torch.Tensor]:
        return [torch.empty_like(value) for value in _calls[key].results(operands)]

    # The operator exists as long as its library.
    return torch.ops.tvm_fixes.converted.default, library


@dataclass
class _Run:
    """The state of one run of a module."""

    node: fx.Node | None = None
    returned: Tree = ()
    leaves: list[Any] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def tree(self, value: Any) -> Tree:
        """Collect the leaves of what the module returns."""
        if isinstance(value, torch.Size):
            return Sizes(tuple(value))
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, tuple | list):
            return tuple(map(self.tree, value))
        if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
            self.leaves.append(value)
            return Leaf(len(self.leaves) - 1, not isinstance(value, torch.Tensor))
        if value is None or isinstance(value, bool | int | float | str):
            return Constant(value)
        raise OpNotImplemented(
            f"the module returns a {type(value).__name__}; expected tensors, numbers, or tuples"
        )


class _Interpreter(fx.Interpreter):
    """Runs a traced module as TVM's importer understands it."""

    def __init__(
        self,
        module: fx.GraphModule,
        run: _Run,
        numbers: Mapping[fx.Node, torch.SymInt],
        custom: Container[Any],
        channels_last: bool,
    ) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._run, self._numbers = run, numbers
        self._custom, self._channels_last = custom, channels_last

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and remember it for an error."""
        self._run.node = n
        return self._numbers[n] if n in self._numbers else super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = getattr(target, "__name__", "")
        if name in self._custom:
            return self._convert(target, args, kwargs)
        if target in _DROPOUTS or name == "stochastic_depth":
            return _operand(args, kwargs)
        if name == "_set_grad_enabled":
            return None
        if target is F.interpolate and self._channels_last:
            return _of_channels_last(target, *args, **kwargs)
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if target in self._custom:
            return self._convert(
                lambda x, *rest, **others: getattr(x, target)(*rest, **others), args, kwargs
            )
        if target in _METHODS:
            return _METHODS[target](*args, **kwargs)
        return super().call_method(target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        module = self.fetch_attr(target)
        if type(module) in self._custom:
            return self._convert(module, args, kwargs)
        if isinstance(module, nn.modules.dropout._DropoutNd):
            return _operand(args, kwargs)
        if isinstance(module, _UPSAMPLES) and self._channels_last:
            return _of_channels_last(module, *args, **kwargs)
        return super().call_module(target, args, kwargs)

    def _convert(self, run: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        leaves, tree = pytree.tree_flatten((tuple(args), kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        kept = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        key = f"call{next(_numbers)}"
        assert self._run.node is not None
        _calls[key] = ConvertedCall(self._run.node, run, kept, tree)
        self._run.keys.append(key)
        results = _converted()[0](tensors, key)
        return results[0] if len(results) == 1 else tuple(results)


def _operand(args: Any, kwargs: dict[str, Any]) -> Any:
    return args[0] if args else kwargs["input"]


def _of_channels_last(
    interpolate: Callable[..., torch.Tensor], input: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Interpolate data whose channels are in the last axis."""
    return interpolate(input.movedim(-1, 1), *args, **kwargs).movedim(1, -1)


class _Module(nn.Module):
    """A traced module whose inputs are tensors, and whose outputs are a flat list."""

    def __init__(self, traced: fx.GraphModule, run: _Run, interpret: Callable[..., Any]) -> None:
        super().__init__()
        self.add_module(TRACED, traced)
        self.train(traced.training)
        self._run = run
        self._interpret = interpret

    def train(self, mode: bool = True) -> "_Module":
        """Change only the mode of this module: those in the traced one keep theirs."""
        self.training = mode
        return self

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Run the traced module."""
        self._run.leaves.clear()
        self._run.returned = self._run.tree(self._interpret(inputs))
        self._run.node = None
        # A program needs an output.
        return tuple(self._run.leaves) or (torch.zeros(()),)


def export_traced(
    model: fx.GraphModule, inputs: TracedInputs, *, custom: Container[Any], channels_last: bool
) -> Exported:
    """Export a traced module.

    Parameters
    ----------
    model : torch.fx.GraphModule
    inputs : TracedInputs
    custom : container
        The names of functions and the types of modules with a converter of the caller.
    channels_last : bool
        Whether interpolations read data whose channels are in the last axis.

    Raises
    ------
    tvm.error.OpNotImplemented
        If ``torch.export`` rejects the module; the message names the node.
    tvm.error.OpAttributeInvalid
        If PyTorch cannot run it on such inputs, or a symbolic dim can have only one extent.
    """
    run = _Run()

    def interpret(tensors: tuple[torch.Tensor, ...]) -> Any:
        numbers = _numbers_of(model, inputs, tensors)
        interpreter = _Interpreter(model, run, numbers, custom, channels_last)
        return interpreter.run(*tensors, enable_io_processing=False)

    module = _Module(model, run, interpret)
    first: Exception | None = None
    for example in inputs.examples():
        shapes = (example.dynamic,) if example.inputs else None
        try:
            with _inference(), recurrent_shapes():
                program = torch.export.export(
                    module, example.inputs, dynamic_shapes=shapes, strict=False
                )
            _check_dims(program, inputs)
        except Exception as error:
            first = first or _named(error, run.node)
        else:
            return Exported(program, run.returned, {key: _calls[key] for key in run.keys})
    assert first is not None
    forget(run.keys)
    raise first


def _numbers_of(
    model: fx.GraphModule, inputs: TracedInputs, tensors: Sequence[torch.Tensor]
) -> dict[fx.Node, Any]:
    """The extents that Dynamo made placeholders for."""
    places = inputs.places()
    found: dict[fx.Node, Any] = {}
    for node in model.graph.find_nodes(op="placeholder"):
        if not is_number(node):
            continue
        value = node.meta.get("example_value")
        place = places.get(node.name, places.get(str(value)))
        if place is not None:
            found[node] = tensors[place[0]].shape[place[1]]
        elif node.users:
            raise OpAttributeInvalid(
                f"from_fx: input {node.name!r} is the number {value}, and no dim of input_info is "
                f"a variable of that name"
            )
        else:
            found[node] = None
    return found


def _check_dims(program: ExportedProgram, inputs: TracedInputs) -> None:
    """Check that no symbolic dim became a number."""
    names = program.graph_signature.user_inputs
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    for index, (shape, name) in enumerate(zip(inputs.shapes, names, strict=True)):
        for axis, (dim, size) in enumerate(zip(shape, values[name].shape, strict=True)):
            if not isinstance(dim, int) and isinstance(size, int):
                raise OpAttributeInvalid(
                    f"from_fx: axis {axis} of input {index} is {dim}, and the module accepts only "
                    f"{size}; give the number in input_info"
                )


@contextlib.contextmanager
def _inference() -> Iterator[None]:
    """Without gradients, operators that only PyTorch's inference has, and a trace around this one.

    Dynamo calls its backends within a trace, whose sizes would get the conditions of ours.
    """
    was_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), torch._guards.tracing(None):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)


def _named(error: Exception, node: fx.Node | None) -> Exception:
    """The error of an export, with the name of the node."""
    if isinstance(error, OpNotImplemented | OpAttributeInvalid):
        return error
    text = " ".join(str(error).partition("While executing")[0].split())[:600]
    place = "" if node is None else f" {node.target} at node {node.name!r}"
    is_plain = type(error) in (ValueError, RuntimeError, TypeError, IndexError)
    kind = OpAttributeInvalid if is_plain and node else OpNotImplemented
    found: Exception = kind(f"torch.export rejects{place or ' the module'}: {text}")
    found.__cause__ = error
    return found


def forget(keys: Iterable[str]) -> None:
    """Forget the calls with a converter of the caller that have these keys."""
    for key in keys:
        _calls.pop(key, None)
