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
"""Write saved Relay programs by hand, in the form of one version of TVM."""

import base64
import json
import struct
from collections.abc import Sequence

import numpy as np

TENSOR_MAGIC = 0xDD5E40F096B4A13F
_CODES = {"i": 0, "u": 1, "f": 2, "b": 1}


def tensor_blob(array: np.ndarray) -> bytes:
    """The bytes of one saved tensor."""
    bits = 1 if array.dtype.kind == "b" else array.dtype.itemsize * 8
    head = struct.pack(
        "<QQiiiBBH", TENSOR_MAGIC, 0, 1, 0, array.ndim, _CODES[array.dtype.kind], bits, 1
    )
    shape = struct.pack(f"<{array.ndim}q", *array.shape)
    return head + shape + struct.pack("<q", array.nbytes) + array.tobytes()


class SavedGraph:
    """The nodes of a text of ``tvm.ir.save_json``; each method adds some and returns an index.

    Parameters
    ----------
    version : str
        The version of TVM, such as "0.6.0"; it decides type keys and fields.
    """

    def __init__(self, version: str = "0.19.0"):
        self.version = version
        self.is_old = version.startswith("0.6")
        self.nodes: list[dict] = [{"type_key": ""}]
        self.tensors: list[str] = []
        self.strings: dict[str, int] = {}

    def text(self, root: int) -> str:
        """The whole text."""
        document = {
            "root": root,
            "nodes": self.nodes,
            "b64ndarrays": self.tensors,
            "attrs": {"tvm_version": self.version},
        }
        return json.dumps(document)

    def add(self, type_key: str, **members: object) -> int:
        """Add a node with these members, such as "data"."""
        self.nodes.append({"type_key": type_key, **members})
        return len(self.nodes) - 1

    def node(self, type_key: str, **fields: object) -> int:
        """Add a node with these fields, stored as text."""
        return self.add(type_key, attrs={name: str(value) for name, value in fields.items()})

    def expr(self, kind: str, **fields: object) -> int:
        """Add a node of Relay's, with the fields that every expression has."""
        device = {} if int(self.version.split(".")[1]) < 9 else {"virtual_device_": 0}
        key = kind if kind == "GlobalVar" and not self.is_old else f"relay.{kind}"
        return self.node(key, _checked_type_=0, span=0, **device, **fields)

    def name(self, text: str) -> int | str:
        """A name: in TVM 0.6 the text, later a node."""
        if self.is_old:
            return text
        if text not in self.strings:
            self.strings[text] = self.string(text)
        return self.strings[text]

    def string(self, text: str) -> int:
        """Add a string."""
        if text.isprintable() and text.isascii():
            return self.add("runtime.String", **({"repr_str": text} if text else {}))
        data = text.encode()
        encoded = base64.b64encode(struct.pack("<Q", len(data)) + data).decode()
        return self.add("runtime.String", repr_b64=encoded)

    def array(self, elements: Sequence[int]) -> int:
        """Add an array of nodes."""
        return self.add("Array", **({"data": list(elements)} if elements else {}))

    def integer(self, value: int, dtype: str = "int32") -> int:
        """Add a number."""
        return self.node("IntImm", dtype=dtype, value=value, span=0)

    def integers(self, values: Sequence[int]) -> int:
        """Add an array of numbers."""
        return self.array([self.integer(value) for value in values])

    def map(self, entries: dict[str, int]) -> int:
        """Add a map with strings as keys."""
        key = "StrMap" if self.is_old else "Map"
        return self.add(key, keys=list(entries), data=list(entries.values()))

    def any_dim(self) -> int:
        """Add the extent ``?``."""
        return self.node("Any" if self.is_old else "tir.Any", dtype="int32", span=0)

    def dim_var(self, name: str) -> int:
        """Add a named extent."""
        key = "Variable" if self.is_old else "tir.Var"
        return self.node(key, dtype="int32", name=self.name(name), type_annotation=0, span=0)

    def tensor_type(self, shape: Sequence[int], dtype: str = "float32") -> int:
        """Add the type of a tensor; the shape holds nodes."""
        return self.node("relay.TensorType", shape=self.array(shape), dtype=dtype, span=0)

    def static_type(self, shape: Sequence[int], dtype: str = "float32") -> int:
        """Add the type of a tensor of a known shape."""
        return self.tensor_type([self.integer(extent) for extent in shape], dtype)

    def type_key(self, name: str) -> str:
        """The key of a type, which TVM 0.6 prefixes."""
        return f"relay.{name}" if self.is_old else name

    def var(self, name: str, type_annotation: int = 0) -> int:
        """Add a variable."""
        vid = self.node("relay.Id", name_hint=self.name(name))
        return self.expr("Var", vid=vid, type_annotation=type_annotation)

    def op(self, name: str) -> int:
        """Add an operator."""
        if self.is_old:
            return self.add("relay.Op", global_key=name)
        return self.add("Op", repr_str=name)

    def constant(self, array: np.ndarray) -> int:
        """Add a constant."""
        self.tensors.append(base64.b64encode(tensor_blob(array)).decode())
        return self.expr("Constant", data=len(self.tensors) - 1)

    def call(self, op: int | str, args: Sequence[int], attrs: int = 0) -> int:
        """Add a call."""
        op = self.op(op) if isinstance(op, str) else op
        return self.expr("Call", op=op, args=self.array(args), attrs=attrs, type_args=0)

    def function(self, params: Sequence[int], body: int, **fields: object) -> int:
        """Add a function."""
        given = {"ret_type": 0, "type_params": self.array([]), "attrs": 0} | fields
        return self.expr("Function", params=self.array(params), body=body, **given)

    def module(self, functions: dict[str, int], types: dict[int, int] | None = None) -> int:
        """Add a module."""
        names = {
            self.expr("GlobalVar", name_hint=self.name(name)): f for name, f in functions.items()
        }
        later = {} if self.is_old else {"attrs": 0, "source_map": 0}
        return self.node(
            "relay.Module" if self.is_old else "IRModule",
            functions=self._pairs(names),
            type_definitions=self._pairs(types or {}),
            global_var_map_=0,
            global_type_var_map_=0,
            **later,
        )

    def _pairs(self, entries: dict[int, int]) -> int:
        data = [index for entry in entries.items() for index in entry]
        return self.add("Map", **({"data": data} if data else {}))
