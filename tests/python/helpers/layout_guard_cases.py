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
"""Cases of all operators for which TVM has a layout rule."""

from functools import partial

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from helpers.layout_cases import SPATIAL, Case
from helpers.relax_modules import integers

SHAPE = (2, 8, 3, 4)
SHAPES = {1: (2, 8, 4), 2: SHAPE, 3: (2, 8, 3, 2, 4)}


def case(operator, name, emit, *shapes, **flags) -> Case:
    return Case(f"relax.{operator}", name, emit, shapes or (SHAPE,), **flags)


def constant(*shape: int, seed: int = 7) -> relax.Expr:
    return relax.const(integers(*shape, seed=seed))


def function_of(operator: str):
    found = op
    for part in operator.split("."):
        found = getattr(found, part)
    return found


def elementwise() -> list[Case]:
    names = (
        "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor isfinite isinf isnan log "
        "negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc "
        "nn.gelu nn.gelu_tanh nn.relu nn.selu nn.silu"
    )
    of_workers = {"runs": False}  # without them the code cannot run
    return [
        *(case(name, "", function_of(name)) for name in names.split()),
        case("bitwise_not", "", lambda x: op.bitwise_not(op.astype(x, "int32"))),
        case("logical_not", "", lambda x: op.logical_not(op.astype(x, "bool"))),
        case("astype", "float16", partial(op.astype, dtype="float16")),
        case("ccl.allreduce", "", op.ccl.allreduce, **of_workers),
        case("ccl.allgather", "", partial(op.ccl.allgather, num_workers=2), **of_workers),
        case("ccl.broadcast_from_worker0", "", op.ccl.broadcast_from_worker0, **of_workers),
        case("nn.dropout", "data and mask", op.nn.dropout, runs=False),
        case(
            "nn.dropout",
            "data",
            lambda x: op.nn.relu(relax.TupleGetItem(op.nn.dropout(x), 0)),
            runs=False,
        ),
    ]


BROADCASTS = (
    (SHAPE, SHAPE),
    (SHAPE, (2, 1, 3, 4)),
    (SHAPE, (1, 8, 1, 1)),
    (SHAPE, (8, 1, 1)),
    (SHAPE, (1,)),
    (SHAPE, (2, 8, 1, 1)),
    (SHAPE, (1, 1, 1, 1)),
    (SHAPE, (8, 3, 4)),
    (SHAPE, (1, 3, 4)),
    (SHAPE, (3, 1)),
    (SHAPE, (4,)),
    (SHAPE, ()),
    ((8, 3, 4), SHAPE),
    ((4,), SHAPE),
    ((), SHAPE),
    ((2, 1, 3, 4), SHAPE),
    ((1, 8, 1, 1), SHAPE),
    ((1, 8, 3, 4), (2, 8, 1, 1)),
    ((1, 1, 3, 4), (2, 8, 1, 1)),
    ((8, 3, 4), (2, 1, 1, 1)),
    (SHAPE, (1, 2, 8, 3, 4)),
    (SHAPES[1], (2, 8, 1)),
    (SHAPES[3], (8, 1, 1, 1)),
)


def broadcasting() -> list[Case]:
    dtypes = {
        "float32": "add atan2 divide equal floor_divide floor_mod greater greater_equal less "
        "less_equal log_add_exp maximum minimum mod multiply not_equal power subtract",
        "int32": "bitwise_and bitwise_or bitwise_xor left_shift right_shift",
        "bool": "logical_and logical_or logical_xor",
    }

    def cast(name, dtype):
        def emit(x, y):
            if name.endswith("shift"):
                y = op.minimum(op.abs(y), relax.const(7.0))
            return function_of(name)(op.astype(x, dtype), op.astype(y, dtype))

        return emit

    cases = []
    for dtype, names in dtypes.items():
        for name in names.split():
            emit = function_of(name) if dtype == "float32" else cast(name, dtype)
            for shapes in BROADCASTS if name == "subtract" else BROADCASTS[:5]:
                cases.append(
                    case(name, " ".join(str(list(dims)) for dims in shapes), emit, *shapes)
                )
    two = relax.prim_value(tvm.tirx.FloatImm("float32", 2))
    return [
        *cases,
        case("subtract", "constant on the left", lambda x: op.subtract(relax.const(2.0), x)),
        case("multiply", "constant per channel", lambda x: op.multiply(x, constant(1, 8, 1, 1))),
        case("add", "constant of lower rank", lambda x: op.add(constant(8, 1, 1), x)),
        case("add", "number", lambda x: op.add(x, two), runs=False),
        case("power", "number on the left", lambda x: op.power(two, x), runs=False),
        case("add", "itself", lambda x: op.add(x, x)),
        case("ewise_fma", "", op.ewise_fma, SHAPE, SHAPE, SHAPE, runs=False),
        case(
            "ewise_fma",
            "constant",
            lambda x: op.ewise_fma(x, constant(*SHAPE), x),
            runs=False,
            static=True,
        ),
    ]


