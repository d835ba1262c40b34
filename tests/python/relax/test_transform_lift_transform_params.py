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
"""tvm_fixes.transform.LiftTransformParams."""

import math
import re

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

import tvm_fixes
from helpers.grids import few
from helpers.lifting import (
    assert_same,
    data,
    function,
    lift,
    machine,
    module,
    prepared_bytes,
    weight_bytes,
)
from helpers.relax_modules import call, count, integers, tensor
from tvm_fixes import transform
from tvm_fixes.errors import UsageError
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import OutcomeKind, run_forked

pytestmark = pytest.mark.native

op = relax.op
Lift = transform.LiftTransformParams
Stock = relax.transform.LiftTransformParams
X = {"x": tensor(4, 4)}
W = {"w": tensor(4, 4)}
WU = {"w": tensor(4, 4), "u": tensor(4, 4)}


def transposed(b, x, w):
    return op.matmul(x, b.emit(op.permute_dims(w)))


def same_as_stock(mod, *args, **options):
    """Assert that our result, without our annotations, equals TVM's."""
    after = lift(mod, *args, **options)
    plain = {
        var: f.without_attr("lift_transform_params") if isinstance(f, relax.Function) else f
        for var, f in after.functions_items()
    }
    tvm.ir.assert_structural_equal(tvm.IRModule(plain), Stock(*args)(mod))
    return after


# Cases that TVM's pass handles correctly


def test_a_transposed_weight():
    mod = module(main=function(X, W, transposed))
    after = same_as_stock(mod)
    assert count(tvm.IRModule({"main": after["main"]}), "relax.permute_dims") == 0
    assert_same(mod, after, data((4, 4)), data((4, 4)))


def test_the_original_parameters_are_recorded():
    n = tirx.Var("n", "int64")
    weights = {"w": tensor(n, 4), "t": relax.TupleType([tensor(2), tensor(3)])}
    mod = module(main=function(X, weights, lambda b, x, w, t: op.matmul(x, op.permute_dims(w))))
    record = lift(mod)["main"].attrs["lift_transform_params"]
    assert record["transform"] == "main_transform_params"
    assert record["num_input"] == 1
    assert list(record["names"]) == ["x", "w", "t"]
    assert [str(text).split(",")[0] for text in record["types"]] == [
        "R.Tensor((4",
        "R.Tensor((n",
        "R.Tuple(R.Tensor((2",
    ]


RIGHT = {
    "an unused weight": (WU, lambda b, x, w, u: op.matmul(x, op.permute_dims(w))),
    "a weight that is read as it is": (W, lambda b, x, w: op.matmul(x, w)),
    "no weights": ({}, lambda b, x: op.add(x, x)),
    "a constant": (
        W,
        lambda b, x, w: op.add(x, b.emit(op.add(w, relax.const(np.ones((4, 4), "float32"))))),
    ),
    "a tuple among weights": (
        {"w": tensor(4, 4), "t": relax.TupleType([tensor(4, 4), tensor(4)])},
        lambda b, x, w, t: op.add(
            op.matmul(x, b.emit(op.permute_dims(w))),
            b.emit(op.add(b.emit(relax.TupleGetItem(t, 0)), b.emit(relax.TupleGetItem(t, 1)))),
        ),
    ),
    "what no parameter is needed for": (
        W,
        lambda b, x, w: op.add(x, b.emit(op.add(w, b.emit(op.ones((4, 4), "float32"))))),
    ),
    "split and concatenated": (
        WU,
        lambda b, x, w, u: op.matmul(
            x,
            b.emit(
                op.concat(
                    [
                        b.emit(relax.TupleGetItem(b.emit(op.split(w, 2, axis=1)), 1)),
                        b.emit(relax.TupleGetItem(b.emit(op.split(u, 2, axis=1)), 0)),
                    ],
                    axis=1,
                )
            ),
        ),
    ),
}


