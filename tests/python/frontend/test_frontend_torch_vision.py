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
"""Operators of torchvision."""

import pytest
import torch
import tvm
import tvm.testing
from tvm import relax

from helpers import torchvision_operators
from helpers.relax_modules import cpu
from helpers.torch_programs import check_function, export
from tvm_fixes.frontend.torch import from_exported_program

torchvision_operators.define()
vision = torch.ops.torchvision


def boxes_and_scores(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 2, generator=generator) * 10
    sides = torch.rand(count, 2, generator=generator) * 6
    scores = (torch.rand(count, generator=generator) * 8).round() / 8
    return torch.cat([corners, corners + sides], 1), scores


def suppressed(boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return boxes[vision.nms(boxes, scores, 0.4)]


class Suppression(torch.nn.Module):
    """The remaining boxes; their number is known only at run time."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return suppressed(boxes, scores)


def test_suppression() -> None:
    """Equal scores, empty boxes, and any number of boxes, including 0."""
    rows = torch.export.Dim("rows", max=99)
    example = boxes_and_scores(5)
    program = torch.export.export(Suppression(), example, dynamic_shapes=({0: rows}, {0: rows}))
    mod = from_exported_program(program)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for count in (40, 12, 1, 0):
        boxes, scores = boxes_and_scores(count, seed=count)
        if count == 12:
            boxes[::3, 2:] = boxes[::3, :2]
            boxes[9] = boxes[6]
        [got] = vm["main"](*map(tvm.runtime.from_dlpack, (boxes, scores)))
        torch.testing.assert_close(torch.from_dlpack(got), suppressed(boxes, scores))


def test_suppression_at_the_threshold() -> None:
    """An overlap that equals the threshold suppresses nothing."""
    boxes = torch.tensor([[0.0, 0, 2, 1], [1, 0, 3, 1], [0, 0, 2, 1]])
    scores = torch.tensor([0.5, 0.9, 0.1])
    for threshold in (1 / 3, 0.333, 0.334):
        check_function(lambda b, s, t=threshold: (b[vision.nms(b, s, t)],), boxes, scores)


REGIONS = torch.tensor(
    [[0, 1, 1, 9, 7], [1, -3, -2, 4, 4], [1, 3, 3, 3.2, 3.1], [0, 8, 2, 14, 20], [1, 5, 5, 2, 1.0]]
)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_means_of_regions(dtype: torch.dtype) -> None:
    """Regions that are small, negative or partly outside; fixed and adaptive samples."""
    x = torch.randn(2, 3, 8, 6, generator=torch.Generator().manual_seed(0)).to(dtype)

    def function(x: torch.Tensor, regions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            vision.roi_align(x, regions, 1.0, 2, 3, 2, False),
            vision.roi_align(x, regions, 0.5, 3, 2, 1, True),
            vision.roi_align(x, regions[:4], 0.25, 2, 2, -1, False),
            vision.roi_align(x, regions[:4], 1.0, 2, 1, 0, True),
        )

    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    check_function(function, x, REGIONS.to(dtype), tolerance=tolerance)


@pytest.mark.parametrize("has_mask", (True, False))
def test_deformable_convolution(has_mask: bool) -> None:
    """Groups, groups of offsets, strides, pads and dilations; offsets beyond the borders."""
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 4, 5, 6), (6, 2, 3, 2), (2, 24, 3, 6), (2, 12, 3, 6), (6,)
    x, weight, offset, mask, bias = (torch.randn(s, generator=generator) for s in shapes)
    numbers = (2, 1, 1, 1, 1, 2, 2, 2)
    check_function(
        lambda *tensors: (vision.deform_conv2d(*tensors, *numbers, has_mask),),
        *(x, weight, 3 * offset, mask, bias),
    )


def test_weight_of_symbolic_extents_is_rejected() -> None:
    class Convolution(torch.nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            x = torch.zeros(1, 1, 3, 3)
            empty = torch.zeros(1, 0, 2, 2)
            bias = torch.zeros(weight.shape[0])
            offset = torch.zeros(1, 8, 2, 2)
            return vision.deform_conv2d(
                x, weight, offset, empty, bias, *(1, 1, 0, 0, 1, 1, 1, 1), False
            )

    program = export(Convolution(), (torch.ones(3, 1, 2, 2),), dynamic=(0,))
    with pytest.raises(tvm.error.OpNotImplemented, match=r"'deform_conv2d': .*static extents"):
        from_exported_program(program)


if __name__ == "__main__":
    tvm.testing.main()
