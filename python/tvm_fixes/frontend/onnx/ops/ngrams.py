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
"""TfIdfVectorizer of integers, for which TVM has no converter."""

from itertools import pairwise

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from ....fixes.onnx_importer import OPERATORS
from ....support import switches
from ..call import Call, converts
from .shape_operands import shaped

_MODES = ("TF", "IDF", "TFIDF")


@converts("TfIdfVectorizer", fix=OPERATORS)
def convert_tfidf_vectorizer(call: Call) -> relax.Expr:
    """Convert a TfIdfVectorizer: the occurrences of each n-gram in a row, or its weight.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If the operand or an attribute is invalid, or two n-grams have one index.
    """
    switches.note(OPERATORS)
    data, extents = shaped(call, 0, "input")
    if len(extents) not in (1, 2):
        raise call.invalid("rank of input", len(extents), "expected 1 or 2")
    mode = call.text("mode", "")
    if mode not in _MODES:
        raise call.invalid("attribute mode", repr(mode), f"expected one of {', '.join(_MODES)}")
    grams = _grams(call)
    indexes = call.attributes["ngram_indexes"]
    if len(indexes) != sum(len(each) for each in grams) or len(set(indexes)) < len(indexes):
        raise call.invalid("attribute ngram_indexes", list(indexes), "expected one per n-gram")
    weights = call.attributes.get("weights")
    if weights and len(weights) != len(indexes):
        raise call.invalid("number of weights", len(weights), f"expected {len(indexes)}")

    builder = call.builder
    if len(extents) == 1:
        data = builder.emit(op.expand_dims(data, 0))
    data = builder.emit(op.astype(data, "int64"))
    shortest, longest = call.attributes["min_gram_length"], call.attributes["max_gram_length"]
    counts, columns = [], []
    place = 0
    for each in grams:
        size = each.shape[1]
        if len(each) and shortest <= size <= longest:
            # A single element has no gaps, so that it is counted once.
            gaps = 1 if size == 1 else call.attributes["max_skip_count"] + 1
            constant = relax.const(each, "int64")
            counts.append(builder.emit_te(_occurrences, data, constant, gaps))
            columns += indexes[place : place + len(each)]
        place += len(each)
    # The last column is that of an index without an n-gram.
    none = builder.emit(op.astype(op.sum(data * relax.const(0, "int64"), [1], True), "float32"))
    order = np.full(max(indexes) + 1, len(columns), "int64")
    order[columns] = np.arange(len(columns))
    joined = builder.emit(op.concat([*counts, none], 1))
    result = builder.emit(op.take(joined, relax.const(order), 1))
    if mode == "IDF":
        is_found = builder.emit(op.greater(result, relax.const(0, "float32")))
        result = builder.emit(op.astype(is_found, "float32"))
    if mode != "TF" and weights:
        factors = np.zeros(len(order), "float32")
        factors[list(indexes)] = weights
        result = builder.emit(op.multiply(result, relax.const(factors)))
    return op.squeeze(result, [0]) if len(extents) == 1 else result


def _grams(call: Call) -> list[np.ndarray]:
    """The n-grams of the pool by length: one row each, of 1, 2, … elements."""
    if "pool_int64s" not in call.attributes:
        raise call.invalid("attribute pool_int64s", "missing", "expected n-grams of integers")
    pool = np.array(call.attributes["pool_int64s"], "int64")
    starts = [*call.attributes["ngram_counts"], len(pool)]
    grams = []
    for size, (start, end) in enumerate(pairwise(starts), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % size:
            raise call.invalid("attribute ngram_counts", starts[:-1], "expected starts of n-grams")
        grams.append(pool[start:end].reshape(-1, size))
    return grams


def _occurrences(data: te.Tensor, grams: te.Tensor, gaps: int) -> te.Tensor:
    """The occurrences of each n-gram in each row, with fewer than `gaps` elements between two."""
    rows, length = data.shape
    size = int(grams.shape[1])
    start = te.reduce_axis((0, length), "start")
    gap = te.reduce_axis((0, gaps), "gap")

    def count(row: tirx.Var, gram: tirx.Var) -> tirx.Expr:
        places = [start + element * (gap + 1) for element in range(size)]
        is_inside = places[-1] < length
        same = [data[row, place] == grams[gram, index] for index, place in enumerate(places)]
        one, zero = tirx.const(1, "float32"), tirx.const(0, "float32")
        is_same = tirx.Select(tirx.all(*same), one, zero)
        return te.sum(tirx.if_then_else(is_inside, is_same, zero), axis=[start, gap])

    return te.compute((rows, grams.shape[0]), count, "occurrences")
