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
"""The backend of ``torch.compile``."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch.aot_autograd import make_boxed_func
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export.exported_program import _override_composite_implicit_decomp

from ..errors import CompileError, UnsupportedOperatorError, summarize
from ..frontend.torch.call import known_operators
from ..frontend.torch.functional_graph import rules_of_graphs
from ..frontend.torch.graph.recurrent_shapes import recurrent_shapes
from ..frontend.torch.ops.linear_algebra import pure_checks
from .cached_graph import CachedGraph
from .explanation import Explanation, Graph
from .graphs import Compiled, compile_graph
from .options import Options

__all__ = ["Backend", "backend", "explain"]

_log = logging.getLogger(__name__)

_INSTANCE_NORM = torch.ops.aten.instance_norm.default

_GRADIENTS = "it computes gradients; use torch.no_grad() or torch.inference_mode()"


class Backend:
    """A backend of ``torch.compile`` with its options.

    Parameters
    ----------
    options : Options
    note : callable, optional
        Called with the description of each graph.
    """

    def __init__(self, options: Options, note: Callable[[Graph], None] | None = None) -> None:
        self._options = options
        self._note = note

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph that Dynamo traced."""
        if torch.is_grad_enabled() and any(map(_needs_gradient, (*inputs, *module.parameters()))):
            torch._logging.warning_once(_log, "PyTorch runs the model: " + _GRADIENTS)
            return self._skip(module, _GRADIENTS)
        cached = CachedGraph.of(module, inputs, self._options)
        found = None if cached is None else cached.find()
        if found is not None:
            function, graph = found
            self._tell(graph)
            return function
        made: list[tuple[fx.GraphModule, Compiled]] = []
        compiled = self._compiled(module, inputs, made.append)
        if cached is not None and len(made) == 1:
            cached.keep(*made[0])
        return compiled

    def _compiled(
        self, module: fx.GraphModule, inputs: Sequence[Any], note: Callable[[Any], None]
    ) -> Callable[..., Any]:
        """Make a graph functional, and compile it; `note` gets the graph and what becomes of it."""
        known = known_operators()
        rules, whole = rules_of_graphs(known)
        compile_inference = aot_autograd(
            fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
            inference_compiler=functools.partial(self._compile, note),
            decompositions=rules,
            keep_inference_input_mutations=True,
        )
        with ExitStack() as contexts:
            contexts.enter_context(recurrent_shapes())
            contexts.enter_context(pure_checks())
            contexts.enter_context(
                _override_composite_implicit_decomp(
                    {**dict.fromkeys(whole, _stay_whole), _INSTANCE_NORM: _instance_norm}
                )
            )
            try:
                compiled: Callable[..., Any] = compile_inference(module, inputs)
            except (TorchDynamoException, CompileError):
                raise
            except Exception as error:
                if not self._options.fallback:
                    raise
                _log.warning("PyTorch runs a graph: %s", summarize(error), exc_info=True)
                return self._skip(module, summarize(error))
            return compiled

    def _skip(self, module: fx.GraphModule, reason: str) -> Callable[..., Any]:
        self._tell(Graph(skipped=reason))
        return module.forward

    def _compile(
        self, note: Callable[[Any], None], module: fx.GraphModule, inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """Compile a graph that AOTAutograd made functional."""
        # The importer computes constants with PyTorch.
        with unset_fake_temporarily():
            compiled = compile_graph(module, self._options)
        note((module, compiled))
        self._tell(compiled.description)
        return make_boxed_func(compiled.module.forward)

    def _tell(self, graph: Graph) -> None:
        _log.info("%s", "\n".join(graph.lines()))
        if self._note is not None:
            self._note(graph)
        if not self._options.fallback and (graph.skipped or graph.eager):
            reasons = [graph.skipped] if graph.skipped else dict.fromkeys(graph.eager.values())
            raise UnsupportedOperatorError(
                f"not compiled, and the option fallback is off: {'; '.join(reasons)}"
            )


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _stay_whole(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


def _instance_norm(*args: Any) -> Any:
    """Decompose an instance norm that updates running statistics, which its schema hides."""
    running_mean, use_input_stats = args[3], args[5]
    if running_mean is None or not use_input_stats:
        return NotImplemented
    return _INSTANCE_NORM._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args)


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph for ``torch.compile(model, backend="tvm_fixes")``.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The graph that Dynamo traced.
    inputs : sequence
        Its example inputs.
    options : mapping, optional
        Fields of :class:`.Options`.
    mode : str, optional
        ``"default"``, or ``"reduce-overhead"``, which is the same.

    Returns
    -------
    compiled : callable
        Takes and returns what the graph does.

    Raises
    ------
    UsageError
        If an option is invalid.
    UnsupportedOperatorError
        If a part cannot be compiled, and the option ``fallback`` is off.
    """
    return Backend(Options.read(options, mode))(module, inputs)


def explain(
    model: Callable[..., Any],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Explanation:
    """Compile a model for a call, and tell what PyTorch runs, and why.

    Parameters
    ----------
    model : torch.nn.Module or callable
    *args, **kwargs
        The arguments to call it with.
    options : mapping, optional
        As for :func:`backend`.

    Returns
    -------
    explanation : Explanation
        Its text lists the graphs.
    """
    explanation = Explanation()
    recorder = Backend(Options.read(options, None), explanation.graphs.append)
    torch._dynamo.reset()
    before = dict(torch._dynamo.utils.counters["graph_break"])
    with torch.no_grad():
        torch.compile(model, backend=recorder)(*args, **kwargs)
    after = torch._dynamo.utils.counters["graph_break"]
    explanation.breaks = [reason for reason in after if after[reason] > before.get(reason, 0)]
    return explanation
