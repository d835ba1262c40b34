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
"""The steps of a compilation, in order: each sets fields of the :class:`Compilation`."""

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import target as targets
from ..errors import UsageError
from ..lowering import Stages, layout_named, stages
from ..observe.dump_ir import DumpIR
from ..observe.pass_times import PassTimes
from ..observe.watch_fixes import WatchFixes, explanation_of
from ..relax.analysis import activation_transforms, has_dtype
from ..relax.constants.provenance import Origins, constants_of
from ..relax.constants.size_check import check_size
from ..relax.kernel_calls import KernelCalls, flops_of, layouts_of
from ..relax.transform.fold_constant import Unfolded
from ..relax.transform.fuse_quantized import QuantizedProduct
from ..relax.updates import with_updates
from ..runtime.arguments import INPUT, check_arrays
from ..runtime.compiled_model import CompiledModel
from ..runtime.manifest import Signature
from ..runtime.report import Report
from ..source import Source, open_source
from ..source.examples import MAGNITUDES
from ..source.inputs import fitting
from ..support import activity, ambient
from ..support.ambient import Facts
from ..support.instruments import watched_by
from ..support.memory import Scratch
from ..support.switches import Applied
from ..target import cuda
from ..target.code_parts import divisible
from ..tirx.transform.apply_gpu_schedule import ScheduledKernel
from ..user_passes import UserPassRun, read
from . import linking
from .caching import Cached
from .further_inputs import FurtherInputs
from .options import Options, are_outside, check_machine
from .progress import Run
from .reference import Reference, compare_outputs, start_reference
from .verification import Verification

_SIXTEEN_BITS = frozenset({"float16", "bfloat16"})


@dataclass
class Compilation:
    """One compilation: its options, and what its steps made, in their order."""

    options: Options
    ended: ExitStack
    """Ends what lasts as long as the compilation."""
    facts: Facts
    """The findings of passes, importers and lowering rules."""
    run: Run
    verification: Verification
    # load
    cached: Cached | None = field(init=False)
    """The cache, if it is used."""
    source: Source = field(init=False)
    target: tvm.target.Target = field(init=False)
    dump: DumpIR | None = field(init=False)
    scratch: Scratch | None = None
    """A file for large constants; None if the library stores the weights."""
    outside: dict[tvm.runtime.Tensor, relax.Var] = field(default_factory=dict)
    """The weights outside the library, which lowering collects."""
    lowering: Stages = field(init=False)
    # import_model
    mod: tvm.IRModule = field(init=False)
    """The imported module, and then the lowered one."""
    origins: Origins = field(init=False)
    """The provenance of its constants."""
    warnings: list[str] = field(init=False)
    has_16_bits: bool = field(init=False)
    """Whether it computes with 16-bit floats, which overflow soon."""
    # watch
    times: PassTimes = field(default_factory=PassTimes)
    # verify
    signature: Signature = field(init=False)
    # run_reference
    reference: Reference | None = None
    """The original model, after its first run."""
    not_compared: str = ""
    """Why its reference accepts no inputs."""
    # lower
    transforms: int = field(init=False)
    """The number of layout transforms of activations after the layout stage."""
    kernels: KernelCalls = field(init=False)
    """The kernels that the module calls, with the nodes of the model that each call computes."""
    # build
    inside: list[tvm.runtime.Tensor] = field(init=False)
    """The constants in the library."""
    constant_bytes: int = field(init=False)
    executable: relax.VMExecutable = field(init=False)
    # export, compare
    model: CompiledModel = field(init=False)
    report: Report = field(init=False)

    @property
    def is_found(self) -> bool:
        """Whether the model comes from the cache."""
        return self.cached is not None and hasattr(self, "report") and self.report.cached

    def take(self, model: CompiledModel | None) -> None:
        """Take a model from the cache, if it is there, instead of what the next steps make."""
        if model is not None:
            assert model.report is not None
            self.model, self.report = model, model.report


def load(source: Any, options: Options, ended: ExitStack) -> Compilation:
    """Check the options, open the model, and plan its lowering."""
    facts = ended.enter_context(ambient.collect())
    verification = Verification(options.verify, options.verify_each)
    compilation = Compilation(options, ended, facts, Run(options.progress), verification)
    with compilation.run.step("load"):
        options.check()
        compilation.target = targets.resolve(options.target)
        compilation.options = options = replace(
            options, layout=layout_named(options.layout), passes=read(options.passes)
        )
        check_machine(options, compilation.target)
        compilation.cached = cached = Cached.of(options, compilation.target, source)
        if cached is not None and not options.compare:
            compilation.take(cached.find_file())
            if compilation.is_found:
                return compilation
        compilation.dump = None if options.dump_ir is None else DumpIR(options.dump_ir)
        opened = open_source(source, options.shapes, trust=options.trust, params=options.params)
        if options.sizes:
            opened.set_sizes(options.sizes)
        opened.set_magnitude(options.magnitude)
        if options.static:
            opened.make_static()
        compilation.source = opened
        if are_outside(options.weights, opened.parameter_bytes):
            compilation.scratch = Scratch()
            opened.keep_in(compilation.scratch)
        compilation.lowering = stages(
            layout=options.layout,
            runtime_checks=options.runtime_checks,
            max_growth=options.max_growth,
            unsafe_indices=options.unsafe_indices,
            passes=options.passes,
            merge_constants=True,
            collected=None if compilation.scratch is None else compilation.outside,
        )
    return compilation


