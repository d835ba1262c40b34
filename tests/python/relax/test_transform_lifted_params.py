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
"""BundleModelParams, LazyGetInput, LazySetOutput and others after LiftTransformParams."""

import itertools

import numpy as np
import pytest
import tvm
import tvm.relax.op.vm  # TVM's LazyTransformParams uses it unimported
import tvm.testing
from tvm import relax, tirx

import tvm_fixes
from helpers.grids import few, is_full
from helpers.relax_modules import call, integers, tensor
from tvm_fixes import transform
from tvm_fixes.errors import UsageError
from tvm_fixes.relax.analysis import bindings
from tvm_fixes.support import switches
from tvm_fixes.testing import assert_same_results

pytestmark = pytest.mark.native

op = relax.op
Lift, Bundle = transform.LiftTransformParams, transform.BundleModelParams
X, W, U = integers(2, 4), integers(4, 4, seed=1), integers(2, 4, seed=2)
EXPECTED = X @ W.T + U


def module(is_prepared=True):
    """``x @ w.T + u``, or ``x @ w + u`` with unchanged weights."""
    builder = relax.BlockBuilder()
    types = {"x": tensor(2, 4), "w": tensor(4, 4), "u": tensor(2, 4)}
    x, w, u = (relax.Var(name, ty) for name, ty in types.items())
    with builder.function("main", [x, w, u], attrs={"num_input": 1}):
        with builder.dataflow():
            weight = builder.emit(op.permute_dims(w)) if is_prepared else w
            out = builder.emit_output(op.add(op.matmul(x, weight), u))
        builder.emit_func_output(out)
    return builder.get()


def machine(mod):
    return relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())


def to_tvm(*values):
    return [tvm.runtime.tensor(value) for value in values]


def checked(mod):
    assert not tvm_fixes.verify(mod).errors
    relax.analysis.well_formed(mod)
    return mod


@pytest.mark.parametrize("is_prepared", [False, True])
def test_row_bundle_model_params_after(is_prepared):
    lifted = Lift()(module(is_prepared))
    stock = relax.transform.BundleModelParams()(lifted)["main_transform_params"].params[0].ty
    assert isinstance(stock.fields[0], relax.TupleType)
    mod = checked(Bundle()(lifted))
    tvm.ir.assert_structural_equal(Bundle()(mod), mod)
    vm = machine(mod)
    expected = EXPECTED if is_prepared else X @ W + U
    prepared = vm["main_transform_params"](to_tvm(W, U))
    np.testing.assert_array_equal(call(vm, "main", X, prepared), expected)


def test_bundle_uses_stock_where_nothing_is_bundled():
    before = module()
    for name in (None, "weights"):
        tvm.ir.assert_structural_equal(
            Bundle(name)(before), relax.transform.BundleModelParams(name)(before)
        )


ORDERS = [
    order
    for n in (1, 2, 3)
    for order in itertools.product((Lift, Bundle), repeat=n)
    if Lift in order
]


@few(4)
@pytest.mark.parametrize("order", ORDERS, ids=lambda o: "-".join(p.__name__[:6] for p in o))
def test_lift_and_bundle_in_any_order(order):
    mod = module()
    for make in order:
        mod = checked(make()(mod))
    vm = machine(mod)
    prepared = vm["main_transform_params"](to_tvm(W, U))
    is_bundled = Bundle in order[order.index(Lift) :]
    args = [prepared] if is_bundled else prepared
    np.testing.assert_array_equal(call(vm, "main", X, *args), EXPECTED)


def prepare_lazily(vm, *, copies=True, sets=True):
    """The prepared weights by index, and the requested inputs."""
    prepared, asked = {}, []
    weights = [W, U]

    def get(index, name):
        asked.append((index, name))
        return tvm.runtime.tensor(weights[index])

    def put(index, value):
        prepared[index] = value.numpy()

    callbacks = [tvm.runtime.convert(get)] + ([tvm.runtime.convert(put)] if sets else [])
    result = vm["main_transform_params"](*callbacks)
    if not sets:
        prepared = {index: value.numpy() for index, value in enumerate(result)}
    return prepared, asked


def alone(mod, name):
    var = mod.get_global_var(name)
    return tvm.IRModule({var: mod[var]})


@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize("bundles", [False, True])
def test_row_lazy_get_input_and_lazy_set_output_after(is_prepared, bundles):
    lifted = Lift()(module(is_prepared))
    if bundles:
        lifted = Bundle()(lifted)
    lazy = checked(transform.LazyGetInput()(lifted))
    prepared, asked = prepare_lazily(machine(alone(lazy, "main_transform_params")), sets=False)
    assert sorted(asked) == [(0, "w"), (1, "u")]
    both = checked(transform.LazySetOutput()(lazy))
    one_by_one, asked = prepare_lazily(machine(alone(both, "main_transform_params")))
    assert sorted(asked) == [(0, "w"), (1, "u")]
    assert prepared.keys() == one_by_one.keys() == {0, 1}
    vm = machine(Lift()(module(is_prepared)))
    expected = EXPECTED if is_prepared else X @ W + U
    for values in (prepared, one_by_one):
        np.testing.assert_array_equal(call(vm, "main", X, values[0], values[1]), expected)