def values_of(types):
    made = []
    for seed, ty in enumerate(types):
        if isinstance(ty, relax.TupleType):
            made.append(values_of(ty.fields))
        else:
            made.append(integers(*map(int, ty.shape), seed=seed).astype(str(ty.dtype)))
    return made


@few(3)
@pytest.mark.parametrize("case", RIGHT)
def test_right_with_the_proper_call(case):
    weights, emit = RIGHT[case]
    mod = module(main=function(X, weights, emit))
    after = lift(mod)
    assert_same(mod, after, data((4, 4)), values_of(weights.values()))
    assert prepared_bytes(after) <= 1.2 * weight_bytes(mod)


@pytest.mark.parametrize("legalized", [False, True])
def test_before_and_after_legalization(legalized):
    mod = module(main=function(X, WU, RIGHT["split and concatenated"][1]))
    before = relax.transform.LegalizeOps()(mod) if legalized else mod
    assert_same(mod, lift(before), data((4, 4)), data((4, 4), (4, 4)))


@pytest.mark.parametrize("where", ["inputs", "weights"])
def test_dynamic_extents(where):
    n = tirx.Var("n", "int64")
    if where == "inputs":
        inputs, weights, shapes = {"x": tensor(n, 4)}, W, [(3, 4), (4, 4)]
    else:
        inputs, weights, shapes = X, {"w": tensor(n, 4)}, [(4, 4), (5, 4)]
    mod = module(main=function(inputs, weights, transposed))
    x, w = data(*shapes)
    assert_same(mod, same_as_stock(mod), [x], [w])


def test_a_symbolic_extent_that_only_a_lifted_weight_has():
    n = tirx.Var("n", "int64")

    def emit(b, x, w):
        summed = b.emit(op.sum(w, axis=0))
        return [op.add(x, summed), b.emit(op.ones((n,), "float32"))]

    mod = module(main=function({"x": tensor(4)}, {"w": tensor(n, 4)}, emit))
    assert_same(mod, lift(mod), data((4,)), data((7, 4)))


def test_unknown_shapes_are_not_lifted():
    rows, columns = tirx.Var("rows", "int64"), tirx.Var("columns", "int64")

    def emit(b, x, w):
        places = b.match_cast(b.emit(op.nonzero(w)), tensor(rows, columns, dtype="int64"))
        total = b.emit(op.sum(b.emit(op.astype(places, "float32"))))
        summed = b.emit(op.sum(w))
        return op.add(b.emit(op.add(x, total)), summed)

    mod = module(main=function({"x": tensor(4)}, {"w": tensor(2, 4)}, emit))
    after = lift(mod)
    main = tvm.IRModule({"main": after["main"]})
    assert count(main, "relax.nonzero") == 1
    assert count(main, "relax.sum") == 1
    assert_same(mod, after, data((4,)), data((2, 4)))


def test_a_branch_and_a_function_without_a_block_are_left():
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", tensor(4, 4)), relax.Var("w", tensor(4, 4))
    flag = relax.Var("flag", relax.TensorType([], "bool"))
    with builder.function("main", [x, flag, w], attrs={"num_input": 2}):
        with builder.dataflow():
            weight = builder.emit_output(op.permute_dims(w))
        branches = [
            relax.SeqExpr([relax.BindingBlock([relax.VarBinding(v, e)])], v)
            for e in map(builder.normalize, (op.matmul(x, weight), op.add(x, w)))
            for v in [relax.Var("r", tensor(4, 4))]
        ]
        builder.emit_func_output(builder.emit(relax.If(flag, *branches)))
    mod = builder.get()
    after = lift(mod, max_growth=2)
    assert prepared_bytes(after) == 2 * weight_bytes(mod)
    for value in (True, False):
        assert_same(mod, after, [data((4, 4))[0], np.array(value)], data((4, 4)))


