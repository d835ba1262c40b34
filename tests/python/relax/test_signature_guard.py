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
"""tvm_fixes.SignatureGuard."""

import warnings

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers.relax_modules import integers, tensor
from tvm_fixes import transform

pytestmark = pytest.mark.native

op = relax.op
MATRIX = tensor(4, 4)


def module(emit, names="xwu", num_input=1):
    builder = relax.BlockBuilder()
    params = [relax.Var(name, MATRIX) for name in names]
    with builder.function("main", params, attrs={"num_input": num_input}):
        with builder.dataflow():
            out = builder.emit_output(emit(builder, *params))
        builder.emit_func_output(out)
    return builder.get()


def affine():
    return module(lambda b, x, w, u: op.add(op.matmul(x, b.emit(op.permute_dims(w))), u))


def changes(mod, *passes, name="Ours"):
    """The reported changes of a sequence of passes, each with a warning."""
    guard = tvm_fixes.SignatureGuard()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tvm.transform.PassContext(instruments=[guard]):
            tvm.transform.Sequential(list(passes), name=name)(mod)
    assert [str(warning.message) for warning in caught] == list(map(str, guard.changes))
    return guard.changes


def test_lift_transform_params():
    (change,) = changes(affine(), transform.LiftTransformParams())
    assert (change.pass_name, change.function) == ("Ours > LiftTransformParams", "main")
    assert change.changed == "meaning of the weights"
    assert change.before.startswith("x: R.Tensor((4, 4), dtype=")
    assert "main(*inputs, *main_transform_params(weights))" in change.hint
    assert "tvm_fixes.lift" in change.hint
    assert "detach_params" not in change.hint
    (stock,) = changes(affine(), relax.transform.LiftTransformParams())
    assert stock.changed == change.changed


@pytest.mark.parametrize("passes", [transform, relax.transform])
def test_row_types_and_names_do_not_show_it(passes):
    """The lifted weight has the name and type of the original."""

    def emit(b, x, w):
        return op.add(x, b.emit(op.permute_dims(w), name_hint="w"))

    mod = module(emit, "xw")
    lifted = passes.LiftTransformParams()(mod)["main"]
    before = [(p.name, str(p.ty)) for p in mod["main"].params]
    assert [(p.name.rstrip("1"), str(p.ty)) for p in lifted.params] == before
    (change,) = changes(mod, passes.LiftTransformParams())
    assert change.changed == "meaning of the weights"


def test_shared_transforms_and_detached_params():
    values = [tvm.runtime.tensor(integers(4, 4)) for _ in "wu"]
    main = affine()["main"].with_attr("params", values)
    mod = tvm.IRModule({"main": main, "other": main.with_attr("global_symbol", "other")})
    warned = changes(mod, relax.transform.LiftTransformParams(True))
    assert {change.function for change in warned} == {"main", "other"}
    for change in warned:
        assert f"{change.function}(*inputs, *transform_params(weights))" in change.hint
        assert f"detach_params takes from {change.function} are" in change.hint


def test_weights_that_are_passed_on():
    mod = module(lambda b, x, w, u: op.add(op.matmul(x, w), u))
    assert not changes(mod, transform.LiftTransformParams())


def test_bundles_callbacks_and_bound_parameters():
    (bundled,) = changes(affine(), transform.BundleModelParams())
    assert bundled.changed == "3 became 2"
    assert bundled.hint == "the weights are one tuple: call main(*inputs, weights)"
    (lazy,) = changes(affine(), transform.LazyGetInput())
    assert lazy.changed == "callbacks"
    (both, _) = changes(affine(), transform.LazySetOutput(), transform.LazyGetInput())
    assert both.changed == "callbacks"
    (bound,) = changes(
        affine(), relax.transform.BindParams("main", {"w": np.zeros((4, 4), "float32")})
    )
    assert bound.changed == "3 became 2"
    assert bound.hint.startswith("w: no longer a parameter")
    assert "detach_params" in bound.hint


def replace_main(name, params, types=None):
    """A pass that gives main other parameters."""

    @tvm.transform.module_pass(opt_level=0, name=name)
    def run(_mod, _context):
        builder = relax.BlockBuilder()
        made = [relax.Var(p, (types or {}).get(p, MATRIX)) for p in params]
        with builder.function("main", made):
            builder.emit_func_output(builder.emit(op.add(made[0], made[0])))
        return builder.get()

    return run


@pytest.mark.parametrize(
    "params, types, changed",
    [
        ("xuw", None, "their order"),
        ("xvu", None, "their names"),
        ("xwu", {"u": tensor(4)}, "their types"),
        ("xuw", {"u": tensor(4)}, "their order"),
        ("xw", None, "3 became 2"),
        ("xwuv", None, "3 became 4"),
        ("xwu", None, None),
    ],
)
def test_number_order_names_and_types(params, types, changed):
    warned = changes(affine(), replace_main("Change", params, types))
    assert [change.changed for change in warned] == ([changed] if changed else [])


def test_a_function_that_is_gone():
    @tvm.transform.module_pass(opt_level=0, name="Drop")
    def drop(_mod, _context):
        return tvm.IRModule({})

    (change,) = changes(affine(), drop)
    assert (change.changed, change.after) == ("it is gone", "gone")


def test_a_nested_sequence_is_reported_once():
    inner = tvm.transform.Sequential(
        [transform.LiftTransformParams(), transform.BundleModelParams()], name="Inner"
    )
    warned = changes(affine(), inner, replace_main("Change", "x"), name="Outer")
    assert [change.pass_name for change in warned] == [
        "Outer > Inner > LiftTransformParams",
        "Outer > Inner > BundleModelParams",
        "Outer > Change",
        "Outer > Change",
    ]


def test_passes_that_keep_parameters_do_not_warn():
    guard = tvm_fixes.SignatureGuard()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tvm.transform.PassContext(instruments=[guard]):
            for pipeline in ("default", tvm_fixes.pipeline(layout="NHWC")):
                relax.build(affine(), "llvm", relax_pipeline=pipeline)
    assert not guard.changes


def test_a_pass_that_raises():
    @tvm.transform.module_pass(opt_level=0, name="Fail")
    def fail(_mod, _context):
        raise ValueError("as it should")

    guard = tvm_fixes.SignatureGuard()
    with tvm.transform.PassContext(instruments=[guard]):
        with pytest.raises(ValueError, match="as it should"):
            fail(affine())
        with pytest.warns(UserWarning, match="BundleModelParams changes the parameters of main"):
            transform.BundleModelParams()(affine())
    assert len(guard.changes) == 1


if __name__ == "__main__":
    tvm.testing.main()
