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
"""Relay types as Relax types."""

from tvm import relax, tirx

from .... import relay
from ....errors import RelayError


def relax_type(ty: relay.Type, prefix: str = "d", *, symbolic: bool = True) -> relax.Type:
    """Return the Relax type of a value.

    Parameters
    ----------
    ty : relay.Type
        The type of a tensor or of a tuple.
    prefix : str
        The prefix of the names of new symbolic dims.
    symbolic : bool
        Whether each ``?`` becomes a new symbolic dim. Otherwise a tensor with one has no shape.

    Raises
    ------
    RelayError
        If the value is neither a tensor nor a tuple.
    """
    if isinstance(ty, relay.TensorType):
        dims = list(ty.shape)
        dtype = str(ty.dtype)
        if not symbolic and not ty.is_static:
            return relax.TensorType(ndim=len(dims), dtype=dtype)
        shape = [
            dim if isinstance(dim, int) else tirx.Var(f"{prefix}_{i}", "int64")
            for i, dim in enumerate(dims)
        ]
        return relax.TensorType(shape, dtype)
    if isinstance(ty, relay.TupleType):
        return relax.TupleType(
            [
                relax_type(field, f"{prefix}_{i}", symbolic=symbolic)
                for i, field in enumerate(ty.fields)
            ]
        )
    raise RelayError(f"a value of type {ty} cannot cross the boundary of a Relax function")


def is_first_order(ty: relay.Type) -> bool:
    """Return whether values of the type are tensors, or tuples of them."""
    if isinstance(ty, relay.TupleType):
        return all(map(is_first_order, ty.fields))
    return isinstance(ty, relay.TensorType)


def type_of(expr: relay.Expr) -> relay.Type:
    """Return the inferred type of an expression."""
    assert expr.checked_type is not None, "InferType precedes the translation"
    return expr.checked_type