@pytest.mark.parametrize("shared", [True, ["f", "g"], ["g", "f"], ["g"]])
def test_shared_transforms(shared):
    def emit(b, x, w, u):
        return op.add(op.matmul(x, b.emit(op.permute_dims(w))), u)

    f = function(X, WU, emit, name="f")
    g = function(X, WU, lambda b, x, w, u: op.add(emit(b, x, w, u), x), name="g")
    mod = module(f=f, g=g)
    after = same_as_stock(mod, shared)
    for name in sorted(set(shared) if isinstance(shared, list) else {"f", "g"}):
        weights = data((4, 4), (4, 4))
        assert_same(mod, after, data((4, 4)), weights, name=name, transform_name="transform_params")


def test_stop_lift_params_is_heeded():
    mod = module(
        main=function(
            X, W, lambda b, x, w: op.matmul(x, op.permute_dims(op.builtin.stop_lift_params(w)))
        )
    )
    after = lift(mod)
    assert count(tvm.IRModule({"main": after["main"]}), "relax.permute_dims") == 1
    assert count(after, "relax.builtin.stop_lift_params") == 0
    assert_same(module(main=function(X, W, transposed)), after, data((4, 4)), data((4, 4)))


# Cases that TVM's pass gets wrong


def of_weights(b, w):
    return op.add(w, relax.const(np.float32(1)))


@pytest.mark.parametrize(
    "inputs, weights, emit",
    [
        ({}, W, of_weights),
        (X, W, lambda b, x, w: [op.add(x, w), op.add(w, w)]),
        (X, W, lambda b, x, w: [op.add(x, x), b.emit(op.add(w, w))]),
        ({}, W, lambda b, w: [op.split(w, 2)]),
    ],
    ids=["all", "one of two", "none of the others read it", "a tuple"],
)
def test_row_an_output_that_is_itself_liftable(inputs, weights, emit):
    mod = module(main=function(inputs, weights, emit))
    stock = Stock()(mod)
    if count(tvm.IRModule({"main": stock["main"]}), "relax.split") == 0:
        assert [d.rule for d in tvm_fixes.verify(stock).errors] == ["scope.undefined"]
    after = lift(mod)
    outputs = [call for call in ("relax.split",) if count(mod, call)]
    if not outputs:
        assert_same(mod, after, data(*[(4, 4)] * len(inputs)), data((4, 4)))


