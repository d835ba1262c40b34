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
"""FInferType of the transposed convolutions."""

import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.relax_modules import build, tensor
from tvm_fixes.support import switches

pytestmark = pytest.mark.native

each_rank = pytest.mark.parametrize("rank", [1, 2, 3])


def conv_transpose(rank: int, data: relax.TensorType, **attrs) -> tvm.IRModule:
    """A call with a kernel of 8 input channels, 4 output channels and 3 taps along each axis."""
    operator = getattr(relax.op.nn, f"conv{rank}d_transpose")
    inputs = {"x": data, "w": tensor(8, 4, *[3] * rank)}
    return build(inputs, lambda builder, x, w: builder.emit(operator(x, w, **attrs)))


@each_rank
@pytest.mark.parametrize("packed", [False, True])
def test_output_padding_between_stride_and_dilation(rank, packed):
    attrs = {"strides": [1, 2, 1], "dilation": [3, 2, 2], "output_padding": [2, 1, 1]}
    attrs = {name: values[:rank] for name, values in attrs.items()}
    n, d = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("d", "int64")
    shape = [n, 8, d, 6, 5][: 2 + rank]
    if packed:
        plain = "NC" + "DHW"[-rank:]
        attrs |= {"data_layout": plain + "4c", "out_layout": plain}
        shape = [n, 2, *shape[2:], 4]
    mod = conv_transpose(rank, tensor(*shape), **attrs)
    # (in - 1) * stride + (3 - 1) * dilation + output_padding + 1
    expected = [n, 4, d + 8, 16, 10][: 2 + rank]
    tvm.ir.assert_structural_equal(mod["main"].ret_ty, tensor(*expected))


@pytest.mark.parametrize("rank, axis", [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
@pytest.mark.parametrize("stride, dilation", [(2, 3), (3, 2), (1, 1)])
def test_output_padding_beyond_stride_and_dilation(rank, axis, stride, dilation):
    largest = max(stride, dilation)
    output_padding = [largest if i == axis else 0 for i in range(rank)]
    message = (
        rf"relax.nn.conv{rank}d_transpose: output_padding .*{largest}.* must be less than the "
        rf"larger of strides .*{stride}.* and dilation .*{dilation}.* in each dimension"
    )
    attrs = {"strides": [stride] * rank, "dilation": [dilation] * rank}
    with pytest.raises(ValueError, match=message):
        conv_transpose(rank, tensor(2, 8, *[4] * rank), output_padding=output_padding, **attrs)


@each_rank
def test_switch(rank, monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "conv-transpose-output-padding")
    with pytest.raises(ValueError, match="output padding less than the strides"):
        conv_transpose(
            rank, tensor(2, 8, *[4] * rank), dilation=[2] * rank, output_padding=[1] * rank
        )


if __name__ == "__main__":
    tvm.testing.main()