def test_row_lazy_get_input_of_stock_asks_for_one_tuple():
    lifted = relax.transform.LazyGetInput()(Lift()(module()))
    vm = machine(alone(lifted, "main_transform_params"))
    with pytest.raises(TypeError):
        prepare_lazily(vm, sets=False)


def test_row_lazy_set_output_of_stock_is_ill_formed():
    after = relax.transform.LazySetOutput()(Lift()(module()))
    assert {found.rule for found in tvm_fixes.verify(after).errors} == {"purity"}
    checked(transform.LazySetOutput()(Lift()(module())))


def test_main_that_asks_for_prepared_weights():
    lifted = Lift()(module())
    prepared = [value.numpy() for value in machine(lifted)["main_transform_params"](to_tvm(W, U))]
    lazy = checked(transform.LazyGetInput()(lifted))
    names = [str(param.name) for param in lifted["main"].params[1:]]
    asked = {}

    def get(index, name):
        asked[index] = name
        return tvm.runtime.tensor(prepared[index])

    got = call(machine(alone(lazy, "main")), "main", X, tvm.runtime.convert(get))
    np.testing.assert_array_equal(got, EXPECTED)
    assert asked == dict(enumerate(names))


@pytest.mark.parametrize("make", [Bundle, transform.LazyGetInput, transform.LazySetOutput])
def test_a_function_that_others_call_is_rejected(make):
    mod = module()
    builder = relax.BlockBuilder(mod)
    params = [relax.Var(param.name, param.ty) for param in mod["main"].params]
    with builder.function("caller", params):
        out = builder.emit(relax.Call(mod.get_global_var("main"), params))
        builder.emit_func_output(out)
    for before in (builder.get(), Lift()(builder.get())):
        with pytest.raises(
            UsageError, match=rf"^{make.__name__}: caller calls main.*, whose param"
        ):
            make()(before)


def test_remove_unused_parameters_after():
    lifted = Lift()(module())
    after = checked(relax.transform.RemoveUnusedParameters()(lifted))
    tvm.ir.assert_structural_equal(after, lifted)


def store_lazily(mod):
    """The virtual machine, and copies of the tensors its transform stores."""
    weights, prepared = to_tvm(W, U), {}
    tvm.register_global_func("test_lifted.get", lambda i: weights[i], True)
    tvm.register_global_func(
        "test_lifted.set", lambda i, v: prepared.__setitem__(int(i), v.numpy()), True
    )
    vm = machine(mod)
    vm["main_transform_params"]()
    return vm, prepared


STATES = list(itertools.product([False, True], repeat=3))


@pytest.mark.parametrize("is_prepared, is_flat, bundles", STATES if is_full() else STATES[1::3])
def test_row_lazy_transform_params_after(is_prepared, is_flat, bundles):
    mod = Lift()(module(is_prepared))
    mod = Bundle()(mod) if bundles else mod
    if is_flat:
        mod = relax.transform.RemovePurityChecking()(relax.transform.ToNonDataflow()(mod))
    lazy = checked(transform.LazyTransformParams("test_lifted.get", "test_lifted.set")(mod))
    vm, prepared = store_lazily(lazy)
    assert prepared.keys() == {0, 1}
    values = list(map(prepared.get, (0, 1)))
    args = [to_tvm(*values)] if bundles else values
    np.testing.assert_array_equal(
        call(vm, "main", X, *args), EXPECTED if is_prepared else X @ W + U
    )


@pytest.mark.parametrize("pipeline", [tvm_fixes.pipeline(), "default"], ids=["own", "TVM's"])
def test_references_kept_by_set_item_stay_valid(pipeline):
    """The memory of a prepared weight is not reused for the next one."""
    builder = relax.BlockBuilder()
    x, w, u = (relax.Var(name, tensor(4, 4)) for name in "xwu")
    with builder.function("main", [x, w, u], attrs={"num_input": 1}):
        with builder.dataflow():
            prepared = [builder.emit(op.exp(builder.emit(op.add(v, v)))) for v in (w, u)]
            out = builder.emit_output(op.add(builder.emit(op.add(x, prepared[0])), prepared[1]))
        builder.emit_func_output(out)
    lazy = checked(
        transform.LazyTransformParams("test_kept.get", "test_kept.set")(Lift()(builder.get()))
    )
    weights, kept = [integers(4, 4, seed=seed) / 4 for seed in (1, 2)], {}
    tvm.register_global_func("test_kept.get", lambda i: tvm.runtime.tensor(weights[i]), True)
    tvm.register_global_func("test_kept.set", lambda i, v: kept.__setitem__(int(i), v), True)
    executable = relax.build(lazy, "llvm", relax_pipeline=pipeline)
    relax.VirtualMachine(executable, tvm.cpu())["main_transform_params"]()
    for index, weight in enumerate(weights):
        np.testing.assert_allclose(kept[index].numpy(), np.exp(2 * weight), rtol=1e-5)