def test_a_weight_that_is_returned_as_it_is():
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", tensor(4, 4)), relax.Var("w", tensor(4, 4))
    with builder.function("main", [x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            y = builder.emit_output(op.add(x, x))
        builder.emit_func_output(relax.Tuple([y, w]))
    mod = builder.get()
    assert tvm_fixes.verify(Stock()(mod)).errors
    assert_same(mod, lift(mod), data((4, 4)), data((4, 4)))


def twice_and_not():
    def twice(b, x, w, u):
        return op.add(op.add(x, b.emit(op.add(w, u))), b.emit(op.add(w, u)))

    f = function(X, WU, twice, name="f")
    g = function(X, WU, lambda b, x, w, u: op.multiply(op.add(x, w), u), name="g")
    return module(f=f, g=g)


def test_row_shared_same_expression_twice_in_f_absent_in_g():
    mod = twice_and_not()
    assert [d.rule for d in tvm_fixes.verify(Stock(True)(mod)).errors] == ["scope.undefined"]
    after = lift(mod, True)
    assert count(tvm.IRModule({"transform_params": after["transform_params"]}), "relax.add") == 0
    for name in ("f", "g"):
        weights = data((4, 4), (4, 4))
        assert_same(mod, after, data((4, 4)), weights, name=name, transform_name="transform_params")


def test_shared_the_same_expression_twice_in_both():
    f = twice_and_not()["f"]
    mod = module(f=f, g=f)
    after = lift(mod, True)
    assert prepared_bytes(after, "transform_params") == 64
    assert_same(
        mod,
        after,
        data((4, 4)),
        data((4, 4), (4, 4)),
        name="g",
        transform_name="transform_params",
    )


def test_one_weight_that_is_prepared_twice_is_prepared_once():
    def emit(b, x, w):
        once, again = b.emit(op.permute_dims(w)), b.emit(op.permute_dims(w))
        return op.add(op.matmul(x, once), again)

    mod = module(main=function(X, W, emit))
    assert prepared_bytes(Stock()(mod)) == 2 * weight_bytes(mod)
    after = lift(mod)
    assert prepared_bytes(after) == weight_bytes(mod)
    assert_same(mod, after, data((4, 4)), data((4, 4)))


def with_caller(callee_args=("x", "w"), use=None):
    main = function(X, W, transposed)
    mod = module(main=main)
    builder = relax.BlockBuilder(mod)
    x, w = relax.Var("x", tensor(4, 4)), relax.Var("w", tensor(4, 4))
    with builder.function("caller", [x, w]):
        with builder.dataflow():
            target = mod.get_global_var("main")
            y = builder.emit(use(target, x, w) if use else relax.Call(target, [x, w]))
            y = y if use is None else builder.emit(relax.TupleGetItem(y, 1))
            out = builder.emit_output(op.add(y, x))
        builder.emit_func_output(out)
    return builder.get()


def test_row_another_relax_function_calls_main():
    mod = with_caller()
    x, w = data((4, 4), (4, 4))
    expected = call(machine(mod), "caller", x, w)
    stock = call(machine(Stock()(mod)), "caller", x, w)
    assert np.abs(stock - expected).max() > 0
    after = lift(mod)
    np.testing.assert_array_equal(call(machine(after), "caller", x, w), expected)
    assert_same(mod, after, [x], [w])


def test_another_use_of_main_is_rejected():
    mod = with_caller(use=lambda main, x, w: relax.Tuple([main, x]))
    with pytest.raises(UsageError, match=r"^caller uses main other than in a call, but its"):
        Lift()(mod)


def with_num_input(value):
    return module(main=function(X, W, transposed).with_attr("num_input", value))


@pytest.mark.parametrize("value", [3, -1, 1000])
def test_row_num_input_larger_than_the_parameter_count(value):
    with pytest.raises(UsageError, match=rf"^main: num_input: expected 0 to 2, .* got {value}$"):
        Lift()(with_num_input(value))


def test_row_num_input_larger_than_the_parameter_count_crashes_stock():
    outcome = run_forked(lambda: Stock()(with_num_input(3)), timeout=60)
    assert outcome.kind is not OutcomeKind.VALUE


@pytest.mark.parametrize("value", ["1", 1.0, True, [1]])
def test_num_input_is_an_integer(value):
    with pytest.raises(UsageError, match=r"^main: num_input: expected an integer, got "):
        Lift()(with_num_input(value))


def test_num_input_may_be_one_of_tvms_integers():
    mod = with_num_input(tirx.IntImm("int64", 1))
    tvm.ir.assert_structural_equal(lift(mod), lift(with_num_input(1)))


def test_no_optimization():
    with tvm.transform.PassContext(opt_level=0):
        after = lift(with_num_input(1))
    assert prepared_bytes(after) == 64


def test_written_down_and_read_again():
    after = lift(with_num_input(1))
    tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(after)), after)
    tvm.ir.assert_structural_equal(tvm.script.from_source(after.script()), after)
    lowered = relax.get_pipeline("default")
    with tvm.target.Target("llvm"):
        assert "lift_transform_params" in lowered(after)["main"].attrs


