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
"""ONNX models of one node, run by ONNX Runtime and by TVM."""

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import compose, helper, parser
from onnx.reference import ReferenceEvaluator
from tvm import relax

from helpers.grids import thinned
from helpers.models import onnx_model
from helpers.relax_modules import UNOPTIMIZED_CPU, call, cpu, run
from tvm_fixes import verify

Arrays = Mapping[str, np.ndarray]


def node_model(
    operator: str,
    inputs: Arrays,
    attributes: Mapping[str, object] | None = None,
    *,
    constants: Arrays | None = None,
    operands: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    outputs: Mapping[str, tuple[str, int]] | None = None,
    opset: int = 18,
    domain: str = "",
) -> onnx.ModelProto:
    """A model of one node named ``node``, from `inputs` and `constants` to ``y``.

    Parameters
    ----------
    inputs, constants : mapping of str to np.ndarray
        Operands that are inputs and initializers.
    operands : sequence of str, optional
        The node's operands; by default the inputs, then the constants.
    shapes : mapping, optional
        The declared input shapes; by default those of the arrays.
    outputs : mapping, optional
        Dtype and rank of each output by name; by default ``y`` has the type of the first input.
    domain : str
        The domain of the operator; the model imports version 1 of it.
    """
    constants, shapes = constants or {}, shapes or {}
    element = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in inputs.items()}
    first = next(iter(inputs.values()))
    outputs = outputs or {"y": (str(first.dtype), first.ndim)}
    node = helper.make_node(
        operator,
        operands or [*inputs, *constants],
        list(outputs),
        name="node",
        domain=domain,
        **(attributes or {}),
    )
    model = onnx_model(
        [node],
        [(name, element[name], shapes.get(name, a.shape)) for name, a in inputs.items()],
        [
            (name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [None] * rank)
            for name, (dtype, rank) in outputs.items()
        ],
        dict(constants),
        opset=opset,
    )
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def side_by_side(models: Mapping[str, onnx.ModelProto]) -> onnx.ModelProto:
    """Merge models of one opset into one with all outputs, which builds faster.

    All names except dims get the model's name and ``case_`` as a prefix.
    """
    graph = onnx.GraphProto(name="side_by_side")
    for name, model in models.items():
        part = compose.add_prefix(model, re.sub(r"\W", "_", f"case_{name}_")).graph
        graph.node.extend(part.node)
        graph.input.extend(part.input)
        graph.output.extend(part.output)
        graph.initializer.extend(part.initializer)
    whole = helper.make_model(graph, opset_imports=next(iter(models.values())).opset_import)
    whole.ir_version = max(model.ir_version for model in models.values())
    return whole


def text_model(text: str, opset: int = 18) -> onnx.ModelProto:
    """The model of a graph in ONNX's text form, ``(float[n] x) => (float[n] y) { ... }``."""
    return parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> graph {text}')


def branches() -> onnx.ModelProto:
    """A model with a condition: both branches compute an exponential, and one negates it."""
    return parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        branches (float[64] x, bool[1] c) => (float[64] y) {
            y = If (c) <
                then_branch = yes () => (float[64] t) { t = Exp(x) },
                else_branch = no () => (float[64] f) { e = Exp(x) f = Neg(e) }
            >
        }"""
    )


def onnx_runtime(
    model: onnx.ModelProto, *inputs: np.ndarray, optimize: bool = True
) -> list[np.ndarray]:
    """The outputs of `model` in ONNX Runtime, with inputs in order."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def rejected_by_onnx_runtime(model: onnx.ModelProto, *inputs: np.ndarray) -> bool:
    try:
        onnx_runtime(model, *inputs)
    except Exception:  # its exceptions have no common base class
        return True
    return False


def imported_and_run(
    from_onnx: Callable[[onnx.ModelProto], tvm.IRModule],
    model: onnx.ModelProto,
    *inputs: np.ndarray,
    optimize: bool = True,
) -> list[np.ndarray]:
    """The outputs of `model` in TVM, after a verification without errors."""
    mod = from_onnx(model)
    verify(mod).raise_if_errors()
    result = run(mod, *inputs, target=None if optimize else UNOPTIMIZED_CPU)
    return result if isinstance(result, list) else [result]


def assert_as_onnx_runtime(
    from_onnx: Callable[[onnx.ModelProto], tvm.IRModule],
    cases: Mapping[str, tuple[onnx.ModelProto, Arrays]],
    rtol: float = 0.0,
    steps: int = 0,
    optimize: bool = True,
) -> None:
    """Import and build `cases` in one module; assert that each equals ONNX Runtime.

    Parameters
    ----------
    cases : mapping
        Models of one opset, without named dims, and their inputs.
    rtol : float
        The tolerance relative to the largest element of a floating-point output; 0 for equality.
    steps : int
        The tolerance of integers.
    optimize : bool
        Whether ONNX Runtime may replace nodes, and LLVM may optimize the kernels.
    """
    cases = thinned(cases)
    model = side_by_side({name: model for name, (model, _) in cases.items()})
    inputs = [array for _, arrays in cases.values() for array in arrays.values()]
    names = [name for name, (part, _) in cases.items() for _ in part.graph.output]
    results = imported_and_run(from_onnx, model, *inputs, optimize=optimize)
    reference = onnx_runtime(model, *inputs, optimize=optimize)
    for name, got, expected in zip(names, results, reference, strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype), name
        if got.dtype.kind in "iu" and steps:
            difference = np.abs(got.astype("int64") - expected.astype("int64"))
            assert difference.max(initial=0) <= steps, name
        elif rtol == 0:
            np.testing.assert_array_equal(got, expected, err_msg=name)
        else:
            atol = rtol * np.abs(expected.astype("float64")).max(initial=0)
            np.testing.assert_allclose(got, expected, rtol=0, atol=atol, err_msg=name)