def reductions() -> list[Case]:
    axes = (None, [1], -1, [2, 3], 0, 1, 2, [-1, 1], [0, 2, 3], [3, 2], [0, 1, 2, 3])

    def reduce(name, **attrs):
        # A product of signs is exact in any order.
        return lambda x: function_of(name)(op.sign(x) if name == "prod" else x, **attrs)

    cases = []
    for name in ("sum", "variance", "mean", "max", "min", "prod", "std"):
        for axis in axes if name in ("sum", "variance") else axes[:4]:
            for keepdims in (False, True):
                text = f"axis={axis}" + ", keepdims" * keepdims
                cases.append(case(name, text, reduce(name, axis=axis, keepdims=keepdims)))
    return [
        *cases,
        case("mean", "of channels, and back", lambda x: op.subtract(x, op.mean(x, [1], True))),
        case(
            "mean",
            "of space, and back",
            lambda x: op.multiply(x, op.sigmoid(op.mean(x, [2, 3], True))),
        ),
    ]


def joins_and_splits() -> list[Case]:
    def joined(function, axis):
        return lambda *operands: function(operands, axis)

    cases = []
    for axis in (0, 1, 2, -1):
        cases += [
            case("concat", f"axis={axis}", joined(op.concat, axis), SHAPE, SHAPE),
            case("concat", f"itself, axis={axis}", lambda x, a=axis: op.concat([x, x, x], a)),
            case(
                "split", f"2, axis={axis}", lambda x, a=axis: op.split(op.concat([x, x], a), 2, a)
            ),
        ]
    for axis in (0, 1, 2, 4, -1, -2, -5):
        cases += [
            case("stack", f"axis={axis}", joined(op.stack, axis), SHAPE, SHAPE),
            case("expand_dims", f"axis={axis}", partial(op.expand_dims, axis=axis)),
        ]
    return [
        *cases,
        case("concat", "1 channel more", joined(op.concat, 1), SHAPE, (2, 1, 3, 4)),
        case("concat", "4 channels more", joined(op.concat, 1), SHAPE, (2, 4, 3, 4)),
        case("concat", "a constant", lambda x: op.concat([x, constant(*SHAPE)], 1), static=True),
        case("concat", "one operand", joined(op.concat, -1), SHAPE),
        case("stack", "one operand", joined(op.stack, 1), SHAPE),
        case(
            "stack",
            "and slice",
            lambda x, y: op.squeeze(op.strided_slice(op.stack([x, y]), [0], [1], [2]), [0]),
            SHAPE,
            SHAPE,
        ),
        case("split", "at [4]", lambda x: op.split(x, [4], 1)),
        case("split", "at [3, 5]", lambda x: op.split(x, [3, 5], 1)),
        # ConvertLayout raises in any layout if the inferred type changes: it does not know that
        # extents are non-negative, as min(1, h) requires.
        case("split", "at [1], rows", lambda x: op.split(x, [1], -2), static=True),
        case("split", "second", lambda x: op.nn.relu(relax.TupleGetItem(op.split(x, 2, 1), 1))),
        case("split", "and concat", lambda x: op.concat(op.split(x, 2, 1), 3)),
        case("split", "and stack", lambda x: op.stack(op.split(x, 2, 1), -1)),
        case("split", "one section", lambda x: op.split(x, 1, 1)),
        case("split", "7 in 3", lambda x: op.split(op.strided_slice(x, [1], [0], [7]), 3, 1)),
        case("expand_dims", "two", partial(op.expand_dims, axis=[-1, 1])),
        case("expand_dims", "two in front", partial(op.expand_dims, axis=[0, 2])),
        case("squeeze", "", lambda x: op.squeeze(op.mean(x, [2], True), [2])),
        case("squeeze", "all", lambda x: op.squeeze(op.mean(x, [1, 3], True)), static=True),
        case("permute_dims", "", partial(op.permute_dims, axes=[0, 3, 1, 2])),
        case("permute_dims", "reversed", op.permute_dims),
    ]


