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
"""Helpers for lifting and running modules with weights."""

import numpy as np
import tvm
from tvm import relax

import tvm_fixes
from helpers.relax_modules import call, cpu, integers
from tvm_fixes import transform
from tvm_fixes.relax.lift.plan import bytes_of_type


def function(inputs, weights, emit, *, name="main", dataflow=True):
    """Build a function of inputs and weights; `emit` returns one result or a list of results."""
    builder = relax.BlockBuilder()
    params = [relax.Var(param, ty) for param, ty in (inputs | weights).items()]
    with builder.function(name, params, attrs={"num_input": len(inputs)}):
        if dataflow:
            with builder.dataflow():
                results = emit(builder, *params)
                is_one = not isinstance(results, list)
                outs = [builder.emit_output(out) for out in ([results] if is_one else results)]
        else:
            results = emit(builder, *params)
            is_one = not isinstance(results, list)
            outs = [builder.emit(out) for out in ([results] if is_one else results)]
        builder.emit_func_output(outs[0] if is_one else relax.Tuple(outs))
    return builder.get()[name]


def module(**functions):
    names = {name: tvm.ir.GlobalVar(name) for name in functions}
    return transform.RefreshTypes()(
        tvm.IRModule(
            {names[name]: f.with_attr("global_symbol", name) for name, f in functions.items()}
        )
    )


def lift(mod, *args, **options):
    """Lift; assert that the result is valid and that lifting again changes nothing."""
    options.setdefault("allowance", 0)
    before = tvm.ir.save_json(mod)
    after = transform.LiftTransformParams(*args, **options)(mod)
    assert tvm.ir.save_json(mod) == before
    assert not tvm_fixes.verify(after).errors
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(transform.LiftTransformParams(*args, **options)(after), after)
    return after


def machine(mod):
    return relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())


def together(mods):
    """Merge several modules, prefixing function names with the module's name."""
    functions = {
        f"{prefix}_{var.name_hint}": function
        for prefix, mod in mods.items()
        for var, function in mod.functions_items()
    }
    return machine(module(**functions))


def to_tvm(value):
    if isinstance(value, list | tuple):
        return list(map(to_tvm, value))
    return tvm.runtime.tensor(value)


def assert_same(mod, lifted, inputs, weights, *, name="main", transform_name=None):
    """Assert that the lifted function with prepared weights is bitwise equal to the original."""
    transform_name = transform_name or f"{name}_transform_params"
    wanted = {"before": tvm.IRModule({name: mod[name]})}
    wanted["after"] = tvm.IRModule({one: lifted[one] for one in (name, transform_name)})
    if any(
        relax.analysis.all_global_vars(f) for m in wanted.values() for f in m.functions.values()
    ):
        before, after = machine(mod), machine(lifted)
        names = name, name, transform_name
    else:
        # One build is faster than two.
        before = after = together(wanted)
        names = f"before_{name}", f"after_{name}", f"after_{transform_name}"
    inputs, weights = to_tvm(inputs), to_tvm(weights)
    expected = call(before, names[0], *inputs, *weights)
    got = call(after, names[1], *inputs, *after[names[2]](weights))
    if not isinstance(expected, list):
        expected, got = [expected], [got]
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def prepared_bytes(mod, name="main_transform_params"):
    return bytes_of_type(mod[name].ret_ty)


def weight_bytes(mod, name="main"):
    params = mod[name].params
    return sum(bytes_of_type(p.ty) for p in params[int(mod[name].attrs["num_input"]) :])


def data(*shapes, dtype="float32"):
    return [integers(*shape, seed=seed).astype(dtype) for seed, shape in enumerate(shapes)]
