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
"""The hash and equality of data types, which tvm-ffi's library calls."""

import pytest
import tvm
import tvm.testing
import tvm_ffi

import tvm_fixes  # noqa: F401
from helpers.relax_modules import tensor

pytestmark = pytest.mark.native


@pytest.mark.parametrize("name", ["__any_hash__", "__any_equal__"])
def test_the_functions_are_objects(name):
    """Versions of tvm-ffi expect different results of a raw function, and the same of an object."""
    index = tvm.ir.PrimType.__tvm_ffi_type_info__.type_index
    assert isinstance(tvm_ffi.core._lookup_type_attr(index, name), tvm_ffi.Function)


def test_data_types_are_keys():
    names = ["float32", "int32", "float32x4", "bool"]
    found = tvm.runtime.convert({tvm.ir.PrimType(name): name for name in names})
    assert [found[tvm.ir.PrimType(name)] for name in names] == names
    assert tvm.ir.PrimType("float16") not in found


def test_each_data_type_is_saved_once():
    """The writer looks up every object in a map of tvm-ffi's library."""
    types = [tvm.ir.PrimType(name) for name in ("float32", "int8", "float32")]
    text = tvm.ir.save_json(tvm.runtime.convert(types))
    assert text.count('"ir.PrimType"') == 2
    assert [str(one.dtype) for one in tvm.ir.load_json(text)] == ["float32", "int8", "float32"]


def test_a_typed_variable_is_saved():
    variable = tvm.relax.Var("x", tensor(2, 3))
    loaded = tvm.ir.load_json(tvm.ir.save_json(variable))
    tvm.ir.assert_structural_equal(loaded, variable, map_free_vars=True)


if __name__ == "__main__":
    tvm.testing.main()
