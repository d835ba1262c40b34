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
"""OneHotEncoder and LabelEncoder of numbers."""

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax, te, tirx

from .....fixes.onnx_importer import ML
from ....dtypes import dtype_of
from ...call import Call, converts
from ..shape_operands import require_all, shaped
from .operands import NUMERIC, array, cast, constant

_KINDS = {"int64s": "int64", "floats": "float32", "strings": "string"}
"""The dtype of the attributes of a LabelEncoder with each suffix."""

_DEFAULTS = {"int64": -1, "float32": -0.0}


@converts("ai.onnx.ml.OneHotEncoder", fix=ML, noted=True)
def convert_one_hot_encoder(call: Call) -> relax.Expr:
    """Convert a OneHotEncoder: floats are truncated, as by a cast to int64.

    With ``zeros=0``, the model fails at run time if an element is not a category.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the categories are strings or missing.
    """
    if call.attributes.get("cats_strings"):
        reason = "expected cats_int64s, because tensors hold no strings: encode the data before"
        raise call.invalid("attribute cats_strings", "given", reason)
    categories = array(call, "cats_int64s", "int64")
    if not len(categories):
        raise call.invalid("attribute cats_int64s", [], "expected one or more categories")
    x = call.operands[0]
    if dtype_of(x) not in NUMERIC:
        raise call.invalid("dtype of X", dtype_of(x), f"expected one of {list(NUMERIC)}")
    keys = categories
    if "float" in dtype_of(x):
        keys = categories.astype("float64")
        if (keys.astype("int64") != categories).any():
            reason = "expected integers that float64 represents"
            raise call.invalid("attribute cats_int64s", categories.tolist(), reason)
        x = call.emit(relax.op.trunc(cast(call, x, "float64")))
    x = call.emit(relax.op.expand_dims(cast(call, x, str(keys.dtype)), -1))
    is_equal = call.emit(relax.op.equal(x, constant(keys)))
    out = cast(call, is_equal, "float32")
    # If categories are equal, the last one wins.
    _, last = np.unique(categories[::-1], return_index=True)
    if len(last) < len(categories):
        is_last = np.zeros(len(categories), "float32")
        is_last[len(categories) - 1 - last] = 1
        out = call.emit(relax.op.multiply(out, constant(is_last)))
    if not call.attributes.get("zeros", 1):
        found = call.emit(relax.op.flatten(call.emit(relax.op.max(out, axis=[-1]))))
        require_all(call, relax.op.greater(found, relax.const(0, "float32")))
    return out


@converts("ai.onnx.ml.LabelEncoder", fix=ML, noted=True)
def convert_label_encoder(call: Call) -> relax.Expr:
    """Convert a LabelEncoder of numbers to numbers.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If keys or values are strings or differ in number, a key is given twice, or a key is NaN,
        which only some runtimes match.
    """
    keys, values = _table(call, "keys"), _table(call, "values")
    if len(keys) != len(values) or not len(keys):
        reason = f"expected as many as values, {len(values)}, and at least one"
        raise call.invalid("number of keys", len(keys), reason)
    if len(np.unique(keys)) != len(keys):
        raise call.invalid("keys", keys.tolist(), "expected distinct keys")
    if (keys != keys).any():
        raise call.invalid("keys", keys.tolist(), "expected no NaN")
    x, _ = shaped(call, 0, "X")
    if dtype_of(x) != str(keys.dtype):
        raise call.invalid("dtype of X", dtype_of(x), f"expected {keys.dtype}, as the keys have")
    place = call.emit(call.builder.call_te(_place, x, constant(keys)))
    outcomes = np.append(values, _default(call, values.dtype))
    return relax.op.take(constant(outcomes), place, axis=0, mode="clip")


def _table(call: Call, name: str) -> np.ndarray:
    """Keys or values, from the attribute of their dtype."""
    given = [kind for kind in (*_KINDS, "tensor") if call.attributes.get(f"{name}_{kind}")]
    if call.attributes.get("classes_strings"):
        given = ["strings"]
    if len(given) != 1:
        raise call.invalid(f"attributes of {name}", given, "expected one of int64s, floats, tensor")
    (kind,) = given
    value = call.attributes.get(f"{name}_{kind}")
    is_text = kind == "strings" or (
        isinstance(value, onnx.TensorProto) and value.data_type == onnx.TensorProto.STRING
    )
    if is_text:
        reason = "expected numbers, because tensors hold no strings: encode the labels outside"
        raise call.invalid(f"attribute {name}_{kind}", "strings", reason)
    if kind == "tensor":
        return numpy_helper.to_array(value).ravel()
    return np.array(value, _KINDS[kind])


def _default(call: Call, dtype: np.dtype) -> np.ndarray:
    """The value of elements that are not keys."""
    given = call.attributes.get("default_tensor")
    if given is not None:
        found = numpy_helper.to_array(given)
        if found.size != 1 or found.dtype != dtype:
            reason = f"expected one element of {dtype}, as the values have"
            raise call.invalid("attribute default_tensor", found, reason)
        return found.ravel()
    kind = "float" if dtype.kind == "f" else "int64"
    return np.array([call.attributes.get(f"default_{kind}", _DEFAULTS.get(str(dtype), 0))], dtype)


def _place(x: te.Tensor, keys: te.Tensor) -> te.Tensor:
    """The position of each element of `x` in `keys`, or the number of keys if it is missing."""
    count = keys.shape[0]
    k = te.reduce_axis((0, count), "k")

    def place(*at: tirx.Var) -> tirx.Expr:
        found = tirx.Select(x(*at) == keys(k), k.var.astype("int64"), count.astype("int64"))
        return te.min(found, axis=k)

    return te.compute(x.shape, place, name="place")