def assert_as_reference(
    from_onnx: Callable[[onnx.ModelProto], tvm.IRModule],
    cases: Mapping[str, tuple[onnx.ModelProto, Arrays]],
    rtol: float = 0.0,
) -> None:
    """Import and build `cases` in one module; assert that each equals onnx's evaluator.

    Parameters
    ----------
    rtol : float
        The tolerance relative to the largest element of an output; 0 for equality.
    """
    cases = thinned(cases)
    model = side_by_side({name: model for name, (model, _) in cases.items()})
    inputs = [array for _, arrays in cases.values() for array in arrays.values()]
    results = iter(imported_and_run(from_onnx, model, *inputs))
    for name, (part, arrays) in cases.items():
        for expected in ReferenceEvaluator(part).run(None, dict(arrays)):
            got = next(results)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), name
            if got.dtype.kind == "V":  # an 8-bit float
                got, expected = got.astype("float32"), expected.astype("float32")
            atol = rtol * np.abs(expected.astype("float64")).max(initial=0)
            np.testing.assert_allclose(got, expected, rtol=0, atol=atol, err_msg=name)


def assert_rejected(
    from_onnx: Callable[[onnx.ModelProto], tvm.IRModule], model: onnx.ModelProto, message: str
) -> None:
    """Assert that importing `model` fails with a message that contains `message`."""
    with pytest.raises(tvm.error.OpAttributeInvalid) as error:
        from_onnx(model)
    assert message in str(error.value)


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(*shape: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Integers from the whole range of their dtype."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def integers(*shape: int, seed: int = 0, most: int = 4, dtype: str = "float32") -> np.ndarray:
    """Integers up to `most`, with sums and products that are exact in any order."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(dtype)


def program(
    nodes: Mapping[str, tuple],
    inputs: Mapping[str, tuple[str, Sequence[int | str | None]]],
    constants: Arrays | None = None,
    outputs: Mapping[str, str] | Sequence[str] = ("y",),
    opset: int = 17,
) -> onnx.ModelProto:
    """Build a model from `nodes`: (operator, operands[, attributes]) by result name.

    Parameters
    ----------
    nodes : mapping
        The nodes in order; each is named after its results, separated by commas.
    inputs : mapping
        Dtype and shape by name.
    outputs : mapping or sequence of str
        Dtypes by name; a sequence of names means float32.
    """
    if not isinstance(outputs, Mapping):
        outputs = dict.fromkeys(outputs, "float32")
    element = lambda dtype: helper.np_dtype_to_tensor_dtype(np.dtype(dtype))  # noqa: E731
    return onnx_model(
        [
            helper.make_node(
                operator, operands, results.split(","), name=results, **dict(*attributes)
            )
            for results, (operator, operands, *attributes) in nodes.items()
        ],
        [(name, element(dtype), shape) for name, (dtype, shape) in inputs.items()],
        [(name, element(dtype), None) for name, dtype in outputs.items()],
        dict(constants or {}),
        opset=opset,
    )


def assert_follows_onnx_runtime(
    from_onnx: Callable[[onnx.ModelProto], tvm.IRModule],
    model: onnx.ModelProto,
    *runs: Sequence[np.ndarray],
    pipeline: str = "default",
    rtol: float = 0.0,
) -> None:
    """Assert that one build of `model` equals ONNX Runtime for the inputs of each of the `runs`.

    The verifier finds no error in it.

    Inputs that ONNX Runtime rejects must fail a runtime check.

    Parameters
    ----------
    rtol : float
        The tolerance relative to the largest element of an output; 0 for equality.
    """
    mod = from_onnx(model)
    verify(mod).raise_if_errors()
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline), tvm.cpu())
    for inputs in runs:
        name = f"of {[array.shape if array.dtype.kind == 'f' else array for array in inputs]}"
        if rejected_by_onnx_runtime(model, *inputs):
            with pytest.raises(RuntimeError, match="match_cast error"):
                call(vm, "main", *inputs)
            continue
        results = call(vm, "main", *inputs)
        results = results if isinstance(results, list) else [results]
        for output, got, expected in zip(
            model.graph.output, results, onnx_runtime(model, *inputs), strict=True
        ):
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), output.name + name
            if rtol == 0:
                np.testing.assert_array_equal(got, expected, err_msg=output.name + name)
            else:
                atol = rtol * np.abs(expected).max(initial=0)
                np.testing.assert_allclose(got, expected, 0, atol, err_msg=output.name + name)
