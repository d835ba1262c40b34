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
"""Lowering of ``relax.nn.nll_loss`` and ``relax.grad.nll_loss_backward``.

See :mod:`.indices`.  A target equal to ``ignore_index``, which may be negative, has no loss and no
weight; TVM's gradient reads out of bounds for it.  Any other target out of range has the loss of
the nearest class.
"""

from tvm import relax, te, tirx, topi

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import switches
from .indices import clamp_index, takes_effect
from .override import Legalize, legalizes


def _bounded(targets: te.Tensor, ignored: int, extent: tirx.Expr) -> te.Tensor:
    def element(*position: tirx.Var) -> tirx.Expr:
        target = targets(*position)
        inside = clamp_index(target.astype("int64"), extent).astype(target.ty)
        return tirx.Select(target.equal(tirx.const(ignored, target.ty)), target, inside)

    return te.compute(targets.shape, element, name="bounded_targets")


def _class_axis(predictions: relax.Expr) -> int:
    return min(1, int(predictions.ty.ndim) - 1)


@legalizes("relax.nn.nll_loss")
def _legalize_loss(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    predictions, targets, *weights = call.args
    if not takes_effect(predictions, targets):
        return stock(bb, call)
    switches.note(FIX_ID)
    extent = predictions.ty.shape.values[_class_axis(predictions)]
    bounded = bb.call_te(
        _bounded, targets, int(call.attrs.ignore_index), extent, primfunc_name_hint="targets"
    )
    operands = [predictions, bb.emit(bounded), *weights]
    return stock(bb, bb.normalize(relax.Call(call.op, operands, call.attrs)))


def _backward(
    gradient: te.Tensor,
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor | None,
    reduction: str,
    ignored: int,
) -> te.Tensor:
    dtype, axis = str(predictions.dtype), min(1, len(predictions.shape) - 1)
    extent, zero = predictions.shape[axis], tirx.const(0, dtype)

    def weight(*position: tirx.Var) -> tirx.Expr:
        target = targets(*position)
        place = clamp_index(target.astype("int64"), extent)
        own = tirx.const(1, dtype) if weights is None else weights(place)
        is_ignored = target.equal(tirx.const(ignored, target.ty))
        return tirx.if_then_else(is_ignored, zero, own)

    weight_of = te.compute(targets.shape, weight, name="weights_of_targets")
    total = None
    if reduction == "mean":
        total = topi.sum(weight_of) if len(targets.shape) else weight_of

    def element(*position: tirx.Var) -> tirx.Expr:
        outer = [*position[:axis], *position[axis + 1 :]]
        own, target = weight_of(*outer), targets(*outer)
        loss = gradient(*outer) if reduction == "none" else gradient()
        scaled = loss if total is None else loss / total()
        is_target = tirx.all(
            target.astype("int64").equal(position[axis].astype("int64")),
            tirx.Not(target.equal(tirx.const(ignored, target.ty))),
        )
        return tirx.Select(is_target, -own * scaled, zero)

    return te.compute(predictions.shape, element, name="nll_loss_backward")


@legalizes("relax.grad.nll_loss_backward")
def _legalize_backward(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    gradient, predictions, targets, *weights = call.args
    if not takes_effect(*call.args):
        return stock(bb, call)
    switches.note(FIX_ID)
    return bb.call_te(
        _backward,
        gradient,
        predictions,
        targets,
        weights[0] if weights else None,
        str(call.attrs.reduction),
        int(call.attrs.ignore_index),
        primfunc_name_hint="nll_loss_backward",
    )
