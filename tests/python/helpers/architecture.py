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
"""The picture docs/architecture.svg from text.

``python tests/python/helpers/architecture.py > docs/architecture.svg`` writes it.
"""

import sys
from html import escape
from pathlib import Path

COLUMNS = """\
# model
PyTorch | torch.export, module or .pt2
ONNX | float, quantized, scikit-learn
Relay | text and JSON of TVM 0.6 to 0.19

# frontend/
torch/ | types, sizes, control flow, updates
onnx/ | computed shapes, integers, ml
relay/ | type inference, translation to Relax

# pipeline
relax/transform/ | layouts, integers, fusion, folding
relax/legalize/ | operators become loop nests
tirx/ | tiles, vectors, guards, GPUs

# runtime/
relax.build | TVM with LLVM or CUDA
artifact | library, manifest, weights
CompiledModel | run, save; needs only apache-tvm
"""
"""The flow from left to right: a heading and boxes for each column."""

BANDS = """\
verifier/ | checks the IRModule after the import and between passes | 1 2
compare | with PyTorch or ONNX Runtime | 3 3
fixes/ | one declaration for each fix: id, switch, symptom, probe | 1 2
doctor | tries each fix on the installed TVM | 3 3
"""
"""Boxes below the flow: name, text, and the first and last column above them."""

LICENSE = "\n".join(
    line.removeprefix("#").strip() for line in Path(__file__).read_text().splitlines()[:12]
)

WIDTH, GAP, HEIGHT, STEP = 232, 28, 50, 66
MARGIN, TOP = 12, 40
STYLE = """\
text{font:12px system-ui,sans-serif;fill:#444}
.n{font-weight:600;font-size:14px;fill:#111}
.h{font-weight:600;font-size:13px;fill:#666}
rect{rx:6px;fill:#fff;stroke:#b8c0cc}
.b rect{fill:#eef3fb}
path{fill:none;stroke:#66758a;stroke-width:1.5}"""


def columns() -> list[tuple[str, list[list[str]]]]:
    """The heading and the boxes of each column; a box has a name and a text."""
    parts = [part.splitlines() for part in COLUMNS.split("\n\n")]
    return [(head.removeprefix("# "), [box.split(" | ") for box in rest]) for head, *rest in parts]


def bands() -> list[list[str]]:
    return [line.split(" | ") for line in BANDS.splitlines()]


def _left(column: int) -> int:
    return MARGIN + column * (WIDTH + GAP)


def _box(x: int, y: int, width: int, name: str, text: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}"/>'
        f'<text class="n" x="{x + 10}" y="{y + 21}">{escape(name)}</text>'
        f'<text x="{x + 10}" y="{y + 39}">{escape(text)}</text>'
    )


def _arrow(path: str) -> str:
    return f'<path d="{path}" marker-end="url(#a)"/>'


def svg() -> str:
    """The picture."""
    lines = []
    for place, (head, boxes) in enumerate(columns()):
        x = _left(place)
        lines.append(f'<text class="h" x="{x}" y="{TOP - 12}">{escape(head)}</text>')
        for row, (name, text) in enumerate(boxes):
            y = TOP + row * STEP
            lines.append(_box(x, y, WIDTH, name, text))
            if place == 1:  # each format has its importer
                lines.append(_arrow(f"M{x - GAP + 2} {y + HEIGHT // 2}h{GAP - 6}"))
            elif row and place > 1:  # steps, one after the other
                lines.append(_arrow(f"M{x + 20} {y + HEIGHT - STEP}v{STEP - HEIGHT - 4}"))
    middle, last = TOP + HEIGHT // 2, TOP + HEIGHT // 2 + 2 * STEP
    bus = [f"M{_left(2) - GAP} {middle + row * STEP}h{GAP // 2}" for row in (1, 2)]
    lines.append(f'<path d="{"".join(bus)}V{middle}"/>')
    lines.append(_arrow(f"M{_left(2) - GAP} {middle}h{GAP - 4}"))
    lines.append(_arrow(f"M{_left(3) - GAP} {last}h{GAP // 2}V{middle}h{GAP // 2 - 4}"))
    top = TOP + 3 * STEP + 8
    filled: dict[str, int] = {}
    for name, text, span in bands():
        first, last = map(int, span.split())
        row = filled.get(span, 0)
        filled[span] = row + 1
        x, y = _left(first), top + row * STEP
        width = _left(last) + WIDTH - x
        box = _box(x, y, width, name, text)
        lines.append(f'<g class="b">{box}</g>')
    width, height = _left(4) - GAP + MARGIN, top + 2 * STEP
    return "\n".join(
        [
            f"<!--\n{LICENSE}\n-->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            "<title>How a model becomes a library</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="a" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" '
            'markerHeight="6" orient="auto">'
            '<path d="M0 0L6 3L0 6z" style="fill:#66758a;stroke:none"/></marker></defs>',
            f'<rect width="{width}" height="{height}" style="fill:#f7f8fa;stroke:none"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(svg())
