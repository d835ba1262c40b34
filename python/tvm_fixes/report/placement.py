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
"""The layout of a drawing of kernel calls: rows from top to bottom, in columns.

A call is below those whose results it reads.  A long model continues in the next column, like the
text of a newspaper, so that all of it fits on a screen.  Neither dagre nor ELK has such columns:
both draw a chain of a thousand calls as one strip.  They would also lay out the page when it is
opened, and the page must be one file, which ELK makes 1.6 MB larger.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# The most calls in a row; others move down.
_MAX_WIDTH = 12

# An edge over more rows than this reserves no space, and is drawn behind the nodes.
_MAX_TRAIL = 24

# The width of a place in a row, and the height of a row, in pixels, as in graph.js.
_PLACE, _ROW = 192, 62

# The width of the drawing divided by its height.
_ASPECT = 1.65

_MIN_ROWS, _GAP = 8, 0.5
_SWEEPS = 3

# The pull of an edge that passes a row, and its width: small, so that it bends around the calls.
_TRAIL_WEIGHT = 0.001
_TRAIL_WIDTH = 0.3


@dataclass
class _Spot:
    """A call, or the place where an edge passes a row."""

    is_call: bool
    above: list["_Spot"]
    below: list["_Spot"]
    x: float = 0.0

    @property
    def weight(self) -> float:
        return 1.0 if self.is_call else _TRAIL_WEIGHT

    @property
    def width(self) -> float:
        return 1.0 if self.is_call else _TRAIL_WIDTH


@dataclass(frozen=True)
class Place:
    """The position of a call in the drawing.

    Attributes
    ----------
    x, y : float, int
        The center, in places of a row, and the row within the column.
    column : int
    trail : list of float
        Where the edges to its readers pass the rows below it, as `x`.
    """

    x: float
    y: int
    column: int
    trail: list[float]


def place(reads: Sequence[Sequence[int]]) -> list[Place]:
    """Place calls, given the calls that each reads; later ones, as in a loop, are ignored."""
    earlier = [sorted({one for one in of if one < at}) for at, of in enumerate(reads)]
    rows = _rows(earlier)
    columns = _columns(rows, earlier)
    column_of = [index for index, (begin, end) in enumerate(columns) for _ in range(begin, end)]
    spots = [_Spot(True, [], []) for _ in reads]
    trails: list[list[_Spot]] = [[] for _ in reads]
    layers: dict[int, list[_Spot]] = defaultdict(list)
    for call, row in enumerate(rows):
        layers[row].append(spots[call])
    for call, operands in enumerate(earlier):
        for operand in operands:
            length = rows[call] - rows[operand]
            if length <= _MAX_TRAIL and column_of[rows[call]] == column_of[rows[operand]]:
                _connect(
                    spots[operand], spots[call], trails[operand], length, rows, operand, layers
                )
    left = 0.0
    for begin, end in columns:
        part = [layers[row] for row in range(begin, end)]
        _arrange(part)
        edges = [(spot.x - spot.width / 2, spot.x + spot.width / 2) for row in part for spot in row]
        shift = left - min(edge for edge, _ in edges)
        left += max(edge for _, edge in edges) - min(edge for edge, _ in edges) + _GAP
        for spot in (spot for row in part for spot in row):
            spot.x += shift
    first = [begin for begin, _ in columns]
    return [
        Place(
            round(spot.x, 3),
            rows[call] - first[column_of[rows[call]]],
            column_of[rows[call]],
            [round(one.x, 3) for one in trails[call]],
        )
        for call, spot in enumerate(spots)
    ]


def _rows(earlier: Sequence[Sequence[int]]) -> list[int]:
    """The row of each call: below its operands; without operands, just above its first reader."""
    rows: list[int] = []
    widths: dict[int, int] = defaultdict(int)
    for operands in earlier:
        row = 1 + max((rows[operand] for operand in operands), default=-1)
        while operands and widths[row] >= _MAX_WIDTH:
            row += 1
        widths[row] += bool(operands)
        rows.append(row)
    readers: dict[int, int] = {}
    for call, operands in enumerate(earlier):
        for operand in operands:
            readers[operand] = min(readers.get(operand, rows[call]), rows[call])
    for call, operands in enumerate(earlier):
        if not operands:
            row = readers.get(call, 0 if call == 0 else rows[call - 1] + 1) - 1
            while widths[row] >= _MAX_WIDTH:
                row -= 1
            widths[row] += 1
            rows[call] = row
    # Leave out empty rows.
    numbers = {row: number for number, row in enumerate(sorted(set(rows)))}
    return [numbers[row] for row in rows]


def _columns(rows: Sequence[int], earlier: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Split the rows into columns where few edges pass, near the intended aspect ratio."""
    number = 1 + max(rows, default=-1)
    widths, passing = [0.0] * number, [0] * (number + 1)
    for call, operands in enumerate(earlier):
        widths[rows[call]] += 1
        for operand in operands:
            passing[rows[operand] + 1] += 1
            passing[rows[call] + 1] -= 1
    for row in range(number):
        passing[row + 1] += passing[row]
        # Edges from the row above end at the calls.
        widths[row] += _TRAIL_WIDTH * min(max(passing[row] - widths[row], 0), _MAX_WIDTH)

    def split(count: int) -> list[tuple[int, int]]:
        height = math.ceil(number / count)
        ends = [0]
        while ends[-1] + height + height // 10 < number:
            near = range(ends[-1] + height - height // 10, ends[-1] + height + height // 10 + 1)
            ends.append(min(near, key=lambda row: (passing[row], abs(row - ends[-1] - height))))
        return list(zip(ends, [*ends[1:], number], strict=True))

    def aspect(columns: list[tuple[int, int]]) -> float:
        width = sum(max(widths[begin:end]) + _GAP for begin, end in columns)
        return width * _PLACE / (max(end - begin for begin, end in columns) * _ROW)

    if not number:
        return []
    found = [split(1)]
    for count in range(2, number // _MIN_ROWS + 1):
        if aspect(found[-1]) >= _ASPECT:
            break
        found.append(split(count))
    return min(found, key=lambda columns: abs(math.log(aspect(columns) / _ASPECT)))


def _connect(
    above: _Spot,
    below: _Spot,
    trail: list[_Spot],
    length: int,
    rows: Sequence[int],
    operand: int,
    layers: dict[int, list[_Spot]],
) -> None:
    """Add an edge; edges from the same operand share the places where they pass rows."""
    while len(trail) < length - 1:
        spot = _Spot(False, [], [])
        _join(trail[-1] if trail else above, spot)
        layers[rows[operand] + len(trail) + 1].append(spot)
        trail.append(spot)
    _join(trail[length - 2] if length > 1 else above, below)


def _join(above: _Spot, below: _Spot) -> None:
    above.below.append(below)
    below.above.append(above)


def _arrange(layers: list[list[_Spot]]) -> None:
    """Order the spots of each row so that few edges cross, then align them with their neighbors."""
    for layer in layers:
        for index, spot in enumerate(layer):
            spot.x = index
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = {id(spot): _pull(spot, down) for spot in layer}
            layer.sort(key=lambda spot: wanted[id(spot)])
            for index, spot in enumerate(layer):
                spot.x = index
    for down in (True, False, True):
        for layer in layers if down else reversed(layers):
            _spread(layer, [_pull(spot, down) for spot in layer])


def _pull(spot: _Spot, down: bool) -> float:
    """The position to which the spots above or below pull a spot."""
    others = spot.above if down else spot.below
    if not others:
        return spot.x
    return sum(o.weight * o.x for o in others) / sum(o.weight for o in others)


def _spread(layer: list[_Spot], wanted: list[float]) -> None:
    """Place the spots of a row without overlap, as near as possible to the wanted positions."""
    offsets = list(_offsets(layer))
    # Neighbors that would overlap form a block: its weight, its wanted position, its length.
    blocks: list[tuple[float, float, int]] = []
    for spot, goal, offset in zip(layer, wanted, offsets, strict=True):
        weight, mean, length = spot.weight, goal - offset, 1
        while blocks and blocks[-1][1] > mean:
            other, before, more = blocks.pop()
            mean = (weight * mean + other * before) / (weight + other)
            weight, length = weight + other, length + more
        blocks.append((weight, mean, length))
    means = [mean for _, mean, length in blocks for _ in range(length)]
    for spot, mean, offset in zip(layer, means, offsets, strict=True):
        spot.x = mean + offset


def _offsets(layer: list[_Spot]) -> Iterator[float]:
    """The position of each spot if the spots of the row touch."""
    at, before = 0.0, 0.0
    for spot in layer:
        at += (before + spot.width) / 2 if before else 0.0
        before = spot.width
        yield at
