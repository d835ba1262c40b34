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
"""TVM's backend of ``torch.compile``, and the capture of what Dynamo traces.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``relax_dynamo`` and ``dynamo_capture_subgraphs``, which import with ``from_fx``; a model that
    writes to an input or a buffer, as a batch norm in training mode does; one that returns a
    number, None, or an input itself; no tensor among the inputs; the capture of a module with
    dynamic dims.
Symptom
    Those of ``fx``; what a model writes is lost, silently; ``Unsupported type``; AttributeError.
Mechanism
    Dynamo's graph writes to its inputs; the compiled function has no such outputs.
How to remove
    See ``fx``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo
import tvm
from torch import fx
from tvm import relax, tirx
from tvm_ffi import structural_map

from ...support.serial import in_turn
from .fx import Traced, from_fx, import_traced
from .graph.traced_modules import Constant, Leaf, Sizes, Tree

__all__ = ["dynamo_capture_subgraphs", "relax_dynamo"]


def _input_info(examples: Sequence[Any]) -> list[tuple[list[Any], torch.dtype]]:
    """The ``input_info`` of ``from_fx`` for the tensors among Dynamo's example inputs."""
    variables: dict[str, tirx.Var] = {}

    def dim(size: Any) -> Any:
        if not isinstance(size, torch.SymInt):
            return size
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression)
        return variables.setdefault(str(size), tirx.Var(str(size), "int64"))

    tensors = [example for example in examples if isinstance(example, torch.Tensor)]
    return [([dim(size) for size in x.shape], x.dtype) for x in tensors]


def _traced_inputs(module: fx.GraphModule, examples: Sequence[Any]) -> list[Any]:
    """The examples as Dynamo traced them, whose dims may be symbolic."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return [
        node.meta.get("example_value", example)
        for node, example in zip(placeholders, examples, strict=True)
    ]


def relax_dynamo(
    pipeline: tvm.transform.Pass | str | None = None,
) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., tuple[Any, ...]]]:
    """Return a backend of ``torch.compile``: ``tvm.relax.frontend.torch.relax_dynamo``, corrected.

    The inputs that the model writes to, such as the statistics of a batch norm in training mode,
    get their new values.  As in :func:`from_fx`, dropout returns its operand.  There are no
    gradients.

    Parameters
    ----------
    pipeline : tvm.transform.Pass or str, optional
        Passes to run before this project's pipeline, or the name of a pipeline of Relax.

    Returns
    -------
    backend : callable
        For ``torch.compile(model, backend=relax_dynamo())``.
    """

    def backend(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
        info = _input_info(_traced_inputs(module, examples))
        traced = _imported(module, info)
        cuda = next((x.device for x in examples if _is_on_cuda(x)), None)
        device = tvm.cpu() if cuda is None else tvm.cuda(cuda.index or 0)
        target = tvm.target.Target.from_device(device) if cuda else tvm.target.Target("llvm")
        mod = traced.mod
        if pipeline is not None:
            passes = relax.get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
            with target:
                mod = passes(mod)
        executable = relax.build(mod, target, relax_pipeline="tvm_fixes")
        return _Compiled(relax.VirtualMachine(executable, device)["main"], traced)

    return backend


@in_turn
def _imported(module: fx.GraphModule, info: list[Any]) -> Traced:
    return import_traced(module, info, return_updates=True)


def _is_on_cuda(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


class _Compiled:
    """A compiled graph of Dynamo: takes and returns what the graph does."""

    def __init__(self, main: Callable[..., Any], traced: Traced) -> None:
        self._main = main
        self._traced = traced

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        inputs = [value.detach() for value in arguments if isinstance(value, torch.Tensor)]
        results = self._main(*(tvm.runtime.from_dlpack(value.contiguous()) for value in inputs))
        returned = self._traced.returned
        parts = returned if isinstance(returned, tuple) else (returned,)
        values = [results] if isinstance(results, tvm.runtime.Tensor) else list(results)
        for index, value in zip(self._traced.updated, values[len(parts) :], strict=True):
            inputs[index].copy_(torch.from_dlpack(value))
        return tuple(_returned(part, value) for part, value in zip(parts, values, strict=False))


def _returned(part: Tree, value: Any) -> Any:
    """A result as PyTorch returns it."""
    if isinstance(part, Constant):
        return part.value
    if isinstance(part, Sizes):
        return torch.Size(map(int, value))
    if isinstance(part, Leaf):
        tensor = torch.from_dlpack(value)
        return tensor.item() if part.is_number else tensor
    return tuple(_returned(each, field) for each, field in zip(part, value, strict=True))


def dynamo_capture_subgraphs(
    model: Callable[..., Any], *params: Any, keep_params_as_input: bool = False, **kwargs: Any
) -> tvm.IRModule:
    """Import the graphs that Dynamo traces: ``dynamo_capture_subgraphs`` of TVM, corrected.

    Parameters
    ----------
    model : torch.nn.Module or callable
    *params
        The arguments to call it with.
    keep_params_as_input : bool
        Make the parameters inputs of the functions; see :func:`from_fx`.
    **kwargs
        Keyword arguments to call it with.

    Returns
    -------
    tvm.IRModule
        The functions ``subgraph_0``, ``subgraph_1``, ..., one for each graph.
    """
    functions: dict[tvm.ir.GlobalVar, Any] = {}
    count = 0

    def capture(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        nonlocal count
        mod = from_fx(
            module,
            _input_info(_traced_inputs(module, examples)),
            keep_params_as_input=keep_params_as_input,
            unwrap_unit_return_tuple=True,
        )
        name = f"subgraph_{count}"
        count += 1
        names = {
            variable.name_hint: f"{name}_{variable.name_hint}".removesuffix("_main")
            for variable in mod.get_global_vars()
        }
        functions.update(_renamed(mod, names))
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=capture)(*params, **kwargs)
    return tvm.IRModule(functions)


def _renamed(
    mod: tvm.IRModule, names: Mapping[str, str]
) -> Iterator[tuple[tvm.ir.GlobalVar, tvm.ir.BaseFunc]]:
    """The functions of a module with other names."""
    variables = {old: tvm.ir.GlobalVar(new) for old, new in names.items()}
    for old, variable in variables.items():
        relax.expr._update_type(variable, mod.get_global_var(old).ty)
    naming = (tvm.ir.GlobalVar, lambda variable: variables[variable.name_hint])
    for variable, function in mod.functions_items():
        name = variables[variable.name_hint]
        mapped = structural_map(function, naming)
        if "global_symbol" in (mapped.attrs or {}):
            mapped = mapped.with_attr("global_symbol", name.name_hint)
        yield name, mapped