def import_model(compilation: Compilation) -> None:
    """Import the model, with the importer's warnings."""
    source, options = compilation.source, compilation.options
    with compilation.run.step("import"):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)
            mod = source.to_relax()
            if options.static:
                _check_static(mod["main"])
            compilation.origins = Origins(mod, source.parameters())
        # Exactly UserWarning: libraries issue deprecation warnings as other classes or subclasses.
        texts = (" ".join(str(w.message).split()) for w in warned if w.category is UserWarning)
        compilation.warnings = list(dict.fromkeys(texts))
        compilation.has_16_bits = has_dtype(mod["main"], _SIXTEEN_BITS)
        compilation.mod = _with_updates(mod, source, options.updated_inputs or {})


def _check_static(main: relax.Function) -> None:
    for param in main.params:
        is_number = isinstance(param.ty, relax.ShapeType)
        shape = param.ty if is_number else getattr(param.ty, "shape", None)
        dims = getattr(shape, "values", None)
        if dims is None or not all(isinstance(dim, tvm.tirx.IntImm) for dim in dims):
            raise UsageError(f"cannot make input {param.name!r} static: its type is {param.ty}")


def _with_updates(
    mod: tvm.IRModule, source: Source, updated_inputs: Mapping[str, str]
) -> tvm.IRModule:
    """The module, whose ``main`` may overwrite some inputs: see :func:`tvm_fixes.compile`."""
    if not updated_inputs:
        return mod
    main = mod["main"]
    signature = source.signature(main)
    outputs = {spec.name: index for index, spec in enumerate(signature.outputs)}
    inputs = {spec.name: index for index, spec in enumerate(signature.inputs)}
    updates: dict[str, int] = {}
    for name, output in updated_inputs.items():
        for word, given, known in (("input", name, inputs), ("output", output, outputs)):
            if given not in known:
                raise UsageError(
                    f"updated_inputs: unknown {word} {given!r}; {word}s of {source.name}: "
                    f"{', '.join(known)}"
                )
        old, new = signature.inputs[inputs[name]], signature.outputs[outputs[output]]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise UsageError(
                f"updated_inputs: expected an output with the type of its input, got {old} and "
                f"{new}"
            )
        if outputs[output] in updates.values():
            raise UsageError(
                f"updated_inputs: expected an output for each input, got {output!r} for several"
            )
        updates[str(main.params[inputs[name]].name)] = outputs[output]
    return with_updates(mod, updates)


def watch(compilation: Compilation) -> None:
    """Watch the passes, for the terminal and as the options ask for."""
    if activity.is_heard():
        compilation.ended.enter_context(watched_by(activity.ReportPasses()))
    if compilation.dump is not None:
        compilation.ended.enter_context(compilation.dump.watching(compilation.mod))
    if compilation.options.time_passes:
        compilation.ended.enter_context(watched_by(compilation.times))
    if compilation.options.explain:
        compilation.ended.enter_context(watched_by(WatchFixes()))


def verify(compilation: Compilation) -> None:
    """Verify the imported module, and read its inputs and outputs."""
    compilation.verification.check(compilation.mod, compilation.run, "verify")
    compilation.signature = compilation.source.signature(compilation.mod["main"])


def look_up(compilation: Compilation) -> None:
    """Look for the module in the cache, if it is used."""
    if compilation.cached is None:
        return
    with compilation.run.step("cache"):
        model = compilation.cached.find_module(
            compilation.mod,
            compilation.source.name,
            compilation.signature,
            compilation.origins,
            compilation.facts,
            compilation.warnings,
        )
        compilation.take(model)


def run_reference(compilation: Compilation) -> None:
    """Run the original model, if its outputs are to be compared, with inputs that it accepts."""
    options, source = compilation.options, compilation.source
    if not options.compare or not source.has_reference:
        return
    with compilation.run.step("reference"):
        if options.inputs is not None:
            reference: Reference | None
            reference = Reference(source, fitting(source.chosen_inputs(), options.inputs))
        else:
            reference, compilation.not_compared = start_reference(source, options.seed)
        if reference is None:
            # The reason may be a size that was chosen.
            signature = compilation.signature
            first = source.example_inputs(np.random.default_rng(options.seed))
            pairs = zip(signature.inputs, first, strict=True)
            check_arrays(pairs, signature.bounds, INPUT, signature.sizes)
        else:
            compilation.reference = compilation.ended.enter_context(reference)
            reference.outputs()


