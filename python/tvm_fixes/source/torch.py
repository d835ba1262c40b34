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
"""PyTorch models."""

import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from ..errors import CompileError, UsageError
from ..frontend.operators import Operator
from ..relax.updates import updates_of
from ..runtime.call_arguments import Argument
from ..runtime.manifest import Signature, TensorSpec
from ..support.tensors import to_numpy, to_torch
from ..support.threads import thread_count
from . import pt2
from .base import ModelValue, Reference, Shapes, Source, import_extra, local_of
from .rounding import moved, steps_of
from .torch_export import exported
from .torch_values import (
    may_write,
    number_to_tensor,
    program_values,
    with_program_outputs,
    without_results,
)

if TYPE_CHECKING:
    import torch


_DEFAULT_NUMBER = 2
"""The value of a dynamic int of a program without example inputs."""


class TorchSource(Source):
    """A PyTorch program, with PyTorch as its reference.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.
    name : str
        Its name in messages.
    shapes : mapping of str to sequence of int, optional
        Sizes of symbolic dims for the comparison.
    module : torch.nn.Module, optional
        The module that the program was exported from; it replaces the program as reference.
    """

    def __init__(
        self,
        program: "torch.export.ExportedProgram",
        name: str,
        shapes: Shapes | None = None,
        module: "torch.nn.Module | None" = None,
    ):
        super().__init__(name, shapes)
        self._module = module
        self._read(program)
        self.output_names = tuple(result.name for result in self._results if not result.vanishes)
        self.parameter_bytes = self._count_parameter_bytes()
        self.check_shapes()

    def _read(self, program: "torch.export.ExportedProgram") -> None:
        from ..frontend.torch.graph.signature import arguments_of, results_of

        self._program = program
        self._arguments = arguments_of(program)
        self._results = results_of(program)
        self._expressions: dict[str, Any] = {}
        # The inputs that the program writes to; None before an import.
        self._mutated: list[str] | None = None
        self.numbers = {}
        self.inputs = tuple(self._specs())

    @classmethod
    def load(
        cls, path: Path, shapes: Shapes | None = None, *, trust: bool = False
    ) -> "TorchSource":
        """Read a file of ``torch.export.save``; reject one that may run code unless `trust`."""
        import_extra("torch", str(path))
        # Registers the operators of programs that PT2E quantized.
        import_module("torch.ao.quantization.fx._decomposed")
        return cls(pt2.load(path, trust=trust), path.name, shapes)

    @classmethod
    def export(
        cls,
        module: "torch.nn.Module",
        args: tuple[Any, ...],
        name: str,
        shapes: Shapes | None = None,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
    ) -> "TorchSource":
        """Export `module`, which is in eval mode, with the example inputs `args` and `kwargs`.

        Names of dims in `shapes` are new ones, or, with `dynamic_shapes`, those of the program.
        """
        kwargs = dict(kwargs or {})
        if module.training:
            raise UsageError(f"{name}: the module is in training mode; call .eval() first")
        if dynamic_shapes is not None:
            program = exported(module, args, kwargs, name, dynamic_shapes)
            return cls(program, name, shapes, module)
        source = cls(exported(module, args, kwargs, name), name, None, module)
        if shapes and any(isinstance(dim, str) for dims in shapes.values() for dim in dims):
            source._check_fit(shapes, can_name=True)
            args, kwargs, dynamic = source._make_dynamic(module, args, kwargs, shapes)
            source = cls(exported(module, args, kwargs, name, dynamic), name, None, module)
        return cls(source._program, name, shapes, module)

    def _make_dynamic(
        self,
        module: "torch.nn.Module",
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        shapes: Shapes,
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """The example inputs and ``dynamic_shapes`` for an export with the dim names in `shapes`.

        An extent of 1 on such an axis becomes 2: PyTorch treats 1 as a constant.
        """
        import torch
        from torch.utils import _pytree as pytree

        symbols: dict[str, Any] = {}
        leaves, structure = pytree.tree_flatten((args, dict(kwargs)))
        dynamic: list[dict[int, Any] | None] = []
        for index, (leaf, argument) in enumerate(zip(leaves, self._arguments, strict=True)):
            extents = shapes.get(argument.name, ())
            names = {axis: dim for axis, dim in enumerate(extents) if isinstance(dim, str)}
            for axis, name in names.items():
                if not name.isidentifier():
                    raise UsageError(
                        f"input {argument.name!r} of {self.name}: expected an identifier as name "
                        f"of a dim, got {name!r}"
                    )
                symbols.setdefault(name, torch.export.Dim(name))
                if leaf.shape[axis] == 1:
                    leaf = torch.cat([leaf, leaf], axis)
            leaves[index] = leaf
            dynamic.append({axis: symbols[name] for axis, name in names.items()} or None)
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        return args, dict(kwargs), dict(_by_parameter(module, dynamic, structure))

    def make_static(self) -> None:
        """Set a size for every symbolic dim, and export the program again with these sizes.

        A number remains an input; its symbol is bound after the import.

        Raises
        ------
        UsageError
            If neither `shapes` nor an example input determines the size of a dim.
        CompileError
            If the program does not accept these sizes.
        """
        super().make_static()
        if not self._expressions:
            return
        import torch
        from torch.utils import _pytree as pytree

        from ..frontend.torch.graph.signature import call_arguments

        sizes = {name: self._static_numbers[name] for name in self.numbers}
        examples = self._examples
        if examples is None or not all(map(self._fits_example, self.inputs, examples)):
            drawn = self.example_inputs(np.random.default_rng(0))
            examples = [to_torch(value) for value in drawn]
        examples = [
            torch.tensor(sizes[spec.name]) if spec.name in sizes else example
            for spec, example in zip(self.inputs, examples, strict=True)
        ]
        args, kwargs = call_arguments(self._program, examples)
        module = self._module if self._module is not None else self._program.module()
        dims = None
        if sizes:
            structure = pytree.tree_structure((args, kwargs))
            auto = torch.export.Dim.AUTO
            names = [argument.name for argument in self._arguments]
            dynamic = [auto if name in sizes else None for name in names]
            dims = dict(_by_parameter(module, dynamic, structure))
        self._read(exported(module, args, kwargs, self.name, dims))
        self.__dict__.pop("_examples", None)
        self._given_sizes = {dim: sizes[name] for name, dim in self.numbers.items()}

    def _fits_example(self, spec: TensorSpec, example: Any) -> bool:
        return spec.name in self.numbers or tuple(example.shape) == self.shapes[spec.name]

    @property
    def program(self) -> "torch.export.ExportedProgram":
        """The program."""
        return self._program

    def _specs(self) -> Iterator[TensorSpec]:
        """The inputs; a constant is none."""
        import torch

        placeholders = {node.name: node for node in self._program.graph.nodes}
        for argument in self._arguments:
            if argument.is_constant:
                continue
            value = placeholders[argument.node].meta["val"]
            if isinstance(value, torch.SymInt):
                self.numbers[argument.name] = str(value)
                yield TensorSpec(argument.name, (), "int64")
            else:
                dims = tuple(int(dim) if _is_known(dim) else str(dim) for dim in value.shape)
                symbolic = [dim for dim in value.shape if not _is_known(dim)]
                self._expressions |= {str(dim): dim.node.expr for dim in symbolic}
                yield TensorSpec(argument.name, dims, str(value.dtype).removeprefix("torch."))

    def signature(self, main: relax.Function) -> Signature:
        signature = super().signature(main)
        arguments = tuple(
            Argument(argument.path, not argument.is_constant, argument.value)
            for argument in self._arguments
        )
        is_flat = all(argument.is_input and len(argument.path) == 1 for argument in arguments)
        return signature if is_flat else signature._replace(arguments=arguments)

    def tensors(self) -> "Iterator[tuple[str, torch.Tensor]]":
        """The strided tensors among the parameters, buffers and constants, by name."""
        import torch
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass

        def parts(name: str, value: Any) -> "Iterator[tuple[str, torch.Tensor]]":
            # torchao wraps the integers, scales and zero points of a weight in one tensor.
            if is_traceable_wrapper_subclass(value):
                for attribute in value.__tensor_flatten__()[0]:
                    yield from parts(f"{name}.{attribute}", getattr(value, attribute))
            elif isinstance(value, torch.Tensor) and value.layout is torch.strided:
                yield name, value

        for name, value in (self._program.state_dict | self._program.constants).items():
            yield from parts(name, value)

    def _count_parameter_bytes(self) -> int:
        storages = {
            value.untyped_storage().data_ptr(): value.untyped_storage().nbytes()
            for _, value in self.tensors()
        }
        return sum(storages.values())

    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        import torch

        for name, value in self.tensors():
            if value.device.type == "cpu":
                data = value.detach().resolve_conj().resolve_neg().contiguous()
                yield name, data.reshape(-1).view(torch.uint8).numpy()

    def operators(self) -> list[Operator]:
        """The operators of the decomposed program, and which of them have a converter."""
        from ..frontend.torch.graph.preflight import operators_of

        return operators_of(self._program)

    def to_relax(self) -> tvm.IRModule:
        from ..frontend.torch import from_exported_program

        program = self._with_tensor_results()
        try:
            mod = from_exported_program(program, unwrap_unit_return_tuple=True, return_updates=True)
        except Exception as error:
            raise self._explain(error) from error
        updates = updates_of(mod["main"])
        self._mutated = sorted(updates, key=updates.__getitem__)
        return self._bind_dims(mod) if self.shapes else mod

    def _with_tensor_results(self) -> "torch.export.ExportedProgram":
        """The program without the results that are not tensors; a warning names strings."""
        for result in self._results:
            if isinstance(result.value, str):
                warnings.warn(
                    f"output {result.name!r} of {self.name} is the string {result.value!r}, which "
                    "the compiled model does not return",
                    stacklevel=2,
                )
        if not any(result.vanishes for result in self._results):
            return self._program
        if not self.output_names:
            values = ", ".join(repr(result.value) for result in self._results[:3]) or "none"
            raise CompileError(
                f"{self.name}: expected an output that is a tensor or a number, got {values}"
            )
        return without_results(self._program, [result.vanishes for result in self._results])

    def to_stock_relax(self) -> tvm.IRModule:
        from tvm.relax.frontend.torch import from_exported_program

        return from_exported_program(self._program, unwrap_unit_return_tuple=True)

    def _explain(self, error: Exception) -> CompileError:
        from torch import fx

        missing = local_of(error, "missing_func_types", list) or []
        if missing:
            graph = local_of(error, "nodes", object) or self._program.graph.nodes
            nodes = [n for n in graph if getattr(n.target, "__name__", None) in missing]
        else:
            node = local_of(error, "node", fx.Node)
            nodes = [] if node is None else [node]
        return self._import_error(
            error, missing=missing, nodes=[_describe_fx_node(node) for node in nodes]
        )

    def _sizes(self, *, default: bool = False) -> dict[str, int]:
        sizes = super()._sizes(default=default)
        examples = self._examples or [None] * len(self.inputs)
        for spec, example in zip(self.inputs, examples, strict=True):
            dim = self.numbers.get(spec.name)
            if dim is not None and dim not in sizes and (default or example is not None):
                fallback = _DEFAULT_NUMBER if example is None else int(example)
                sizes[dim] = self._given_sizes.get(dim, fallback)
        for dim, expression in self._expressions.items():
            # Such as 2*s0; another number would contradict the size of s0.
            known = {symbol: sizes.get(str(symbol)) for symbol in expression.free_symbols}
            if dim in sizes and None not in known.values():
                sizes[dim] = int(expression.subs(known))
        return sizes

    def _within_bounds(self, spec: TensorSpec, axis: int, size: int) -> int:
        dim = str((spec.shape or ())[axis])
        for symbol, limits in self._program.range_constraints.items():
            if str(symbol) == dim:
                size = int(min(max(size, limits.lower), limits.upper))
        return size

    @cached_property
    def _examples(self) -> "list[torch.Tensor] | None":
        from torch.utils import _pytree as pytree

        if self._program.example_inputs is None:
            return None
        leaves = pytree.tree_leaves(self._program.example_inputs)
        pairs = zip(leaves, self._arguments, strict=True)
        return [leaf for leaf, argument in pairs if not argument.is_constant]

    def _example_size(self, spec: TensorSpec, axis: int) -> int | None:
        if self._examples is None:
            return None
        return int(self._examples[self.inputs.index(spec)].shape[axis])

    def _draw(
        self, rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Draw integers from the range of the example, because they may be indices."""
        if spec.name in self.numbers:
            return np.asarray(self._sizes(default=True)[self.numbers[spec.name]], "int64")
        low, high = 0, 1
        if self._examples is not None:
            example = self._examples[self.inputs.index(spec)]
            if example.numel() and not example.is_floating_point() and not example.is_complex():
                low, high = int(example.min()), int(example.max())
        return self._example.draw(rng, spec, shape, low, high)

    def values(self, inputs: list[np.ndarray]) -> list[ModelValue]:
        return list(program_values(self._program))

    def with_outputs(self, names: Sequence[str]) -> "TorchSource":
        part = TorchSource(with_program_outputs(self._program, names), self.name, self.shapes)
        part.output_names = tuple(names)
        if self._is_static:
            part._is_static, part._static_numbers = True, self._static_numbers
            part._given_sizes = dict(self._given_sizes)
        return part

    def save_in(self, folder: Path) -> Path:
        import torch

        torch.export.save(self._program, folder / "model.pt2")
        return folder / "model.pt2"

    def reference(self) -> tuple[str, Reference]:
        import torch

        torch.set_num_threads(thread_count())
        module = self._module if self._module is not None else self._program.module()

        def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
            return self._outputs(module, [to_torch(value) for value in inputs])

        return f"PyTorch {torch.__version__}", run

    def _outputs(self, module: Any, inputs: "list[torch.Tensor]") -> list[np.ndarray]:
        """The results of a call of `module`, and then the new values of inputs."""
        import torch
        from torch.utils import _pytree as pytree

        from ..frontend.torch.graph.signature import call_arguments

        args, kwargs = call_arguments(self._program, inputs)
        with torch.no_grad():
            leaves = pytree.tree_leaves(module(*args, **kwargs))
        pairs = zip(leaves, self._results, strict=True)
        outputs = [number_to_tensor(leaf) for leaf, result in pairs if not result.vanishes]
        return [to_numpy(value) for value in (*outputs, *self._new_values(inputs))]

    def rounded_reference(self, seed: int) -> Reference:
        import torch

        rng, steps = np.random.default_rng(seed), steps_of(seed)
        module = self._module if self._module is not None else self._program.module()
        state = dict(module.named_parameters())
        weights = {
            name: to_torch(moved(to_numpy(value), rng, steps))
            for name, value in state.items()
            if steps and value.is_floating_point() and value.layout is torch.strided
        }
        # Without oneDNN, PyTorch takes a hundred times as long for 16-bit convolutions.
        with_onednn = bool(seed % 2) or any(value.dtype.itemsize < 4 for value in state.values())

        def call(*args: Any, **kwargs: Any) -> Any:
            return torch.func.functional_call(module, weights, args, kwargs)

        def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
            with torch.backends.mkldnn.flags(enabled=with_onednn):
                return self._outputs(call, [to_torch(moved(v, rng, steps)) for v in inputs])

        return run

    def _new_values(self, inputs: "list[torch.Tensor]") -> "list[torch.Tensor]":
        """The inputs that the program writes to, in the order of the function's results."""
        nodes = [argument.node for argument in self._arguments if not argument.is_constant]
        by_node = dict(zip(nodes, inputs, strict=True))
        if self._mutated is None and may_write(self._program):
            self.to_relax()
        return [by_node[node] for node in self._mutated or ()]

    def exported_outputs(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        if self._module is None or self._program.graph_signature.buffers_to_mutate:
            return None
        tensors = [to_torch(value) for value in inputs]
        return self._in_child(lambda: self._outputs(self._program.module(), tensors))

    def _run_in_float64(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        import torch
        from torch.utils import _pytree as pytree

        if self._program.graph_signature.buffers_to_mutate:
            return None  # the run has changed them
        module = copy.deepcopy(self._program.module()).double()

        def widened(value: Any) -> Any:
            is_float = isinstance(value, torch.dtype) and value.is_floating_point
            return torch.float64 if is_float else value

        for part in module.modules():
            if isinstance(part, torch.fx.GraphModule):
                for node in list(part.graph.nodes):
                    if "_assert_tensor_metadata" in str(node.target):
                        part.graph.erase_node(node)
                    else:
                        node.args = pytree.tree_map(widened, node.args)
                        node.kwargs = pytree.tree_map(widened, node.kwargs)
                part.recompile()
        tensors = [to_torch(value) for value in inputs]
        in_float64 = [
            tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors
        ]
        return self._outputs(module, in_float64)


def _by_parameter(module: Any, leaves: Sequence[Any], structure: Any) -> dict[str, Any]:
    """The leaves by the parameters of a module, one of which may collect several arguments."""
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_unflatten(leaves, structure)
    return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)


def _is_known(dim: "int | torch.SymInt") -> bool:
    """Whether a dim has one size, perhaps one that PyTorch found while it exported."""
    return isinstance(dim, int) or bool(dim.node.expr.is_Integer)


def _describe_fx_node(node: Any) -> str:
    # The last lines of the stack are the model's own.
    stack = [line for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    place = f" ({' '.join(line.strip() for line in stack[-2:])})" if stack else ""
    return f"{node.target} at node {node.name!r}{place}"
