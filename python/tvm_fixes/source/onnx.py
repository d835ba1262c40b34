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
"""ONNX models."""

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import tvm

from ..errors import CompileError, UnsupportedOperatorError, UsageError, summarize
from ..runtime.manifest import Dim, TensorSpec
from ..support.file_kinds import kind_of
from ..support.memory import map_bytes, tensor_in
from ..support.tensors import array_of, nbytes_of, raw_bytes
from ..support.threads import thread_count
from .base import ModelValue, Reference, Shapes, Source, import_extra, local_of
from .rounding import moved, steps_of

if TYPE_CHECKING:
    import onnx


# Beginnings of the names of operators whose float operands are exact: a scale decides where a
# lattice has ties, or the extents of the result.
_EXACT_OPERATORS = ("QuantizeLinear", "DequantizeLinear", "QLinear", "QGemm", "Resize", "Upsample")

# Limit of the weights that a run of the reference copies to move them by rounding errors.
_MAX_MOVED_BYTES = 1 << 30

# Each thread of ONNX Runtime quantizes the states of its part of the batch in a range of its own.
_PER_THREAD_OPERATORS = frozenset({("com.microsoft", "DynamicQuantizeLSTM")})

# The relative error of a kernel that computes in float32, before its result is rounded to 16 bits.
_KERNEL_ERROR = 2.0**-22

_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"


def read_model(path: Path) -> "onnx.ModelProto":
    """Read an ONNX file, without its external weights.

    Raises
    ------
    CompileError
        If it is not an ONNX file.
    """
    import onnx

    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:
        kind = kind_of(str(path))
        reason = f": it is {kind}" if kind else f" (truncated, or not ONNX): {summarize(error)}"
        raise CompileError(f"{path}: not a readable ONNX file{reason}") from error