def lower(compilation: Compilation) -> None:
    """Run each stage of the pipeline as a step."""
    lowering, origins = compilation.lowering, compilation.origins

    def through(stages: tuple[tvm.transform.Pass, ...]) -> None:
        for stage in stages:
            with compilation.run.step(stage.info.name), compilation.target:
                compilation.mod = stage(compilation.mod)

    with (
        ambient.within(scratch=compilation.scratch, note_constant=origins.add),
        compilation.verification.context([one.name for one in read(compilation.options.passes)]),
    ):
        through(lowering.operators)
        compilation.transforms = len(activation_transforms(compilation.mod))
        layouts = layouts_of(compilation.mod)
        through(lowering.kernels)
        compilation.verification.check(compilation.mod, compilation.run, "verify kernels")
        flops = flops_of(compilation.mod)
        through(lowering.schedules)
        through(lowering.instructions)
    compilation.kernels = compilation.facts.of(KernelCalls)[-1].described(flops, layouts)


def build(compilation: Compilation) -> None:
    """Check the size of the constants, and build the module."""
    origins, outside = compilation.origins, compilation.outside
    with compilation.run.step("build"):
        compilation.inside = constants_of(compilation.mod)
        constants = [*compilation.inside, *outside]
        origins.forget_others(constants)
        compilation.constant_bytes, large = check_size(
            constants,
            origins,
            compilation.source.parameter_bytes,
            compilation.options.max_size_ratio,
        )
        compilation.warnings += large
        compilation.executable = build_executable(compilation.mod, compilation.target)


def build_executable(mod: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """Build a module that :func:`lower` returned."""
    if target.kind.name == "cuda":
        return cuda.build(mod, target)
    return relax.build(divisible(mod), target, relax_pipeline=None)


def export(compilation: Compilation) -> None:
    """Link the library, load it if it runs on this machine, and report the compilation."""
    origins = compilation.origins
    with compilation.run.step("export"):
        compilation.model = linking.export(
            compilation.executable,
            compilation.target,
            compilation.signature,
            origins.records(compilation.inside),
            origins.named(compilation.outside),
            compilation.kernels,
            linking.Memory.of(compilation.mod, "main", len(compilation.signature.outputs)),
            strip=compilation.options.strip,
        )
    compilation.report = _report(compilation)


def keep(compilation: Compilation) -> None:
    """Store the model in the cache, if it is used and has no such model."""
    if compilation.cached is None:
        return
    with compilation.run.step("cache"):
        compilation.model.report = compilation.report
        compilation.cached.keep(compilation.model, compilation.source.files_beside)


def compare(compilation: Compilation) -> None:
    """Compare the outputs, if there is a reference, and complete the report."""
    options, reference = compilation.options, compilation.reference
    if reference is not None:
        with compilation.run.step("compare"):
            compilation.report = compare_outputs(
                compilation.model,
                reference,
                compilation.report,
                options.rtol,
                options.atol,
                seed=options.seed if options.inputs is None else None,
            )
            if options.inputs is None:
                others = FurtherInputs(compilation.model, reference, options.rtol, options.atol)
                magnitudes = MAGNITUDES if compilation.has_16_bits else ()
                further = compilation.source.further_inputs(options.seed, magnitudes)
                compilation.report = others.added(compilation.report, further)
    seconds = dict(compilation.run.seconds)
    compilation.model.report = compilation.report = replace(compilation.report, seconds=seconds)


def _report(compilation: Compilation) -> Report:
    facts = compilation.facts
    products = facts.of(QuantizedProduct)
    return Report(
        source=compilation.source.name,
        layout=compilation.options.layout,
        seconds={},
        artifact_bytes=compilation.model.manifest.nbytes,
        parameter_bytes=compilation.source.parameter_bytes,
        activation_transforms=compilation.transforms,
        fixes=sorted(Applied(facts)),
        constant_bytes=compilation.constant_bytes,
        warnings=compilation.warnings,
        unproved=compilation.verification.unproved,
        unfolded=list(map(str, facts.of(Unfolded))),
        integer_products=sum(product.obstacle is None for product in products),
        float_products=[str(product) for product in products if product.obstacle],
        fallbacks=[str(kernel) for kernel in facts.of(ScheduledKernel) if kernel.failures],
        user_passes={run.name: run.changed for run in facts.of(UserPassRun)},
        explanation=explanation_of(facts) if compilation.options.explain else None,
        options=compilation.options.shaping(),
        passes=compilation.times.found(),
        not_compared=compilation.not_compared,
    )


def save(compilation: Compilation) -> None:
    """Save the artifact, unless its outputs differ from the reference's."""
    output = compilation.options.output
    if output is not None and compilation.report.accepted is not False:
        with compilation.run.step("save"):
            compilation.model.save(output)