def slices_and_copies() -> list[Case]:
    def dynamic_slice(x):
        limits = ([0, 1, 0, 1], [2, 7, 3, 4], [1, 2, 1, 1])
        return op.dynamic_strided_slice(x, *(relax.const(np.array(v), "int64") for v in limits))

    cases = []
    for axis in (0, 1, 2, -1):
        cases += [
            case(
                "strided_slice",
                f"axis={axis}",
                lambda x, a=axis: op.strided_slice(x, [a], [0], [2], [1]),
                static=axis != 1,  # as for split
            ),
            case("flip", f"axis={axis}", partial(op.flip, axis=axis)),
            case("repeat", f"axis={axis}", partial(op.repeat, repeats=2, axis=axis)),
            case("nn.softmax", f"axis={axis}", partial(op.nn.softmax, axis=axis)),
        ]
    for repeats in ([2], [2, 1, 3], [1, 2, 1, 3], [2, 1, 2, 1, 3]):
        cases.append(case("tile", str(repeats), partial(op.tile, repeats=repeats)))
    return [
        *cases,
        case(
            "strided_slice",
            "two axes",
            lambda x: op.strided_slice(x, [-1, 1], [1, 7], [4, 0], [2, -2]),
            static=True,
        ),
        case(
            "strided_slice",
            "inbound",
            lambda x: op.strided_slice(x, [1], [4], [8], assume_inbound=True),
        ),
        case(
            "strided_slice",
            "limits from the end",
            lambda x: op.strided_slice(x, [-1, 1], [-2, -4], [4, 1 << 40]),
        ),
        case("strided_slice", "within blocks", lambda x: op.strided_slice(x, [1], [2], [6])),
        case("dynamic_strided_slice", "", dynamic_slice),
        case("add", "an unknown shape", lambda x: op.add(dynamic_slice(x), relax.const(1.0))),
        case("repeat", "flat", partial(op.repeat, repeats=2)),
    ]


def gathers_and_scatters() -> list[Case]:
    def below(x, extent):
        return op.astype(op.minimum(op.abs(x), relax.const(float(extent - 1))), "int64")

    def scatter_nd(depth, batch):
        # One update for each row of the indices, which indexes `depth` axes of the data.
        rows = [np.random.default_rng(axis).permutation(SHAPE[axis])[:2] for axis in range(depth)]
        indices = relax.const(np.stack(rows, -1).reshape(*batch, depth), "int64")
        updates = (*batch, *SHAPE[depth:])
        return case(
            "scatter_nd",
            f"{depth} axes, updates {list(updates)}",
            lambda x, u: op.scatter_nd(x, indices, u, "add"),
            SHAPE,
            updates,
            static=True,
        )

    def gather(axis):
        return lambda x, i: op.gather_elements(x, below(i, SHAPE[axis]), axis)

    def scatter(axis):
        return lambda x, i, u: op.scatter_elements(x, below(i, SHAPE[axis]), u, axis, "add")

    fewer = (2, 3, 3, 4)
    cases = [scatter_nd(depth, batch) for depth in (1, 2, 4) for batch in ((2,), (1, 2), (2, 1))]
    for axis in (0, 1, -1, -2):
        cases += [
            case("gather_elements", f"axis={axis}", gather(axis), SHAPE, SHAPE),
            case("scatter_elements", f"axis={axis}", scatter(axis), SHAPE, SHAPE, SHAPE),
        ]
    return [
        *cases,
        case("gather_elements", "fewer", gather(1), SHAPE, fewer, static=True),
        case("scatter_elements", "fewer", scatter(1), SHAPE, fewer, fewer, static=True),
        case(
            "scatter_nd",
            "computed indices",
            lambda x, i, u: op.scatter_nd(x, below(i, 2), u, "add"),
            SHAPE,
            (2, 3, 2),
            (2, 3, 3, 4),
            static=True,
        ),
    ]


