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
"""tvm_fixes.lift and LiftedModule."""

import functools
import itertools
import json
import math
import os
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import torch
import tvm
import tvm.relax.op.vm  # TVM's LazyTransformParams uses it unimported
import tvm.testing
from tvm import relax, tirx

import tvm_fixes
from helpers.grids import is_full
from helpers.relax_modules import integers, tensor
from tvm_fixes import LiftedModule, lift
from tvm_fixes.errors import ArtifactError, InputError, UnsupportedOperatorError, UsageError
from tvm_fixes.runtime import lifted_module as implementation
from tvm_fixes.runtime.lifted_manifest import LiftedManifest
from tvm_fixes.support import switches

op = relax.op


STATES = list(itertools.product([False, True], repeat=2))


def module(inputs, weights, emit, num_input=True):
    """``main`` with weights after the inputs; `emit` returns one result."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, ty) for name, ty in (inputs | weights).items()]
    attrs = {"num_input": len(inputs)} if num_input else None
    with builder.function("main", params, attrs=attrs):
        with builder.dataflow():
            out = builder.emit_output(emit(builder, *params))
        builder.emit_func_output(out)
    return builder.get()


def transposed_and_added(b, x, w, u):
    return op.add(op.matmul(x, b.emit(op.permute_dims(w))), u)


WEIGHTS = {"w": tensor(4, 4), "u": tensor(4, 4)}


def affine(**options):
    return module({"x": tensor(4, 4)}, WEIGHTS, transposed_and_added, **options)


X, W, U = integers(2, 4), integers(4, 4, seed=1), integers(2, 4, seed=2)


@functools.cache
def library(lazy):
    """``x @ w.T + u``, compiled once."""
    return lift(mod_of_rows(), lazy=lazy)


@pytest.fixture
def dense():
    """A model without weights of its own."""
    return dense_with(None)


def dense_with(weights, *, lazy=False, **options):
    compiled = library(lazy)
    directory, manifest = compiled._library.directory, compiled.lifted_manifest
    return LiftedModule(directory, manifest, weights=weights, **options)


def value(x=X, w=W, u=U):
    return x @ w.T + u


def counted(model):
    """Count how often weights are prepared."""
    calls = []
    machine = model._library.machine

    class Machine:
        def __getitem__(self, name):
            calls.extend([name] if name.endswith("transform_params") else [])
            return machine[name]

    model._library.__dict__["machine"] = Machine()
    return calls


class TestRun:
    def test_called_as_before(self, dense):
        np.testing.assert_array_equal(dense.run(X, W, U), value())
        np.testing.assert_array_equal(dense.run(X, w=W, u=U), value())
        np.testing.assert_array_equal(dense.run(u=U, x=X, w=W), value())
        np.testing.assert_array_equal(dense.run(X, W, u=U + 1), value(u=U + 1))
        got = dense.run(*map(torch.from_numpy, (X, W, U)))
        assert isinstance(got, torch.Tensor)
        np.testing.assert_array_equal(got.numpy(), value())

    def test_specs(self, dense):
        assert [str(spec) for spec in dense.inputs] == ["x: float32 (2, 4)"]
        assert [spec.name for spec in dense.weights] == ["w", "u"]
        assert "weights w: float32 (4, 4); u: float32 (2, 4)" in repr(dense)

    @pytest.mark.parametrize("lazy", [False, True])
    def test_weights_are_prepared_once(self, lazy):
        model = dense_with({"w": W.copy(), "u": U}, lazy=lazy)
        calls = counted(model)
        for _ in range(3):
            np.testing.assert_array_equal(model.run(X), value())
        assert calls == []
        np.testing.assert_array_equal(model.run(X, w=W + 1), value(w=W + 1))
        np.testing.assert_array_equal(model.run(X, w=W + 1), value(w=W + 1))
        np.testing.assert_array_equal(model.run(X), value())
        assert calls == ["main_transform_params"] * 2

    @pytest.mark.parametrize("lazy, as_torch", STATES if is_full() else STATES[1:3])
    def test_row_weights_updated_after_the_transform(self, as_torch, lazy):
        w, u = W.copy(), U.copy()
        held = (
            {"w": torch.from_numpy(w), "u": torch.from_numpy(u)} if as_torch else {"w": w, "u": u}
        )
        model = dense_with(held, lazy=lazy)
        np.testing.assert_array_equal(model.run(X), value())
        w[0, 0] += 1
        np.testing.assert_array_equal(model.run(X), value(w=w))
        u += 2
        np.testing.assert_array_equal(model.run(X), value(w=w, u=u))

    def test_changed_weights_are_ignored_without_a_check(self):
        w, u = torch.from_numpy(W.copy()), torch.from_numpy(U.copy())
        model = dense_with({"w": w, "u": u}, check_weights=False)
        w += 1
        u += 1
        np.testing.assert_array_equal(model.run(X), value())
        np.testing.assert_array_equal(model.run(X, w=W + 3, u=U), value(w=W + 3))
        assert model.run(X)[0, 0] == value(w=w.numpy(), u=u.numpy())[0, 0]

    def test_row_swapped_weights_of_equal_shape(self):
        # Weights by name cannot be mixed up.
        x, u = integers(4, 4), integers(4, 4, seed=5)
        model = lift(affine(), {"u": u, "w": W})
        np.testing.assert_array_equal(model.run(x), x @ W.T + u)
        np.testing.assert_array_equal(model.run(x, u=W, w=u), x @ u.T + W)
        with pytest.raises(InputError, match=r"^unknown input or weight 'v'; .* weights: "):
            model.run(x, v=W)
        with pytest.raises(
            InputError, match=r"^weight 'u' is given twice, by position and by name"
        ):
            model.run(x, W, W, u=W)

    @pytest.mark.parametrize(
        "given, message",
        [
            ({"w": W}, "missing weight 'u' of (w, u)"),
            ({}, "missing weight 'w', 'u' of (w, u)"),
            ({"w": W[:1], "u": U}, "weight 'w': expected shape (4, 4), got (1, 4): axis 0"),
            ({"w": W, "u": U.astype("float64")}, "weight 'u': expected dtype float32, got float64"),
            (
                {"w": torch.ones(4, 4, device="meta"), "u": U},
                "weight 'w': expected a tensor on the CPU, got one on meta",
            ),
            (
                {"w": W, "u": 1},
                "weight 'u': expected a NumPy array, a PyTorch tensor or a TVM tensor",
            ),
        ],
    )
    def test_wrong_weights(self, dense, given, message):
        with pytest.raises(InputError) as error:
            dense.run(X, **given)
        assert str(error.value).startswith(message)

    def test_a_symbolic_dim_of_two_weights(self):
        """The message names the other weight, and calls it one."""
        n = tirx.Var("n", "int64")
        weights = {"w": tensor(n), "input": tensor(n)}
        model = lift(
            module(
                {"x": tensor(1)}, weights, lambda b, x, *w: op.add(op.add(x, w[0]), b.emit(w[1]))
            )
        )
        with pytest.raises(
            InputError,
            match=r"^weight 'input': expected shape \(n\), got \(3\): n is 2 on axis 0 of "
            r"weight 'w' and 3 on axis 0 of weight 'input'; expected equal sizes",
        ):
            model.run(integers(1), integers(2), integers(3))

    def test_wrong_inputs(self, dense):
        with pytest.raises(
            InputError, match=r"^expected 1 inputs and 2 weights \(x, w, u\), got 4"
        ):
            dense.run(X, W, U, U)
        with pytest.raises(InputError, match=r"^input 'x': expected shape"):
            dense.run(X.T.copy(), W, U)
        with pytest.raises(InputError, match=r"^missing input 'x'"):
            dense.run(w=W, u=U)

    def test_two_threads(self):
        model = dense_with({"w": W, "u": U})
        wrong = []

        def work(shift):
            for _ in range(20):
                if not np.array_equal(model.run(X, w=W + shift), value(w=W + shift)):
                    wrong.append(shift)

        threads = [threading.Thread(target=work, args=(shift,)) for shift in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


class TestLift:
    def test_params_in_every_form(self):
        mod = affine()
        u = integers(4, 4, seed=3)
        x = integers(4, 4)
        values = [tvm.runtime.tensor(W), tvm.runtime.tensor(u)]
        with_attribute = tvm.IRModule({"main": mod["main"].with_attr("params", values)})
        _, detached = relax.frontend.detach_params(with_attribute)
        for program, params in (
            (mod, [W, u]),
            (mod, values),
            (mod, detached),
            (mod, {"u": u, "w": W}),
            (with_attribute, None),
            (affine(num_input=False), {"w": W, "u": u}),
        ):
            np.testing.assert_array_equal(lift(program, params).run(x), value(x, W, u))

    def test_which_parameters_are_weights(self):
        mod = affine(num_input=False)
        with pytest.raises(UsageError, match=r"^main: unknown which parameters are weights"):
            lift(mod)
        with pytest.raises(
            UsageError, match=r"^main: expected the weights to be the last param.*x"
        ):
            lift(mod, {"x": X, "w": W})
        updating = tvm.IRModule({"main": mod["main"].with_attr("updates", {"x": 0})})
        with pytest.raises(UsageError, match=r"cannot update its inputs; got \['x'\]"):
            lift(updating, {"w": W, "u": U})
        with pytest.raises(UsageError, match=r"^no Relax function 'other'; functions: m"):
            lift(mod, function="other")
        with pytest.raises(UsageError, match=r"^main: expected 2 weights \(w, u\), got 1"):
            lift(affine(), [W])
        with pytest.raises(InputError, match=r"^missing weight 'u' of \(w, u\)"):
            lift(affine(), {"w": W})
        with pytest.raises(UsageError, match=r"^main: params: expected weights by name or in"):
            lift(affine(), 5)

    def test_two_parameters_of_one_name(self):
        builder = relax.BlockBuilder()
        params = [relax.Var(name, tensor(2)) for name in ("x", "w", "w")]
        with builder.function("main", params, attrs={"num_input": 1}):
            builder.emit_func_output(builder.emit(op.add(params[1], params[2])))
        with pytest.raises(UsageError, match=r"^main: two parameters are named 'w'"):
            lift(builder.get())

    def test_no_weights(self, tmp_path):
        model = lift(module({"x": tensor(4)}, {}, lambda b, x: op.add(x, x)), [])
        x = integers(4)
        np.testing.assert_array_equal(model.run(x), 2 * x)
        assert model.lift_report.ratio is None
        model.save(tmp_path / "out")
        np.testing.assert_array_equal(LiftedModule.load(tmp_path / "out").run(x), 2 * x)

    @pytest.mark.parametrize("lazy, beside", STATES if is_full() else STATES[1:3])
    def test_tuples(self, lazy, beside, tmp_path):
        pair = {"t.0": relax.TupleType([tensor(4, 4), tensor(4)])}

        def emit(b, x, *weights):
            left, right = (b.emit(relax.TupleGetItem(weights[-1], i)) for i in (0, 1))
            out = op.add(op.matmul(x, b.emit(op.permute_dims(left))), right)
            return op.add(b.emit(out), weights[0]) if beside else out

        weights = ({"v": tensor(4)} if beside else {}) | pair
        v, t = integers(4, seed=8), [W, integers(4, seed=9)]
        params = {"t.0": t} | ({"v": v} if beside else {})
        model = lift(module({"x": tensor(2, 4)}, weights, emit), params, lazy=lazy)
        expected = X @ W.T + t[1] + (v if beside else 0)
        np.testing.assert_array_equal(model.run(X), expected)
        model.save(tmp_path / "out")
        again = LiftedModule.load(tmp_path / "out")
        np.testing.assert_array_equal(again.run(X), expected)
        t[1][0] += 1
        np.testing.assert_array_equal(model.run(X), X @ W.T + t[1] + (v if beside else 0))
        with pytest.raises(InputError, match=r"^weight 't.0': expected a list of 2 arrays"):
            again.run(X, **params | {"t.0": [W]})

    @pytest.mark.parametrize(
        "w",
        [
            np.array(3, "float32"),
            np.float32(3),
            torch.tensor(3.0),
            np.ones((0, 3), "float32"),
            torch.ones(0, 3),
            np.arange(12, dtype="float32").reshape(4, 3)[::-2],
            np.arange(6).reshape(2, 3).astype(">f4"),
            torch.arange(6.0).reshape(3, 2).T,
            torch.nn.Parameter(torch.ones(2, 3)),
        ],
        ids=lambda w: f"{type(w).__name__}{tuple(w.shape)}",
    )
    def test_arrays_of_every_kind(self, w):
        types = [tensor(*w.shape)] * 2
        mod = module({"x": types[0]}, {"w": types[1]}, lambda b, x, w: op.add(x, op.add(w, w)))
        x = np.ones(tuple(w.shape), "float32")
        model = lift(mod, [w])
        values = w.detach().numpy() if isinstance(w, torch.Tensor) else w
        np.testing.assert_array_equal(model.run(x), x + 2 * values)
        np.testing.assert_array_equal(model.run(x), x + 2 * values)

    def test_exported_programs(self):
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        x = torch.from_numpy(X)
        mod = tvm_fixes.frontend.torch.from_exported_program(
            torch.export.export(net.eval(), (x,)), keep_params_as_input=True
        )
        for program, params in ((mod, None), relax.frontend.detach_params(mod)):
            torch.testing.assert_close(lift(program, params).run(x), net(x).detach())

    def test_names_of_any_characters(self, tmp_path):
        names = {"weight/π.0": tensor(4, 4), "a b\n": tensor(2, 4), "self": tensor(2, 4)}
        mod = module(
            {"x.1": tensor(2, 4)}, names, lambda b, x, *w: transposed_and_added(b, x, *w[:2])
        )
        model = lift(mod, [W, U, U])
        model.save(tmp_path / "out")
        again = LiftedModule.load(tmp_path / "out")
        np.testing.assert_array_equal(again.run(X), value())
        weights = {"weight/π.0": W + 1, "a b\n": U, "self": U}
        np.testing.assert_array_equal(again.run(X, **weights), value(w=W + 1))

    def test_dynamic_batch_and_weights(self, tmp_path):
        n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")

        def emit(b, x, w):
            ones = b.emit(op.ones((m,), "float32"))
            return op.add(op.matmul(x, b.emit(op.permute_dims(w))), ones)

        model = lift(module({"x": tensor(n, 4)}, {"w": tensor(m, 4)}, emit), [W])
        for batch in (1, 3):
            x = integers(batch, 4)
            np.testing.assert_array_equal(model.run(x), x @ W.T + 1)
        np.testing.assert_array_equal(model.run(X, W[:2]), X @ W[:2].T + 1)
        model.save(tmp_path / "out")
        np.testing.assert_array_equal(LiftedModule.load(tmp_path / "out").run(X), X @ W.T + 1)

    @pytest.mark.parametrize("lazy", [False, True])
    def test_a_symbol_that_only_the_weights_have(self, lazy, tmp_path):
        m = tirx.Var("m", "int64")

        def emit(b, x, w):
            total = b.emit(op.sum(w, axis=[0]))
            return op.add(b.emit(op.sum(op.add(x, total))), b.emit(op.ones((m,), "float32")))

        model = lift(module({"x": tensor(2, 4)}, {"w": tensor(m, 4)}, emit), [W], lazy=lazy)
        expected = np.full(4, (X + W.sum(0)).sum() + 1, "float32")
        np.testing.assert_array_equal(model.run(X), expected)
        model.save(tmp_path / "out")
        np.testing.assert_array_equal(LiftedModule.load(tmp_path / "out").run(X), expected)

    @pytest.mark.parametrize("lazy", [False, True])
    def test_only_the_function_itself_is_lifted(self, lazy):
        mod = affine()
        builder = relax.BlockBuilder(mod)
        x, w, u = (relax.Var(p.name, p.ty) for p in mod["main"].params)
        with builder.function("caller", [x, w, u], attrs={"num_input": 1}):
            out = builder.emit(relax.Call(mod.get_global_var("main"), [x, w, u]))
            builder.emit_func_output(out)
        x, w, u = integers(4, 4), integers(4, 4, seed=4), integers(4, 4, seed=5)
        for name in ("main", "caller"):
            model = lift(builder.get(), [w, u], function=name, lazy=lazy)
            np.testing.assert_array_equal(model.run(x), x @ w.T + u)

    def test_an_input_that_is_not_a_tensor_is_rejected(self):
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TupleType([tensor(2), tensor(2)]))
        with builder.function("main", [x], attrs={"num_input": 1}):
            builder.emit_func_output(builder.emit(relax.TupleGetItem(x, 0)))
        with pytest.raises(UnsupportedOperatorError, match=r"^parameter 'x': expected a tensor"):
            lift(builder.get())


def mod_of_rows():
    weights = {"w": tensor(4, 4), "u": tensor(2, 4)}
    return module({"x": tensor(2, 4)}, weights, transposed_and_added)


class TestReport:
    def test_bytes(self):
        report = dense_with({"w": W, "u": U}).lift_report
        assert (report.before, report.after, report.ratio) == (96, 96, 1)
        assert str(report) == "weights: 96 bytes, prepared: 96 bytes (1.00 x)"

    def test_quantized_weights_stay_quantized_or_are_warned_of(self):
        weights = {"w": tensor(256, 256, dtype="int8"), "s": tensor(256)}

        def emit(b, x, w, s):
            return op.matmul(x, b.emit(op.multiply(b.emit(op.astype(w, "float32")), s)))

        mod = module({"x": tensor(2, 256)}, weights, emit)
        w, s, x = integers(256, 256).astype("int8"), integers(256), integers(2, 256)
        model = lift(mod, [w, s])
        assert model.lift_report.ratio == 1
        np.testing.assert_array_equal(model.run(x), x @ (w * s))
        with pytest.warns(UserWarning, match=r"prepared: 262144 bytes \(3.94 x\)"):
            grown = lift(mod, [w, s], max_growth=math.inf)
        np.testing.assert_array_equal(grown.run(x), x @ (w * s))
        assert grown.lift_report.ratio > 3.5

    def test_small_weights_are_prepared_although_they_grow(self, recwarn):
        weights = {"w": tensor(12, 12, dtype="int8")}
        mod = module(
            {"x": tensor(2, 12)},
            weights,
            lambda b, x, w: op.matmul(x, b.emit(op.astype(w, "float32"))),
        )
        w, x = integers(12, 12).astype("int8"), integers(2, 12)
        model = lift(mod, [w])
        assert (model.lift_report.before, model.lift_report.after) == (144, 4 * 144)
        np.testing.assert_array_equal(model.run(x), x @ w)
        assert not recwarn.list
        assert lift(mod, [w], allowance=0).lift_report.after == 144


class Changing(dict):
    """Weights that another thread changes during one of the reads."""

    def __init__(self, time, **weights):
        super().__init__(**weights)
        self.time, self.read = time, 0

    def __getitem__(self, name):
        self.read += name == "w"
        return super().__getitem__(name) + (name == "w" and self.read == self.time)


@pytest.mark.parametrize("lazy", [False, True])
def test_weights_that_change_while_they_are_prepared(lazy):
    """Whenever they change, the next call notices."""
    for time in range(1, 9):
        weights = Changing(10**9, w=W, u=U)
        model = dense_with(weights, lazy=lazy)
        model.run(X)
        weights.time = weights.read + time
        for _ in range(3):
            model.run(X)
        weights.time = weights.read + time
        model.run(X, u=U + 1)
        model.run(X)
        np.testing.assert_array_equal(model.run(X), value(), err_msg=str(time))


def chain(b, x, *weights):
    """Prepared weights with memory that is reused within the transform."""
    total = x
    for weight in weights:
        total = b.emit(op.add(total, b.emit(op.exp(b.emit(op.add(weight, weight))))))
    return total


def test_row_lazy_transform_params_set_item_keeps_a_reference():
    weights = {f"w{i}": tensor(4, 4) for i in range(4)}
    mod = module({"x": tensor(4, 4)}, weights, chain)
    values = [integers(4, 4, seed=seed) / 4 for seed in range(4)]
    expected = [np.exp(2 * v) for v in values]

    stock = relax.transform.LiftTransformParams()(mod)
    stock = relax.transform.RemovePurityChecking()(relax.transform.ToNonDataflow()(stock))
    stock = relax.transform.LazyTransformParams("test_lift.get", "test_lift.set")(stock)
    kept = {}
    tvm.register_global_func("test_lift.get", lambda i: tvm.runtime.tensor(values[i]), True)
    tvm.register_global_func("test_lift.set", lambda i, v: kept.__setitem__(int(i), v), True)
    with switches.without(["plan-memory-escape"]):
        executable = relax.build(stock, "llvm")
    relax.VirtualMachine(executable, tvm.cpu())["main_transform_params"]()
    right = [np.allclose(kept[i].numpy(), expected[i], rtol=1e-5) for i in range(4)]
    assert not all(right)

    model = lift(mod, values, lazy=True)
    x = integers(4, 4)
    np.testing.assert_allclose(model.run(x), x + sum(expected), rtol=1e-5)
    prepared = [tensor.numpy() for tensor in model._preparation._last[1]]
    for ours in expected:
        assert any(np.allclose(ours, theirs, rtol=1e-5) for theirs in prepared)


def test_lazy_asks_for_one_weight_after_another():
    class Weights(dict):
        """Weights that are loaded on demand."""

        def __getitem__(self, name):
            asked.append(name)
            return super().__getitem__(name)

    asked = []
    weights = {f"w{i}": tensor(4, 4) for i in range(3)}
    mod = module({"x": tensor(4, 4)}, weights, chain)
    values = Weights({f"w{i}": integers(4, 4, seed=i) / 4 for i in range(3)})
    model = lift(mod, values, lazy=True, check_weights=False)
    loaded = list(asked)
    x = integers(4, 4)
    expected = x + sum(np.exp(2 * v) for v in values.values())
    np.testing.assert_allclose(model.run(x), expected, rtol=1e-5)
    assert asked == loaded


def test_row_consume_params_called_twice_with_one_list():
    config = {"relax.lift_transform_params.consume_params": True}
    with tvm.transform.PassContext(config=config):
        stock = relax.transform.LiftTransformParams()(mod_of_rows())
        model = lift(mod_of_rows(), {"w": W, "u": U})
    prepare = relax.VirtualMachine(relax.build(stock, "llvm"), tvm.cpu())["main_transform_params"]
    weights = tvm.runtime.convert([tvm.runtime.tensor(W), tvm.runtime.tensor(U)])
    prepare(weights)
    with pytest.raises(TypeError):
        prepare(weights)
    for w in (W, W + 1, W):
        np.testing.assert_array_equal(model.run(X, w=w), value(w=w))


@pytest.fixture
def artifact(tmp_path):
    """A saved artifact that a test may spoil."""
    dense_with({"w": W, "u": U}).save(tmp_path / "out")
    return tmp_path / "out"


class TestSave:
    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "float8_e4m3fn"])
    def test_dtypes_survive(self, dtype, tmp_path):
        weights = {"w": tensor(4, 4, dtype=dtype)}
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))

        def emit(b, x, w):
            return op.add(x, b.emit(op.astype(b.emit(op.permute_dims(w)), "float32")))

        w = np.abs(integers(4, 4)).astype(kind)
        x = integers(4, 4)
        if dtype == "float8_e4m3fn":
            mod = module({"x": tensor(4, 4)}, weights, lambda b, x, w: op.permute_dims(w))
            expected = w.T
        else:
            mod, expected = module({"x": tensor(4, 4)}, weights, emit), x + w.T.astype("float32")
        lift(mod, [w], allowance=0).save(tmp_path / "out")
        got = LiftedModule.load(tmp_path / "out").run(x)
        np.testing.assert_array_equal(np.asarray(got, "float32"), np.asarray(expected, "float32"))
        if dtype == "bfloat16":
            file = safetensors.numpy.load_file(tmp_path / "out/weights.safetensors")
            assert [array.dtype.name for array in file.values()] == ["bfloat16"]

    def test_row_a_reloaded_library_knows_arity_and_names(self, artifact):
        model = LiftedModule.load(artifact)
        assert [spec.name for spec in (*model.inputs, *model.weights)] == ["x", "w", "u"]
        assert model.lift_report.before == 96
        np.testing.assert_array_equal(model.run(X), value())
        np.testing.assert_array_equal(model.run(X, W + 1, U), value(w=W + 1))
        np.testing.assert_array_equal(model.run(X), value())
        with pytest.raises(InputError, match=r"^missing weight 'u' of \(w, u\)"):
            model.run(X, w=W)

    def test_changed_weights_are_saved(self, tmp_path):
        w = W.copy()
        model = dense_with({"w": w, "u": U})
        w += 1
        model.save(tmp_path / "out")
        np.testing.assert_array_equal(LiftedModule.load(tmp_path / "out").run(X), value(w=w))

    def test_replaced(self, artifact):
        loaded = LiftedModule.load(artifact)
        dense_with({"w": W + 2, "u": U}, lazy=True).save(artifact)
        again = LiftedModule.load(artifact)
        np.testing.assert_array_equal(again.run(X), value(w=W + 2))
        np.testing.assert_array_equal(again.run(X, W, U), value())
        np.testing.assert_array_equal(loaded.run(X), value())
        assert os.listdir(artifact.parent) == ["out"]

    def test_nothing_is_half_written(self, artifact, monkeypatch):
        before = {path.name: path.read_bytes() for path in artifact.iterdir()}

        def fail(*_args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(implementation, "write_weights", fail)
        with pytest.raises(ArtifactError, match=r"cannot write: No space left on device"):
            dense_with({"w": W, "u": U}).save(artifact)
        assert {path.name: path.read_bytes() for path in artifact.iterdir()} == before
        assert os.listdir(artifact.parent) == ["out"]

    def test_other_directories_are_not_replaced(self, dense, tmp_path):
        (tmp_path / "notes").write_text("mine")
        with pytest.raises(UsageError, match=r"contains files that are not an artifact"):
            dense_with({"w": W, "u": U}).save(tmp_path)
        assert os.listdir(tmp_path) == ["notes"]
        with pytest.raises(UsageError, match=r"^no weights to save"):
            lift(mod_of_rows()).save(tmp_path / "out")


class TestLoad:
    @pytest.mark.parametrize("name", ["model.so", "weights.safetensors", "manifest.json"])
    @pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "empty"])
    def test_a_damaged_file(self, artifact, name, damage):
        path = artifact / name
        data = bytearray(path.read_bytes())
        if damage == "missing":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "flipped":
            data[len(data) // 2] ^= 0xFF
            path.write_bytes(data)
        else:
            path.write_bytes(b"")
        with pytest.raises(ArtifactError):
            LiftedModule.load(artifact)

    @pytest.mark.parametrize(
        "key", ["weights", "prepared", "file", "lazy", "transform", "signature"]
    )
    def test_a_manifest_that_was_changed(self, artifact, key):
        path = artifact / "manifest.json"
        values = json.loads(path.read_text())
        changed = {
            "weights": lambda: values["weights"].reverse(),
            "prepared": lambda: values["prepared"][0].update(kind="tuple"),
            "file": lambda: values["file"]["tensors"].reverse(),
            "lazy": lambda: values.update(lazy=True),
            "transform": lambda: values.update(transform="main"),
            "signature": lambda: values.update(signature="0" * 64),
        }
        changed[key]()
        path.write_text(json.dumps(values))
        with pytest.raises(ArtifactError, match=r"manifest.json: signature: expected "):
            LiftedModule.load(artifact)

    def test_prepared_weights_that_the_file_does_not_hold(self, artifact):
        """Anybody can compute the signature."""
        path = artifact / "manifest.json"
        manifest = LiftedManifest.read(artifact)
        for prepared, message in [
            (
                (*manifest.prepared, manifest.prepared[0]),
                r"expected \d tensors in the weights",
            ),
            ((replace(manifest.prepared[0], number=3),), "3 tensors of kind 'tensor'"),
            ((replace(manifest.prepared[0], kind="x"),), "unknown kind 'x'"),
            ((replace(manifest.prepared[0], kind="tuple", number=-1),), "-1 tensors of kind"),
        ]:
            path.write_text(replace(manifest, prepared=prepared).to_json())
            with pytest.raises(ArtifactError, match=message):
                LiftedModule.load(artifact)

    @pytest.mark.parametrize(
        "u, problem",
        [(U + 1, "the file: expected SHA-256"), (U.astype("int8"), "the header: expected SHA-256")],
    )
    def test_weights_of_another_model(self, artifact, tmp_path, u, problem):
        weights = {"w": tensor(4, 4), "v": tensor(2, 4, dtype=u.dtype.name)}

        def emit(b, x, w, v):
            return transposed_and_added(b, x, w, b.emit(op.astype(v, "float32")))

        other_model = lift(module({"x": tensor(2, 4)}, weights, emit), [W, u], allowance=0)
        other_model.save(tmp_path / "other")
        other = (tmp_path / "other/weights.safetensors").read_bytes()
        (artifact / "weights.safetensors").write_bytes(other)
        with pytest.raises(ArtifactError, match=f"weights.safetensors: {problem}"):
            LiftedModule.load(artifact)

    def test_an_artifact_of_another_kind(self, artifact, tmp_path):
        with pytest.raises(ArtifactError):
            tvm_fixes.CompiledModel.load(artifact)
        with pytest.raises(ArtifactError, match=r"not an artifact"):
            LiftedModule.load(tmp_path / "nothing")


if __name__ == "__main__":
    tvm.testing.main()
