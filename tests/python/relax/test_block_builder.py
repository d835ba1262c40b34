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

import gc

import pytest
import tvm
import tvm.testing
from tvm import relax

from tvm_fixes.relax import block_builder
from tvm_fixes.support import switches

X = relax.Var("x", relax.TensorType([2], "float32"))


def fail(builder, name="f", *, is_dataflow=False):
    with pytest.raises(ZeroDivisionError), builder.function(name, [relax.Var("z", X.ty)]):
        if not is_dataflow:
            raise ZeroDivisionError
        with builder.dataflow():
            builder.emit(relax.op.add(X, X))
            raise ZeroDivisionError


@pytest.mark.parametrize("is_dataflow", [False, True])
def test_no_warning_after_an_error(capfd, is_dataflow):
    builder = relax.BlockBuilder()
    fail(builder, is_dataflow=is_dataflow)
    del builder
    gc.collect()
    assert capfd.readouterr().err == ""


def test_no_warning_without_an_output(capfd):
    builder = relax.BlockBuilder()
    with pytest.raises(RuntimeError, match="emit_func_output"), builder.function("f", [X]):
        pass
    del builder
    gc.collect()
    assert capfd.readouterr().err == ""


def test_the_outer_function_keeps_its_bindings():
    builder, expected = relax.BlockBuilder(), relax.BlockBuilder()
    for each in (builder, expected):
        with each.function("main", [X]):
            y = each.emit(relax.op.add(X, X))
            if each is builder:
                fail(each, "inner", is_dataflow=True)
            each.emit_func_output(each.emit(relax.op.nn.relu(y)))
    tvm.ir.assert_structural_equal(builder.get(), expected.get())
    assert relax.BlockBuilder.current() is None


def test_builder_is_usable_after_an_error():
    builder = relax.BlockBuilder()
    fail(builder)
    with builder.function("main", [X]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(X)))
    assert relax.analysis.check_well_formed(builder.get())


def test_fix_is_off(capfd):
    builder = relax.BlockBuilder()
    with switches.without([block_builder.FIX_ID]):
        fail(builder)
    del builder
    gc.collect()
    assert "BlockBuilder destroyed with remaining blocks" in capfd.readouterr().err


if __name__ == "__main__":
    tvm.testing.main()