def norms() -> list[Case]:
    def scales(*shape, count=2):
        return [relax.const(np.abs(integers(*shape, seed=seed)) + 1) for seed in range(count)]

    cases = []
    for axes in ([-1], [1], [2, 3], [1, 2, 3], [1, 3], [-3, -2, -1]):
        values = scales(*(SHAPE[axis] for axis in axes))
        cases += [
            case(
                "nn.layer_norm",
                f"axes={axes}",
                lambda x, a=axes, v=values: op.nn.layer_norm(x, *v, a),
                static=True,
            ),
            case(
                "nn.rms_norm",
                f"axes={axes}",
                lambda x, a=axes, v=values: op.nn.rms_norm(x, v[0], a),
                static=True,
            ),
        ]
    # TVM's lowering sorts the axes.
    square, values = (2, 4, 3, 4), scales(4, 4)
    cases.append(
        case(
            "nn.layer_norm",
            "axes=[3, 1]",
            lambda x, v=values: op.nn.layer_norm(x, *v, [3, 1]),
            square,
            static=True,
        )
    )
    for channels, axes in ((1, [2, 3]), (-3, [-2, -1]), (1, [2]), (3, [1, 2])):
        text, values = f"channels={channels}, axes={axes}", scales(SHAPE[channels])
        cases += [
            case(
                "nn.group_norm",
                text,
                lambda x, c=channels, a=axes, v=values: op.nn.group_norm(x, *v, 2, c, a),
            ),
            # TVM's lowering does not support negative axes, nor does batch_norm in training mode.
            case(
                "nn.instance_norm",
                text,
                lambda x, c=channels, a=axes, v=values: op.nn.instance_norm(x, *v, c, a),
                runs=channels > 0,
            ),
        ]
    for axis in (1, -1, -3):
        for training in (False, True):
            values = scales(SHAPE[axis], count=4)
            cases.append(
                case(
                    "nn.batch_norm",
                    f"axis={axis}" + ", training" * training,
                    lambda x, a=axis, t=training, v=values: op.nn.batch_norm(
                        x, *v, axis=a, training=t
                    ),
                    runs=axis > 0 or not training,
                )
            )
    for axis in (1, -3, -1, 2):
        slopes = constant(SHAPE[axis])
        cases.append(
            case(
                "nn.prelu",
                f"axis={axis}",
                lambda x, a=axis, s=slopes: op.nn.prelu(x, s, a),
                static=axis == 2,
            )
        )
    computed = case("nn.prelu", "computed", lambda x, s: op.nn.prelu(x, op.abs(s)), SHAPE, (8,))
    return [*cases, computed]


def pools_and_resizes() -> list[Case]:
    cases = []
    for rank, shape in SHAPES.items():
        names = f"NC{SPATIAL[rank + 2]}"
        last = f"N{SPATIAL[rank + 2]}C"
        forms = {
            "": {},
            "strides, padding": {"strides": 2, "padding": 1},
            "ceil": {"strides": 2, "ceil_mode": True},
            "channels last": {"layout": last},
            "another out_layout": {"out_layout": last},
        }
        for kind in ("max", "avg"):
            name = f"nn.{kind}_pool{rank}d"
            for text, attrs in forms.items():
                # TVM cannot lower another layout of the result.
                emit = partial(function_of(name), pool_size=2, **attrs)
                cases.append(case(name, text, emit, shape, runs="out_layout" not in attrs))
            blocks = partial(function_of(name), pool_size=2, layout=f"{names}4c")
            cases.append(case(name, "blocks of its own", blocks, (*shape, 4)))
        name = f"nn.adaptive_avg_pool{rank}d"
        for size in (1, 2, None):
            emit = partial(function_of(name), output_size=size and [size] * rank)
            cases.append(case(name, str(size), emit, shape, runs=size is not None))
        emit = partial(function_of(name), output_size=[2] * rank, layout=last)
        cases.append(case(name, "channels last", emit, shape))
        emit = partial(function_of(name), output_size=[2] * rank, layout=f"{names}4c")
        cases.append(case(name, "blocks of its own", emit, (*shape, 4)))
    for method in ("nearest_neighbor", "linear", "cubic"):
        for rank, size, layouts in (
            (2, (6, 5), ("NCHW", "NHWC", "NCHW4c")),
            (3, (6, 3, 5), ("NCDHW", "NDHWC", "NCDHW4c")),
        ):
            for layout in layouts:
                name = f"image.resize{rank}d"
                emit = partial(function_of(name), size=size, layout=layout, method=method)
                shape = (*SHAPES[rank], 4) if layout.endswith("c") else SHAPES[rank]
                cases.append(case(name, f"{method}, {layout}", emit, shape))
    return cases


def convolutions() -> list[Case]:
    """Convolutions without a desired layout."""
    return [
        case(
            name, "unlisted", partial(function_of(name), weight=constant(8, 8, *[2] * rank)), shape
        )
        for rank, shape in SHAPES.items()
        for name in (f"nn.conv{rank}d", f"nn.conv{rank}d_transpose")
    ]


CASES: tuple[Case, ...] = (
    *elementwise(),
    *broadcasting(),
    *reductions(),
    *joins_and_splits(),
    *slices_and_copies(),
    *gathers_and_scatters(),
    *norms(),
    *pools_and_resizes(),
    *convolutions(),
)
