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
"""The smallest part of a model that still shows a problem."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler.further_inputs import Groups
from ..errors import CompileError, UsageError
from ..source import Source
from ..source.onnx import OnnxSource
from ..source.relax import RelaxSource
from ..source.torch import TorchSource
from .degrees import Limit, Variant
from .journal import Journal
from .kernel_parts import statements_of
from .masked import with_masked_value
from .minimize import improve, minimize
from .parts import Candidate, Parts, smallest
from .problem import Kind, Measure, Observed, Problem, cause_of, disagreement
from .relax_parts import RelaxCandidate, RelaxParts, is_defined
from .script import write_script
from .trial import REPEAT, Progress, Settings, Subject, Trial, observe


@dataclass(frozen=True)
class Reduction:
    """The result of :func:`reduce`.

    Attributes
    ----------
    source : str
        The name of the model.
    problem : str
    what : str
        How the smallest candidate shows the problem.
    before : int
        The number of operators of the model.
    operators : list of str
        The operators of the smallest candidate.
    model, script : str
        The files of the smallest candidate, and of the Python script that reproduces the problem.
    trials : int
        The number of trials, without those of an earlier, interrupted search.
    seconds : float
    interrupted : bool
        Whether a Ctrl-C ended the search early.
    value : str
        The intermediate value that was searched instead of the outputs; empty for these.
    unstable : str
        That runs of the model with the same inputs differ, with values, or that the noise of its
        latency includes the limit, so that the result may depend on chance; empty otherwise.
    """

    source: str
    problem: str
    what: str
    before: int
    operators: list[str]
    model: str
    script: str
    trials: int
    seconds: float
    interrupted: bool
    value: str = ""
    unstable: str = ""

    def to_json(self) -> str:
        """The fields as a JSON object."""
        return json.dumps(asdict(self), indent=2)


def reduce(
    model: Any,
    problem: Problem | None = None,
    *,
    output: str | os.PathLike[str] = "reduced",
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Reduction:
    """Reduce a model to a few operators that still show a problem.

    What a part reads of the rest of the model becomes inputs and constants, with the values of a
    run of the reference.

    Parameters
    ----------
    model : str, path or object
        A model with a reference, in a form that :func:`tvm_fixes.compile` accepts; or a Relax
        module, also as a ``.py`` or ``.json`` file, whose reference is TVM's own pipeline.  A
        PrimFunc, or a module of them, is a model that calls each of them; the statements of kernels
        are reduced, too.
    problem : Problem, optional
        By default, that an output is not equal to the reference's.
    output : path
        A directory for the model, the script and the journal.  If it has the journal of the same
        search, which was interrupted, the search resumes.
    settings : Settings, optional
        How to build and run the candidates.
    progress : callable, optional
        Called with a :class:`Trial` after each trial.

    Returns
    -------
    reduction : Reduction

    Raises
    ------
    UsageError
        If a model of this kind cannot be taken apart, or the memory limit is too small for any
        trial.
    CompileError
        If the model cannot be opened, or does not show the problem.
    """
    settings = settings or Settings()
    problem = problem or Problem()
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    source = settings.open(model)
    opened = settings.open_whole(model, source)
    inputs = settings.draw_inputs(opened)
    settings.check_memory()
    further = settings.further_inputs(opened, problem)
    whole = _whole(model, inputs, further, settings)
    first = observe(problem, whole, settings)
    if progress is not None:
        progress(Trial("the whole model", 0, first))
    masked = with_masked_value(model, settings, problem, first)
    if masked.value != settings.value:
        settings, source = masked, masked.open(model)
        whole = _whole(model, inputs, further, settings)
        first = observe(problem, whole, settings)
        if progress is not None:
            progress(Trial(f"the value {settings.value}", 0, first))
    if not first.shows:
        unstable = first.unstable
        if first.shows is False and not unstable:
            unstable = disagreement(first, observe(problem, whole, settings))
        what = "; ".join(filter(None, (first.what, unstable)))
        raise CompileError(f"{source.name}: expected: {problem}; found: {what}")
    problem = problem.like(first)
    inputs = whole.at(first.sizes, first.magnitude).inputs
    parts = parts_of(source, inputs)
    journal = Journal(
        folder / "journal.jsonl", _fingerprint(source, inputs, problem, settings, first)
    )
    search = _Search(problem, settings, journal, progress, folder)
    interrupted = False
    try:
        search.run(parts)
    except KeyboardInterrupt:
        interrupted = True
    if search.smallest is None:
        if interrupted:
            raise KeyboardInterrupt
        unstable = first.unstable or disagreement(first, observe(problem, whole, settings))
        what = "; ".join(filter(None, (search.whole, unstable)))
        raise CompileError(
            f"{source.name}: no part of the model shows the problem: {problem}; {what}"
        )
    found = search.result(source, len(parts.operators), interrupted)
    unstable = first.unstable or problem.doubt(first)
    return replace(found, unstable=unstable or ("" if interrupted else search.disagreement()))


def parts_of(source: Source, inputs: list[np.ndarray]) -> Parts:
    """The operators of a model.

    Raises
    ------
    UsageError
        If a model of this kind cannot be taken apart.
    """
    named = {spec.name: array for spec, array in zip(source.inputs, inputs, strict=True)}
    if isinstance(source, OnnxSource):
        from .onnx_parts import OnnxParts

        return OnnxParts(source.whole_model(), named)
    if isinstance(source, TorchSource):
        from .torch_parts import TorchParts

        return TorchParts(source.program, inputs)
    if isinstance(source, RelaxSource):
        return RelaxParts(source.to_relax(), inputs)
    raise UsageError(f"{source.name}: cannot reduce a model of this kind")


def _whole(model: Any, inputs: list[np.ndarray], further: Groups, settings: Settings) -> Subject:
    def save(_folder: Path) -> Path:
        if not isinstance(model, str | os.PathLike):
            raise UsageError("a check of a model needs a file")
        return Path(model)

    opened = partial(settings.open, model)
    return Subject(opened, settings.build, inputs, save, further, repeat=REPEAT)


def _fingerprint(
    source: Source, inputs: list[np.ndarray], problem: Problem, settings: Settings, first: Observed
) -> str:
    """Identifies a search: the model, the inputs, the problem and the options."""
    digest = hashlib.sha256()
    for _, data in source.parameters():
        digest.update(data.data)
    for array in inputs:
        digest.update(np.ascontiguousarray(array).tobytes())
    limits = replace(settings, inputs={}, seconds=0.0, gigabytes=None)
    for text in (source.name, problem, limits, cause_of(first.what)):
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()


class _Search:
    """The search for the smallest candidate, which keeps the smallest so far."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        journal: Journal,
        progress: Progress | None,
        folder: Path,
    ) -> None:
        self._problem, self._settings, self._journal = problem, settings, journal
        self._progress, self._folder = progress, folder
        self._start = time.monotonic()
        self.trials = 0
        self.whole = "its operators are not a model of their own"
        self.smallest: tuple[Candidate, Observed] | None = None

    def run(self, parts: Parts) -> None:
        """Drop operators, then outputs and extents, then the values of inputs and weights."""
        candidate = smallest(parts, self._shows)
        if isinstance(candidate, RelaxCandidate):
            candidate = self._with_smaller_kernels(candidate)
        if candidate is not None:
            minimize(candidate.values(), lambda kept: self._shows(candidate.with_drawn(kept)))

    def _with_smaller_kernels(self, candidate: RelaxCandidate) -> RelaxCandidate:
        """Drop statements of the kernels of a candidate, then simplify those that are left."""
        every = range(len(statements_of(candidate.mod)))

        def without(kept: Sequence[int]) -> RelaxCandidate | None:
            return candidate.without_statements(set(every) - set(kept))

        def is_enough(kept: Sequence[int]) -> bool:
            part = without(kept)
            return part is not None and self._shows(part)

        if not every:
            return candidate
        smaller = without(minimize(every, is_enough)) or candidate
        return improve(smaller, lambda one: one.with_simpler_kernels(), self._shows)

    def _shows(self, candidate: Candidate) -> bool:
        known = self._journal.find(candidate.label)
        if known is not None:
            tolerances = tuple(known.get("tolerances", ()))
            observed = Observed(
                known["shows"], known["what"], known["seconds"], tolerances=tolerances
            )
        else:
            observed = self._tried(candidate)
            if observed.shows and self._depends_on_memory(candidate):
                observed = replace(observed, shows=None, what="it reads what it has not written")
            names = ("shows", "what", "seconds", "tolerances")
            self._journal.add(candidate.label, {name: getattr(observed, name) for name in names})
        if observed.shows:
            self.smallest = candidate, observed
        elif self.smallest is None:
            self.whole = f"{candidate.label}: {observed.what}"
        if self._progress is not None:
            size = len(candidate.operators)
            self._progress(Trial(candidate.label, size, observed, known is not None))
        return bool(observed.shows)

    def _tried(self, candidate: Candidate) -> Observed:
        """The trial of a candidate; near the limit of a latency, up to five."""

        def once() -> Observed:
            self.trials += 1
            return observe(self._problem, self._subject(candidate), self._settings)

        variant = Variant(once)
        shows = Limit.of(self._problem).is_exceeded(variant)
        degree = variant.degrees.get(Measure.LATENCY)
        if shows is not None or degree is None:
            return replace(variant.first, shows=shows)
        return replace(variant.first, shows=None, what=self._problem.doubt_of(degree))

    def _depends_on_memory(self, candidate: Candidate) -> bool:
        """Whether a candidate's kernels read what they have not written, so that it proves nothing.

        An error or a crash of the compiler is one for such kernels, too.
        """
        if not isinstance(candidate, RelaxCandidate) or not statements_of(candidate.mod):
            return False
        runs = self._problem.kind in (Kind.WRONG, Kind.SLOWER, Kind.CHECK)
        return runs and not is_defined(candidate.mod, candidate.arrays())

    def _settings_of(self, candidate: Candidate) -> Settings:
        """How to open and build a candidate, whose inputs are others than those of the model."""
        options = dict(self._settings.options)
        shapes = self._settings.shapes or {}
        left = {name: shape for name, shape in shapes.items() if name in candidate.inputs}
        if options.pop("static", False) and not isinstance(candidate, RelaxCandidate):
            left = {name: array.shape for name, array in candidate.inputs.items()}
        if candidate.symbolic:
            left = {}  # the part has its own names of dims
        return replace(
            self._settings,
            shapes=left or None,
            sizes={},
            params=None,
            inputs={},
            value="",
            options=options,
        )

    def _subject(self, candidate: Candidate) -> Subject:
        model, settings = candidate.model(), self._settings_of(candidate)
        return Subject(
            partial(settings.open, model),
            settings.build,
            list(candidate.inputs.values()),
            candidate.save,
            symbolic=candidate.symbolic,
        )

    def disagreement(self) -> str:
        """A sentence, if the runs or the trials of the smallest candidate disagree."""
        assert self.smallest is not None
        candidate, observed = self.smallest
        again = replace(self._subject(candidate), repeat=REPEAT)
        repeated = observe(self._problem, again, self._settings)
        unstable = repeated.unstable or disagreement(observed, repeated)
        return unstable or self._problem.doubt(repeated)

    def result(self, source: Source, before: int, interrupted: bool) -> Reduction:
        """Write the smallest candidate."""
        assert self.smallest is not None
        candidate, observed = self.smallest
        model = candidate.save(self._folder)
        heading = f"{self._problem}: {observed.what}"
        settings = self._settings_of(candidate)
        script = write_script(
            candidate, heading, self._problem, settings, self._folder, observed.tolerances
        )
        return Reduction(
            source=source.name,
            problem=str(self._problem),
            what=observed.what,
            before=before,
            operators=candidate.operators,
            model=str(model),
            script=str(script),
            trials=self.trials,
            seconds=round(time.monotonic() - self._start, 1),
            interrupted=interrupted,
            value=self._settings.value,
        )
