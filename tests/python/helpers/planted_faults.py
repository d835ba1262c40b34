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
"""Faults planted in the pipeline, for the tools that find faults."""

import sys
from dataclasses import replace

import onnx
import tvm
from tvm import relax, tirx, topi
from tvm.ir import Op
from tvm_ffi import structural_map

from tvm_fixes.debug import variants
from tvm_fixes.pipeline import stages


def model() -> onnx.ModelProto:
    """A model whose kernels are a softmax, a subtraction, a matmul and others."""
    text = """
        <ir_version: 9, opset_import: ["" : 18]>
        model (float[4,8] x, float[8,4] y) => (float[8,8] r)
        { s = Softmax (x) t = Transpose (y) d = Sub (t, x) dt = Transpose (d)
          m = MatMul (dt, s) e = Exp (m) r = Relu (e) }
    """
    return onnx.parser.parse_model(text)


@relax.expr_functor.mutator
class _Swap(relax.PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op == Op.get("relax.subtract"):
            return relax.Call(call.op, list(call.args)[::-1], call.attrs)
        return call


@tvm.transform.module_pass(opt_level=0, name="SwapOperands")
def swap_operands(mod, _context):
    """A pass that swaps the operands of a subtraction."""
    swap = _Swap(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            swap.builder_.update_func(var, swap.visit_expr(function))
    return swap.builder_.get()


@tvm.transform.module_pass(opt_level=0, name="WrongSchedule")
def wrong_schedule(mod, _context):
    """A schedule that breaks the kernel of the subtraction."""

    def swapped(node):
        return tirx.Sub(node.b, node.a) if "float" in str(node.a.ty) else node

    changed = {
        var: structural_map(function, (tirx.Sub, swapped))
        if "subtract" in str(var.name_hint)
        else function
        for var, function in mod.functions_items()
    }
    return tvm.IRModule(changed, attrs=mod.attrs)


def plant(monkeypatch, **more) -> None:
    """Add passes to the end of groups of stages, such as ``operators=swap_operands``."""

    def with_fault(*args, **options):
        found = stages(*args, **options)
        return replace(found, **{key: (*getattr(found, key), one) for key, one in more.items()})

    monkeypatch.setattr(variants, "stages", with_fault)
    monkeypatch.setattr(sys.modules["tvm_fixes.compiler.compilation"], "stages", with_fault)


def plant_wrong_softmax(monkeypatch) -> None:
    """Make the fix of the softmax return its logarithm."""
    module = sys.modules["tvm_fixes.relax.legalize.softmax"]
    monkeypatch.setattr(module, "softmax", lambda data, axis: topi.nn.log_softmax(data, axis))
