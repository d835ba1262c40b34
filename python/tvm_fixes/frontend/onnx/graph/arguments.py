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
"""The inputs and initializers of a graph, as parameters and constants of a function."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import onnx
import tvm
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype
from tvm import relax
from tvm.ir.supply import UniqueNameSupply

from ....errors import OpNotImplemented
from ....fixes.onnx_importer import QUANTIZED, UNNAMED_DIMS
from ....support import switches
from ..ops.narrow import carrier_of, narrow_inputs
from ..stock import stock_shapes
from .check import check_inputs
from .external import Read
from .inputs import Dim, input_shapes
from .liveness import without_strings
from .parameters import parameter_names

__all__ = ["Arguments", "elements_of"]


def elements_of(tensor: onnx.TensorProto) -> tvm.runtime.Tensor:
    """A copy of the elements of a tensor."""
    return tvm.runtime.tensor(numpy_helper.to_array(tensor).reshape(tuple(tensor.dims)))


@dataclass
class Arguments:
    """The inputs and initializers of the main graph.

    Attributes
    ----------
    shapes : mapping of str to list
        Shapes of inputs, by name; they override those in the graph.
    dtypes : mapping of str to str
        Dtypes of inputs, by name; they override those in the graph.
    sanitize : bool
        Change the names of inputs to valid identifiers.
    """

    shapes: Mapping[str, list[Dim]]
    dtypes: Mapping[str, str]
    sanitize: bool
    _names: UniqueNameSupply = field(default_factory=UniqueNameSupply)

    def parameters(
        self, graph: onnx.GraphProto, read: Read
    ) -> dict[str, tuple[relax.Var, tvm.runtime.Tensor]]:
        """The variable and the elements of each initializer's parameter, by its name."""
        names = parameter_names(graph)
        parameters = {}
        for tensor in without_strings(graph):
            array, name = read(tensor), names[tensor.name]
            parameters[tensor.name] = _variable(name, array.shape, array.dtype), array
            # TVM's converters look for the parameter of an operand by the operand's name.
            self._names.fresh_name(name)
        return parameters

    def inputs(self, graph: onnx.GraphProto) -> dict[str, relax.Var]:
        """The variables of the inputs by name, without initializers, which are inputs in old files.

        Raises
        ------
        tvm.error.OpNotImplemented
            If an input has less than 8 bits, and the fix is disabled.
        """
        initializers = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in initializers]
        is_named = any(isinstance(dim, str) for dims in self.shapes.values() for dim in dims)
        if is_named or switches.enabled(UNNAMED_DIMS):
            shapes = input_shapes(graph, self.shapes)
        else:
            shapes = stock_shapes(inputs) | dict(self.shapes)
        check_inputs(graph)
        narrow = narrow_inputs(graph)
        if narrow and not switches.enabled(QUANTIZED):
            raise OpNotImplemented(f"inputs of less than 8 bits: {', '.join(narrow)}")
        dtypes = dict(self.dtypes) | {name: carrier_of(dtype) for name, dtype in narrow.items()}
        variables = {}
        for value in inputs:
            shape = shapes.get(value.name)
            if shape is None:
                warnings.warn(
                    f"Input {value.name} has unknown rank. "
                    "Specifying a static shape may improve performance",
                    stacklevel=2,
                )
            name = self._identifier(value.name) if self.sanitize else value.name
            dtype = dtypes.get(value.name) or _dtype_of(value)
            variables[value.name] = _variable(name, shape, dtype)
        return variables

    def _identifier(self, name: str) -> str:
        """A valid identifier that no other parameter has."""
        if not name:
            return str(self._names.fresh_name("empty_"))
        valid = name.replace(".", "_")
        starts_well = valid[0].isalpha() or valid[0] == "_"
        valid = str(self._names.fresh_name(valid if starts_well else f"input_{valid}"))
        if valid != name:
            warnings.warn(f"Renaming name {name} to {valid}", stacklevel=2)
        return valid


def _variable(name: str, shape: Collection[Dim] | None, dtype: str | None) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def _dtype_of(value: onnx.ValueInfoProto) -> str | None:
    element_type = value.type.tensor_type.elem_type
    return str(tensor_dtype_to_np_dtype(element_type)) if element_type else None
