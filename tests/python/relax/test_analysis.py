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
"""Counts of layout transforms and of operators."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import count
from tvm_fixes import _ffi
from tvm_fixes.relax.analysis import activation_transforms, bindings, constant_transforms


def names(mod, find=activation_transforms):
    return [binding.var.name for binding in find(mod)]


def test_input_between_and_output():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 8), "float32")) -> R.Tensor((1, 3, 8, 8), "float32"):
            with R.dataflow():
                a = R.permute_dims(x, [0, 2, 3, 1])
                b = R.nn.relu(a)
                c = R.layout_transform(b, index_map=lambda n, h, w, c: (n, c, h, w))
                d = R.nn.relu(c)
                e = R.permute_dims(d)
                gv = R.permute_dims(e)
                R.output(gv)
            return gv

    assert names(Module) == ["a", "c", "e", "gv"]


def test_constants_and_what_is_computed_from_them():
    kernel = relax.const(np.ones((4, 3, 2, 2), "float32"))

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 2, 2, 3), "float32")) -> R.Tensor((4, 2, 2, 3), "float32"):
            with R.dataflow():
                a = R.permute_dims(kernel, [0, 2, 3, 1])
                b = R.add(R.zeros(R.shape([4, 2, 2, 3]), "float32"), a)
                c = (b, x)
                d = c[0]
                e = R.permute_dims(R.permute_dims(b))
                f = R.add(x, e)
                gv = R.add(f, d)
                R.output(gv)
            return gv

    assert names(Module) == []
    assert len(names(Module, constant_transforms)) == 3
    assert "a" in names(Module, constant_transforms)
    assert names(relax.transform.FoldConstant()(Module), constant_transforms) == []


def test_a_pixel_shuffle_moves_the_data():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 2, 2), "float32")) -> R.Tensor((1, 1, 4, 4), "float32"):
            with R.dataflow():
                a = R.nn.pixel_shuffle(x, 2)
                gv = R.reshape(a, (1, 1, 4, 4))
                R.output(gv)
            return gv

    assert names(Module) == ["a"]


def test_a_field_of_a_tuple_that_holds_an_input_is_an_activation():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((3, 2), "float32"):
            with R.dataflow():
                pair = (x, x)
                field = pair[1]
                gv = R.permute_dims(field)
                R.output(gv)
            return gv

    assert names(Module) == ["gv"]


def test_a_size_known_only_at_run_time():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32")) -> R.Tensor((3, "n"), "float32"):
            n = T.int64()
            with R.dataflow():
                ones = R.ones(R.shape([n, 3]), "float32")
                a = R.permute_dims(ones)
                gv = R.add(a, R.permute_dims(x))
                R.output(gv)
            return gv

    variables = names(Module)
    assert len(variables) == 2
    assert "a" in variables


@pytest.mark.parametrize("num_input, expected", [(1, ["a"]), (2, ["a", "b"]), (None, ["a", "b"])])
def test_parameters_are_weights_where_the_function_says_so(num_input, expected):
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), weight: R.Tensor((2, 3), "float32")) -> R.Tensor(
            (3, 2), "float32"
        ):
            with R.dataflow():
                a = R.permute_dims(x)
                b = R.permute_dims(weight)
                gv = R.add(a, b)
                R.output(gv)
            return gv

    mod = Module
    if num_input is not None:
        mod["main"] = mod["main"].with_attr("num_input", num_input)
    assert names(mod) == expected
    assert names(mod, constant_transforms) == [name for name in ("a", "b") if name not in expected]


def test_branches_and_every_function():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 2)):
            if c:
                a = R.permute_dims(x)
                y = R.nn.relu(a)
            else:
                b = R.permute_dims(x)
                y = R.tanh(b)
            return y

        @R.function
        def other(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            d = R.permute_dims(x)
            return d

    assert sorted(names(Module)) == ["a", "b", "d"]


def test_bindings_come_in_program_order():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 2)):
            @R.function
            def local(p: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
                inner = R.abs(p)
                return inner

            if c:
                a = R.exp(x)
                y = R.negative(a)
            else:
                b = R.tanh(x)
                y = R.sin(b)
            last = R.cos(y)
            return last

    walked = list(bindings(Module["main"]))
    names = [binding.var.name for binding in walked if isinstance(binding.value, relax.Call)]
    operators = [b.value.op.name.split(".")[-1] for b in walked if isinstance(b.value, relax.Call)]
    assert operators == ["abs", "exp", "negative", "tanh", "sin", "cos"]
    assert [names[0], names[1], names[3]] == ["inner", "a", "b"]
    kinds = [type(binding.value) for binding in walked]
    assert kinds.index(relax.Function) == 1  # after what is bound within
    assert kinds.index(relax.If) == 6


def test_convert_layout_leaves_one_at_each_end():
    kernel = relax.const(np.ones((4, 3, 3, 3), "float32"))

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 8), "float32")) -> R.Tensor((1, 4, 6, 6), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, kernel)
                gv = R.nn.relu(y)
                R.output(gv)
            return gv

    converted = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(Module)
    assert count(converted, "relax.permute_dims") == 3  # input, kernel and output
    assert len(activation_transforms(converted)) == 2


@pytest.mark.native
def test_operators_are_counted_in_branches_and_local_functions():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 2)):
            a = R.exp(x)

            @R.function
            def inner(z: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
                b = R.exp(R.tanh(z))
                return b

            if c:
                d = inner(a)
                y = R.exp(d)
            else:
                e = R.permute_dims(a)
                y = R.tanh(e)
            return y

        @R.function
        def other(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            f = R.exp(x)
            return f

    count_operators = _ffi.get("tvm_fixes.analysis.CountOperators")
    counts = {"relax.exp": 3, "relax.tanh": 2, "relax.permute_dims": 1}
    # A call of `inner` is not an operator call, and other functions are not visited.
    assert dict(count_operators(Module["main"])) == counts
    assert dict(count_operators(Module["other"])) == {"relax.exp": 1}
    assert {name: count(Module, name) for name in counts} == counts | {"relax.exp": 4}


if __name__ == "__main__":
    tvm.testing.main()