def test_lazy_transform_params_of_stock_stores_no_weights_that_are_passed_on():
    lazy = relax.transform.LazyTransformParams()(Lift()(module(is_prepared=False)))
    assert "scope.undefined" in {found.rule for found in tvm_fixes.verify(lazy).errors}


@pytest.mark.parametrize("fset_item", ["set", None])
def test_lazy_transform_params_passes_its_arguments_on(fset_item):
    loader = relax.Var("loader", relax.AnyType())
    flat = relax.transform.ToNonDataflow()(Lift()(module()))
    arguments = ("get", fset_item, [loader], [loader])
    after, stock = (
        space.LazyTransformParams(*arguments)(flat)["main_transform_params"]
        for space in (transform, relax.transform)
    )
    assert list(map(arguments_of, calls(after))) == list(map(arguments_of, calls(stock)))
    tvm.ir.assert_structural_equal(after.params, stock.params, map_free_vars=True)


def calls(function):
    return [b.value for b in bindings(function) if isinstance(b.value, relax.Call)]


def arguments_of(call):
    """The callee and the arguments of a call, which the virtual machine may call as a closure."""
    callee, arguments = call.op, list(call.args)
    if isinstance(callee, tvm.ir.Op) and callee.name == "relax.call_builtin_with_ctx":
        assert arguments[0].global_symbol == "vm.builtin.invoke_closure"
        callee, *arguments = arguments[1].fields
    return str(callee), list(map(str, arguments))


SEQUENCES = {
    "lift": [Lift],
    "lift, bundle": [Lift, Bundle],
    "bundle, lift": [Bundle, Lift],
    "lift, ask": [Lift, transform.LazyGetInput],
    "lift, bundle, ask": [Lift, Bundle, transform.LazyGetInput],
    "lift, ask, hand out": [Lift, transform.LazyGetInput, transform.LazySetOutput],
}


@few(3)
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_symbol_that_only_the_weights_have(sequence):
    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", tensor(4)), relax.Var("w", tensor(n, 4))
    with builder.function("main", [x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            total = builder.emit(op.sum(w, axis=[0]))
            first = builder.emit_output(op.add(x, total))
            second = builder.emit_output(op.ones((n,), "float32"))
        builder.emit_func_output(relax.Tuple([first, second]))
    passes = tvm.transform.Sequential([make() for make in SEQUENCES[sequence]])
    assert_same_results(builder.get(), passes, [integers(4), integers(3, 4)])


def returned(builder, x, pair):
    first = builder.emit(relax.TupleGetItem(pair, 0))
    return op.matmul(x, builder.emit(op.permute_dims(first))), pair


def unread(builder, x, pair):
    return op.add(x, x), None


def joined(builder, x, pair):
    return op.matmul(builder.emit(op.concat(pair, axis=0)), x), None


TUPLES = list(
    itertools.product(
        [name for name in SEQUENCES if not name.startswith("bundle")], [returned, unread, joined]
    )
)


@few(3)
@pytest.mark.parametrize("sequence, emit", TUPLES if is_full() else TUPLES[::2])
def test_weights_that_are_one_tuple(emit, sequence):
    builder = relax.BlockBuilder()
    matrix = tensor(4, 4)
    x, pair = relax.Var("x", matrix), relax.Var("pair", relax.TupleType([matrix, matrix]))
    with builder.function("main", [x, pair], attrs={"num_input": 1}):
        with builder.dataflow():
            out, whole = emit(builder, x, pair)
            out = builder.emit_output(out)
        builder.emit_func_output(out if whole is None else relax.Tuple([out, whole]))
    passes = tvm.transform.Sequential([make() for make in SEQUENCES[sequence]])
    values = [integers(4, 4, seed=seed) for seed in range(3)]
    assert_same_results(builder.get(), passes, [values[0], values[1:]])


def test_the_switch(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "lifted-params")
    lifted = Lift()(module())
    for name in ("BundleModelParams", "LazyGetInput", "LazySetOutput", "LazyTransformParams"):
        ours, stock = (getattr(passes, name)() for passes in (transform, relax.transform))
        tvm.ir.assert_structural_equal(ours(lifted), stock(lifted))


if __name__ == "__main__":
    tvm.testing.main()