class OnnxSource(Source):
    """An ONNX model, with ONNX Runtime as its reference.

    Parameters
    ----------
    model : onnx.ModelProto
        The model.
    name : str
        Its name in messages.
    shapes : mapping of str to sequence of int, optional
        Shapes of its inputs, which override the declared ones.
    path : Path, optional
        The file that it was read from; its folder may contain external weights.
    """

    def __init__(
        self,
        model: "onnx.ModelProto",
        name: str,
        shapes: Shapes | None = None,
        path: Path | None = None,
    ):
        from ..frontend.onnx.graph.check import check_model
        from ..frontend.onnx.graph.external import check_inside
        from ..frontend.onnx.graph.inputs import input_dims
        from ..frontend.onnx.graph.order import in_order

        super().__init__(name, shapes)
        self._path = path
        self._is_part = False
        self._mapped: dict[str, tvm.runtime.Tensor] = {}
        self._ranges: dict[str, int] | None = None
        if not model.ir_version or not model.opset_import or not model.graph.output:
            raise CompileError(f"{name}: incomplete ONNX model: no IR version, opset or outputs")
        try:
            check_model(model)
            model = self._model = in_order(model)
            if path is None:
                check_inside(model)
        except tvm.error.OpNotImplemented as error:
            raise UnsupportedOperatorError(f"{name}: {summarize(error)}") from error
        except ValueError as error:
            raise CompileError(f"{name}: {summarize(error)}") from error
        initializers = {tensor.name for tensor in model.graph.initializer}
        dims = input_dims(model.graph, {})
        self.inputs = tuple(
            self._spec(value, dims) for value in model.graph.input if value.name not in initializers
        )
        self.output_names = tuple(value.name for value in model.graph.output)
        self.parameter_bytes = sum(
            _onnx_bytes(tensor) for _, tensor in _onnx_constants(model.graph)
        )
        self.check_shapes()

    @classmethod
    def load(cls, path: Path, shapes: Shapes | None = None) -> "OnnxSource":
        """Read the model in `path` and its external weights."""
        from ..frontend.onnx.graph.external import files_of, load_small

        model = read_model(path)
        files = files_of(model)
        try:
            load_small(model, path.parent)
        except Exception as error:
            raise CompileError(f"{path}: {summarize(error)}") from error
        source = cls(model, path.name, shapes, path)
        source.files_beside = files
        return source

    def whole_model(self) -> "onnx.ModelProto":
        """The model with its external weights, in memory."""
        import onnx
        from onnx.external_data_helper import uses_external_data

        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        for tensor in model.graph.initializer:
            if uses_external_data(tensor):
                array = array_of(self._tensor(tensor))
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        return model

    def _spec(self, value: "onnx.ValueInfoProto", dims: Mapping[str, Sequence[Dim]]) -> TensorSpec:
        import onnx

        from ..frontend.onnx.ops.narrow import narrow_dtype

        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value") or "nothing"
            raise UnsupportedOperatorError(
                f"input {value.name!r} of {self.name}: expected a tensor, got "
                f"{kind.removesuffix('_type')}"
            )
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "O":
            raise UnsupportedOperatorError(
                f"input {value.name!r} of {self.name}: tensors of strings are not supported"
            )
        if narrow_dtype(tensor.elem_type) is not None:
            raise UnsupportedOperatorError(
                f"input {value.name!r} of {self.name}: tensors of {dtype.name} are not supported; "
                "from_onnx imports them"
            )
        if not tensor.HasField("shape"):
            return TensorSpec(value.name, None, dtype.name)
        return TensorSpec(value.name, tuple(dims[value.name]), dtype.name)

    def to_relax(self) -> tvm.IRModule:
        from ..frontend.onnx.graph.importer import import_model

        shapes = self._chosen_shapes()
        # TVM prints the operands of unsupported nodes.
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                mod = import_model(self._model, shapes, read=self._tensor)
            except Exception as error:
                raise self._explain(error) from error
        self._note_dims(mod["main"])
        return mod

    def _note_dims(self, main: tvm.relax.Function) -> None:
        """Replace dims of inputs that the importer found to be equal."""
        equal_dims: dict[str, Dim] = {}
        for spec, param in zip(self.inputs, main.params, strict=False):
            for dim, extent in zip(
                self.chosen_shape(spec) or (), param.ty.shape or (), strict=True
            ):
                if isinstance(dim, str) and isinstance(extent, tvm.tirx.Var | tvm.tirx.IntImm):
                    is_static = isinstance(extent, tvm.tirx.IntImm)
                    equal_dims[dim] = int(extent) if is_static else str(extent.name)

        def replaced(shape: Sequence[Dim]) -> tuple[Dim, ...]:
            return tuple(equal_dims.get(dim, dim) if isinstance(dim, str) else dim for dim in shape)

        self.inputs = tuple(
            spec if spec.shape is None else replace(spec, shape=replaced(spec.shape))
            for spec in self.inputs
        )
        self.shapes = {name: replaced(shape) for name, shape in self.shapes.items()}
        for name, size in list(self._given_sizes.items()):
            dim = equal_dims.get(name, name)
            if isinstance(dim, str):
                self._given_sizes[dim] = size
            elif dim != size:
                raise UsageError(f"dim {name!r} of {self.name}: expected size {dim}, got {size}")

    def to_stock_relax(self) -> tvm.IRModule:
        from tvm.relax.frontend.onnx import from_onnx

        return from_onnx(self._model, self._chosen_shapes(), keep_params_in_input=False)

    def _tensor(self, proto: "onnx.TensorProto") -> tvm.runtime.Tensor:
        """The tensor of an initializer; external data is memory-mapped."""
        import onnx
        from onnx.external_data_helper import uses_external_data

        from ..frontend.onnx.graph.external import place_of

        if not uses_external_data(proto):
            array = onnx.numpy_helper.to_array(proto)
            return self._keep(tvm.runtime.tensor(array.reshape(tuple(proto.dims))))
        if proto.name not in self._mapped:
            assert self._path is not None
            dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type).name
            size = nbytes_of(proto.dims, dtype)
            path, offset = place_of(proto, size, self._path.parent)
            with open(path, "rb") as file:
                data = map_bytes(file.fileno(), offset, size)
            self._mapped[proto.name] = tensor_in(data, proto.dims, dtype, self._scratch)
        return self._mapped[proto.name]

    def _chosen_shapes(self) -> dict[str, list[Any]]:
        if not self.shapes:
            return {}
        chosen = {spec.name: self.chosen_shape(spec) for spec in self.inputs}
        return {name: list(shape) for name, shape in chosen.items() if shape is not None}

    def _can_split(self, symbol: str, dims: Sequence[Dim]) -> bool:
        # Exporters give one name to dims that differ. Names are chosen; two sizes are a mistake.
        named = [spec.name for spec in self.inputs if symbol in (spec.shape or ())]
        is_name = any(isinstance(dim, str) for dim in dims)
        return is_name and all(name in self.shapes for name in named)

    def chosen_shape(self, spec: TensorSpec) -> tuple[Dim, ...] | None:
        from ..frontend.onnx.graph.inputs import evaluate_dim

        shape = super().chosen_shape(spec)
        if shape is None:
            return None
        sizes = {symbol: dim for symbol, dim in self._given() if isinstance(dim, int)}
        dims = list(shape)
        for axis, dim in enumerate(shape):
            # Evaluate an expression if the sizes of its dims are known.
            with contextlib.suppress(KeyError):
                dims[axis] = evaluate_dim(dim, sizes) if isinstance(dim, str) else dim
        return tuple(dims)

    def _sizes(self, *, default: bool = False) -> dict[str, int]:
        from ..frontend.onnx.graph.inputs import evaluate_dim, symbol_names

        sizes = super()._sizes(default=default)
        symbols = {name: sizes[name] for name in symbol_names(sizes)}
        return {name: evaluate_dim(name, symbols) for name in sizes}

    def _draw(
        self, rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Draw indices from all rows of the weights that they select from."""
        from .onnx_values import index_ranges

        if self._ranges is None:
            self._ranges = index_ranges(self._model.graph)
        high = max(self._ranges.get(spec.name, 2) - 1, 0)
        return self._example.draw(rng, spec, shape, 0, high)

    def _explain(self, error: Exception) -> CompileError:
        import onnx

        from ..frontend.onnx.graph.check import describe_node

        text = summarize(error)
        # A converter's message has a reason after the name of the node.
        if isinstance(error, tvm.error.OpNotImplemented) and "': " not in text:
            names = set(text.replace(",", " ").split())
            nodes = [
                node
                for node in self._model.graph.node
                if node.op_type in names or f"{node.domain}.{node.op_type}" in names
            ]
            missing = {node.op_type for node in nodes}
        else:
            node = local_of(error, "node", onnx.NodeProto)
            nodes, missing = [] if node is None else [node], set()
        return self._import_error(
            error, missing=missing, nodes=[describe_node(node) for node in nodes]
        )

    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        import onnx

        for name, tensor in _onnx_constants(self._model.graph):
            if name in self._mapped:
                yield name, raw_bytes(self._mapped[name])
            elif tensor.data_type != onnx.TensorProto.STRING:
                array = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor))
                yield name, array.reshape(-1).view("uint8")

    def values(self, inputs: list[np.ndarray]) -> list[ModelValue]:
        from .onnx_values import onnx_values

        shapes = {s.name: value.shape for s, value in zip(self.inputs, inputs, strict=True)}
        return list(onnx_values(self._model, shapes))

    def with_outputs(self, names: Sequence[str]) -> "OnnxSource":
        from .onnx_values import with_onnx_outputs

        part = OnnxSource(with_onnx_outputs(self._model, names), self.name, self.shapes, self._path)
        part._is_part, part._is_static = True, self._is_static
        return part

    def save_in(self, folder: Path) -> Path:
        import onnx
        from onnx.external_data_helper import load_external_data_for_model

        whole = onnx.ModelProto()
        whole.CopyFrom(self._model)
        if self._path is not None:
            load_external_data_for_model(whole, str(self._path.parent))
        onnx.save(whole, folder / "model.onnx")
        return folder / "model.onnx"

    @property
    def model(self) -> "onnx.ModelProto":
        """The model, without its large external weights."""
        return self._model

    def reference(self) -> tuple[str, Reference]:
        name, session = self.session(configure=self._limit_threads)
        return name, partial(self._run, session)

    def _limit_threads(self, options: Any) -> None:
        """Run with one thread if outputs depend on their number."""
        if is_split_among_threads(self._model):
            options.intra_op_num_threads = 1

    def _run(self, session: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        names = [spec.name for spec in self.inputs]
        outputs: list[Any] = session.run(
            list(self.output_names), dict(zip(names, inputs, strict=True))
        )
        # It returns the bytes of a float8, and rejects other types that NumPy lacks.
        floats = {o.name for o in session.get_outputs() if o.type == "tensor(float8e4m3fn)"}
        for place, name in enumerate(self.output_names):
            if name in floats and outputs[place].dtype == np.uint8:
                outputs[place] = outputs[place].view(ml_dtypes.float8_e4m3fn)
        for place, classes in self._classes_of_maps.items():
            rows = [[row[name] for name in classes] for row in outputs[place]]
            outputs[place] = np.array(rows, "float32").reshape(len(rows), len(classes))
        return outputs

    @cached_property
    def _classes_of_maps(self) -> dict[int, list[int | str]]:
        """The keys of the outputs that are maps, by place; a compiled model returns the values."""
        from .onnx_values import classes_of_maps

        classes = classes_of_maps(self._model)
        return {
            place: classes[name] for place, name in enumerate(self.output_names) if name in classes
        }

    def rounded_reference(self, seed: int) -> Reference:
        onnxruntime = _onnxruntime()
        rng, steps = np.random.default_rng(seed), steps_of(seed)
        # The optimizer transposes weights, but not the values that replace them.
        moves_weights = not seed % 2 and steps > 0 and self.parameter_bytes <= _MAX_MOVED_BYTES

        def configure(options: Any) -> None:
            self._limit_threads(options)
            if not seed % 2:
                level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
                options.graph_optimization_level = level
            for tensor in movable_weights(self._model.graph) if moves_weights else ():
                array = moved(self._array(tensor), rng, steps)
                value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                    array, tensor.data_type
                )
                options.add_initializer(tensor.name, value)
                borrowed.append(value)

        borrowed: list[Any] = []  # the session does not copy the weights
        _, session = self.session(configure=configure)

        def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
            assert borrowed is not None
            return self._run(session, [moved(value, rng, steps) for value in inputs])

        return run

    def session(
        self,
        variant: "onnx.ModelProto | None" = None,
        configure: Callable[[Any], None] = lambda options: None,
    ) -> tuple[str, Any]:
        """Open a session of ONNX Runtime.

        Parameters
        ----------
        variant : onnx.ModelProto, optional
            A model with the same weights to open instead.
        configure : callable
            Sets further ``onnxruntime.SessionOptions``.

        Returns
        -------
        name : str
            The name and version of ONNX Runtime.
        session : onnxruntime.InferenceSession
        """
        onnxruntime = _onnxruntime()
        # Prefer the path: only a file can have external weights and exceed 2 GiB.
        in_memory = self._path is None or self._is_part or variant is not None
        model = (variant or self._model).SerializeToString() if in_memory else str(self._path)

        def session_of(precise: str) -> Any:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            # Its default pool ignores TVM's number.
            options.intra_op_num_threads = thread_count()
            if in_memory and self._path is not None:
                options.add_session_config_entry(_EXTERNAL_FOLDER, str(self._path.parent))
            options.add_session_config_entry("session.x64quantprecision", precise)
            configure(options)
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        # Without this option, products of signed weights saturate on a CPU without VNNI.
        try:
            session = session_of("1")
        except Exception:  # its exceptions have no common base class; some models need the default
            session = session_of("0")
        return f"ONNX Runtime {onnxruntime.__version__}", session

    def _run_in_float64(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        from .onnx_float64 import run_in_float64

        names = [spec.name for spec in self.inputs]
        named = dict(zip(names, inputs, strict=True))
        return run_in_float64(self._model, named, self.output_names, self._array)

    def _run_stepwise(self, inputs: list[np.ndarray], seed: int) -> list[np.ndarray] | None:
        from .onnx_float64 import run_in_float64
        from .onnx_values import narrow_floats

        dtypes = narrow_floats(self._model)
        if not dtypes:
            return None
        rng = np.random.default_rng(seed)

        def rounded(name: str, result: Any) -> Any:
            if name not in dtypes or not isinstance(result, np.ndarray):
                return result
            noise = rng.uniform(-_KERNEL_ERROR, _KERNEL_ERROR, result.shape) if seed else 0.0
            return (result * (1 + noise)).astype(dtypes[name]).astype("float64")

        names = [spec.name for spec in self.inputs]
        named = dict(zip(names, inputs, strict=True))
        outputs = run_in_float64(self._model, named, self.output_names, self._array, rounded)
        return [
            output.astype(dtypes.get(name, output.dtype))
            for name, output in zip(self.output_names, outputs, strict=True)
        ]

    def _array(self, proto: "onnx.TensorProto") -> np.ndarray:
        """The values of an initializer."""
        import onnx
        from onnx.external_data_helper import uses_external_data

        if uses_external_data(proto):
            return array_of(self._tensor(proto))
        return np.asarray(onnx.numpy_helper.to_array(proto))


def _onnxruntime() -> Any:
    return import_extra("onnxruntime", "the comparison (skip it with --no-compare)")


def is_split_among_threads(model: "onnx.ModelProto") -> bool:
    """Whether the outputs of ONNX Runtime depend on the number of its threads."""
    from ..frontend.onnx.graph.check import nodes_in

    graphs = (model.graph.node, *(function.node for function in model.functions))
    return any(
        (node.domain, node.op_type) in _PER_THREAD_OPERATORS
        for nodes in graphs
        for node in nodes_in(nodes)
    )


def movable_weights(graph: "onnx.GraphProto") -> "Iterator[onnx.TensorProto]":
    """The weights that a rounding error may move: floats, except scales that define a lattice."""
    import onnx

    kinds = onnx.TensorProto
    floats = (kinds.DOUBLE, kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16)
    fixed = {
        name
        for node in graph.node
        if node.op_type.startswith(_EXACT_OPERATORS)
        for name in node.input
    }
    for tensor in graph.initializer:
        if tensor.data_type in floats and tensor.name not in fixed:
            yield tensor


def _onnx_constants(graph: "onnx.GraphProto") -> "Iterator[tuple[str, onnx.TensorProto]]":
    """The constants of a graph and of its subgraphs, with their names."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield ", ".join(node.output), attribute.t
            if attribute.HasField("g"):
                yield from _onnx_constants(attribute.g)


def _onnx_bytes(tensor: "onnx.TensorProto") -> int:
    import onnx

    try:
        itemsize = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:
        return 0
    return math.prod(tensor.dims) * itemsize