def sub(inputs):
    """``main`` whose function ``sub`` is lifted too."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, tensor(4, 4)) for name in ("xw" if inputs else "w")]
    with builder.function("sub", params, attrs={"num_input": inputs}):
        with builder.dataflow():
            transposed = builder.emit(op.permute_dims(params[-1]))
            out = builder.emit_output(op.add(params[0], transposed))
        callee = builder.emit_func_output(out)
    x, w = relax.Var("x", tensor(4, 4)), relax.Var("w", tensor(4, 4))
    with builder.function("main", [x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            weight = builder.emit(op.add(w, w))
            both = [x, weight] if inputs else [weight]
            out = builder.emit_output(op.matmul(x, builder.emit(relax.Call(callee, both))))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("inputs", [0, 1])
def test_a_lifted_function_that_calls_another(inputs):
    mod = sub(inputs)
    after = lift(mod)
    assert_same(mod, after, data((4, 4)), data((4, 4)))
    assert_same(mod, after, data(*[(4, 4)] * inputs), data((4, 4)), name="sub")


def dequantized(b, x, w, scale):
    return op.matmul(x, b.emit(op.multiply(b.emit(op.astype(w, "float32")), scale)))


def test_row_int8_dequantise():
    weights = {"w": tensor(4, 4, dtype="int8"), "scale": tensor(4, 4)}
    small = {"w": tensor(8, 4, dtype="int8"), "scale": tensor(4)}
    for given_weights, x in ((weights, (4, 4)), (small, (3, 8))):
        mod = module(main=function({"x": tensor(*x)}, given_weights, dequantized))
        after = lift(mod)
        assert prepared_bytes(after) <= weight_bytes(mod)
        values = [
            integers(*map(int, ty.shape)).astype(str(ty.dtype)) for ty in given_weights.values()
        ]
        assert_same(mod, after, data(x), values)
    assert prepared_bytes(Stock()(mod)) == 128
    assert prepared_bytes(lift(mod, max_growth=math.inf)) == 128
    assert weight_bytes(mod) == 48


def test_small_weights_may_grow():
    """Their total growth is limited to the allowance."""
    weights = {f"w{i}": tensor(12, 12, dtype="int8") for i in range(3)}

    def emit(b, x, *ws):
        for w in ws:
            x = b.emit(op.matmul(x, b.emit(op.astype(w, "float16"))))
        return x

    mod = module(main=function({"x": tensor(12, 12, dtype="float16")}, weights, emit))
    of = 144
    assert weight_bytes(mod) == 3 * of
    sizes = {
        allowance: prepared_bytes(lift(mod, max_growth=1, allowance=allowance))
        for allowance in (0, of - 1, of, 2 * of, 3 * of - 1, 3 * of)
    }
    assert sizes == {0: 3 * of, of - 1: 3 * of, of: 4 * of, 2 * of: 5 * of, 431: 5 * of, 432: 864}
    assert prepared_bytes(transform.LiftTransformParams()(mod)) == 6 * of
    large = module(
        main=function({"x": tensor(256, 300)}, {"w": tensor(300, 300, dtype="int8")}, of_int8)
    )
    assert prepared_bytes(transform.LiftTransformParams()(large)) == weight_bytes(large)
    with pytest.raises(UsageError, match="allowance must be >= 0 bytes, got -1"):
        Lift(allowance=-1)


def of_int8(b, x, w):
    return op.matmul(x, b.emit(op.astype(w, "float32")))


def test_repeats_stay_and_their_operands_are_lifted():
    def emit(b, x, w):
        return op.add(x, b.emit(op.broadcast_to(b.emit(op.add(w, w)), (16, 4, 4))))

    mod = module(main=function({"x": tensor(16, 4, 4)}, W, emit))
    after = lift(mod)
    assert prepared_bytes(after) == weight_bytes(mod)
    assert count(tvm.IRModule({"main": after["main"]}), "relax.broadcast_to") == 1
    assert_same(mod, after, data((16, 4, 4)), data((4, 4)))
    same_as_stock(mod, max_growth=math.inf)


def test_unused_expressions_are_not_prepared():
    def emit(b, x, w):
        transposed, added = b.emit(op.permute_dims(w)), b.emit(op.add(w, w))
        b.emit(op.concat([transposed, added], axis=0))
        return [op.add(transposed, x), op.add(w, x)]

    mod = module(main=function(X, W, emit))
    after = lift(mod)
    assert prepared_bytes(after) == weight_bytes(mod)
    assert_same(mod, after, data((4, 4)), data((4, 4)))


def test_row_no_dataflow_block():
    mod = module(main=function(X, W, transposed, dataflow=False))
    with pytest.warns(UserWarning, match=r"main: computations on weights outside dataflow blocks"):
        after = Lift()(mod)
    assert_same(mod, after, data((4, 4)), data((4, 4)))
    converted = relax.transform.ConvertToDataflow(min_size=1)(mod)
    assert count(tvm.IRModule({"main": lift(converted)["main"]}), "relax.permute_dims") == 0


def test_row_no_num_input():
    mod = module(main=function(X, W, transposed).without_attr("num_input"))
    with pytest.warns(UserWarning, match=r"no function has the attribute num_input"):
        tvm.ir.assert_structural_equal(Lift()(mod), mod)


def test_row_a_function_named_transform_params():
    mod = module(my_transform_params=function(X, W, transposed))
    tvm.ir.assert_structural_equal(Stock()(mod)["my_transform_params"], mod["my_transform_params"])
    with pytest.warns(UserWarning, match=r"my_transform_params is not lifted: the suffix"):
        tvm.ir.assert_structural_equal(Lift()(mod), mod)
    with pytest.raises(UsageError, match=r"'my_transform_params': the suffix"):
        Lift(["my_transform_params"])(mod)


@pytest.mark.parametrize(
    "shared, message",
    [
        ([], "shared_transform: expected names of functions, got an empty list"),
        ("main", "shared_transform: expected a bool or names of functions, got 'main'"),
        (1, "shared_transform: expected a bool or names of functions, got 1"),
        (["main", "main"], "shared_transform: duplicate name in ['main', 'main']"),
    ],
)
def test_shared_transform_is_checked(shared, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        Lift(shared)


def test_names_are_checked():
    mod = module(main=function(X, W, transposed), f=function(X, W, transposed))
    mod["f"] = mod["f"].without_attr("num_input")
    with pytest.raises(UsageError, match=r"no function is named 'nothing'; the module has: "):
        Lift(["nothing"])(mod)
    with pytest.raises(UsageError, match=r"'f' has no attribute num_input"):
        Lift(["main", "f"])(mod)
    with pytest.raises(UsageError, match=r"'kernel' is not a Relax function"):
        Lift(["kernel"])(tvm.IRModule({"kernel": tirx.PrimFunc([], tirx.Evaluate(0))}))


def pair(weights, emit=lambda b, x, w, u: op.add(op.matmul(x, op.permute_dims(w)), u)):
    return module(f=function(X, WU, emit), g=function(X, weights, emit))


def test_row_shared_parameters_in_another_order():
    mod = pair({"u": tensor(4, 4), "w": tensor(4, 4)})
    Stock(True)(mod)
    with pytest.raises(
        UsageError, match=r"f and g cannot share a transform: they order their weights di"
    ):
        Lift(True)(mod)
    lift(pair({"other": tensor(4, 4), "names": tensor(4, 4)}), True)


def test_shared_weights_differ():
    with pytest.raises(UsageError, match=r"f and g cannot share a transform: weight 1 is 'u'"):
        Lift(True)(pair({"w": tensor(4, 4), "u": tensor(4)}))
    three = {"w": tensor(4, 4), "u": tensor(4, 4), "v": tensor(4, 4)}
    mod = module(
        f=function(X, WU, lambda b, x, w, u: op.add(x, w)),
        g=function(X, three, lambda b, x, w, u, v: op.add(x, w)),
    )
    with pytest.raises(UsageError, match=r"f and g cannot .*: they have 2 and 3 weights"):
        Lift(True)(mod)


def test_shared_with_match_cast_is_rejected():
    def emit(b, x, w):
        return op.add(x, b.match_cast(w, tensor(4, 4)))

    mod = module(f=function(X, W, emit), g=function(X, W, emit))
    with pytest.raises(UsageError, match=r"f: '.*': functions with match_cast cannot share a"):
        Lift(True)(mod)
    for name in ("f", "g"):
        assert_same(mod, lift(mod), data((4, 4)), data((4, 4)), name=name)


def test_row_bundle_model_params_before():
    mod = module(main=function(X, WU, RIGHT["split and concatenated"][1]))
    bundled = relax.transform.BundleModelParams()(mod)
    stock = Stock()(bundled)["main_transform_params"].params[0].ty
    assert isinstance(stock.fields[0], relax.TupleType)
    after = lift(bundled)
    tvm.ir.assert_structural_equal(
        after["main_transform_params"], lift(mod)["main_transform_params"]
    )
    assert_same(mod, after, data((4, 4)), data((4, 4), (4, 4)))


def test_row_detach_params_after():
    values = [tvm.runtime.tensor(value) for value in data((4, 4))]
    main = function(X, W, transposed).with_attr("params", values)
    mod = module(main=main)
    _, wrong = relax.frontend.detach_params(Stock()(mod))
    assert list(wrong) == ["main"]
    after, params = relax.frontend.detach_params(lift(mod))
    assert list(params) == ["main_transform_params"]
    x = data((4, 4))
    vm = machine(after)
    got = call(vm, "main", *x, *vm["main_transform_params"](params["main_transform_params"]))
    np.testing.assert_array_equal(got, x[0] @ values[0].numpy().T)


def test_a_function_of_the_name_of_a_transform():
    mod = module(main=function(X, W, transposed), main_transform_params=function({}, W, of_weights))
    with pytest.warns(UserWarning, match=r"main_transform_params is not lifted"):
        with pytest.raises(
            UsageError, match=r"^main: the module has a function main_transform_params th"
        ):
            Lift()(mod)


def test_modules_lifted_by_tvm_are_lifted_further():
    mod = module(main=function(X, W, transposed))
    after = lift(Stock()(mod))
    assert_same(mod, after, data((4, 4)), data((4, 4)))
    called = Stock()(with_caller())
    with pytest.raises(UsageError, match=r"caller calls main with 2 arg|caller calls main, whose"):
        Lift()(called)


def test_a_local_function_of_weights_is_rejected():
    def emit(b, x, w):
        y = relax.Var("y", tensor(4, 4))
        v = relax.Var("v", tensor(4, 4))
        body = relax.SeqExpr(
            [relax.BindingBlock([relax.VarBinding(v, b.normalize(op.add(w, w)))])], v
        )
        local = relax.Function([y], body, tensor(4, 4))
        f = b.emit(local, "local")
        return b.emit(relax.Call(f, [x]))

    mod = module(main=function(X, W, emit))
    with pytest.raises(UsageError, match=r"main: the local function 'local' computes with weights"):
        Lift()(mod)


@pytest.mark.parametrize("growth", [-1, math.nan])
def test_growth_is_checked(growth):
    with pytest.raises(UsageError, match=r"max_growth must be >= 0"):
        Lift(max_growth=growth)


def test_the_switch(monkeypatch):
    mod = module(main=function({}, W, of_weights))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "lift-transform-params")
    tvm.ir.assert_structural_equal(Lift()(mod), Stock()(mod))


def test_weights_are_consumed_where_asked_for():
    mod = module(main=function(X, W, transposed))
    config = {"relax.lift_transform_params.consume_params": True}
    for before in (mod, relax.transform.BundleModelParams()(mod)):
        with tvm.transform.PassContext(config=config):
            after = Lift()(before)
        x, w = data((4, 4), (4, 4))
        vm = machine(after)
        weights = tvm_fixes_array([tvm.runtime.tensor(w)])
        prepared = vm["main_transform_params"](weights)
        assert weights[0] is None
        np.testing.assert_array_equal(call(vm, "main", x, *prepared), x @ w.T)


def tvm_fixes_array(values):
    return tvm.runtime.convert(values)


if __name__ == "__main__":
    tvm.testing.main()
