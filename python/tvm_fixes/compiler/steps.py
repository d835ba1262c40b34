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
"""The steps of a compilation: import, lowering and build."""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import tvm
from tvm import relax

from ..errors import UsageError
from ..lowering import Stages
from ..relax.analysis import activation_transforms
from ..relax.constants.provenance import Origins
from ..relax.kernel_calls import KernelCalls, flops_of, layouts_of
from ..relax.updates import with_updates
from ..source import Source
from ..support.ambient import Facts
from ..support.memory import Scratch
from ..target import cuda
from .options import are_outside
from .progress import Run
from .verification import Verification


def import_model(source: Source, static: bool) -> tuple[tvm.IRModule, Origins, list[str]]:
    """Import a model.

    Parameters
    ----------
    source : Source
    static : bool
        Raise an error if a dim of an input stays symbolic.

    Returns
    -------
    mod : tvm.IRModule
    origins : Origins
        The provenance of its constants.
    warned : list of str
        The importer's warnings.

    Raises
    ------
    UsageError
        If an input cannot be made static.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        mod = source.to_relax()
        if static:
            _check_static(mod["main"])
        origins = Origins(mod, source.parameters())
    # Exactly UserWarning: libraries issue deprecation warnings as other classes or as subclasses.
    texts = (" ".join(str(w.message).split()) for w in warned if w.category is UserWarning)
    return mod, origins, list(dict.fromkeys(texts))


def declare_updates(
    mod: tvm.IRModule, source: Source, updated_inputs: Mapping[str, str]
) -> tvm.IRModule:
    """The module, whose ``main`` may overwrite some inputs.

    Parameters
    ----------
    mod : tvm.IRModule
        The imported module.
    source : Source
    updated_inputs : mapping of str to str
        For the name of each input, the name of the output with its new value.

    Raises
    ------
    UsageError
        If an input or output is unknown, their types differ, or two inputs share an output.
    """
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


def scratch_for(source: Source, weights: str) -> Scratch | None:
    """A file for large constants during compilation; None if the library stores the weights."""
    if not are_outside(weights, source.parameter_bytes):
        return None
    scratch = Scratch()
    source.keep_in(scratch)
    return scratch


def _check_static(main: relax.Function) -> None:
    for param in main.params:
        is_number = isinstance(param.ty, relax.ShapeType)
        shape = param.ty if is_number else getattr(param.ty, "shape", None)
        dims = getattr(shape, "values", None)
        if dims is None or not all(isinstance(dim, tvm.tirx.IntImm) for dim in dims):
            raise UsageError(f"cannot make input {param.name!r} static: its type is {param.ty}")


class Lowered(NamedTuple):
    """A module that is ready to build.

    Attributes
    ----------
    mod : tvm.IRModule
    transforms : int
        The number of layout transforms of activations that are left after the layout stage.
    kernels : KernelCalls
        The kernels that it calls, with the nodes of the model that each call computes.
    """

    mod: tvm.IRModule
    transforms: int
    kernels: KernelCalls


def lower(
    mod: tvm.IRModule,
    lowering: Stages,
    target: tvm.target.Target,
    run: Run,
    verification: Verification,
    facts: Facts,
) -> Lowered:
    """Run each stage of the pipeline as a step.

    Parameters
    ----------
    mod : tvm.IRModule
        The imported module.
    lowering : Stages
    target : tvm.target.Target
    run : Run
    verification : Verification
        Verifies the module after ``Legalize``.
    facts : Facts
        Where the passes record facts.
    """

    def through(mod: tvm.IRModule, stages: tuple[tvm.transform.Pass, ...]) -> tvm.IRModule:
        for stage in stages:
            with run.step(stage.info.name), target:
                mod = stage(mod)
        return mod

    with verification.context():
        mod = through(mod, lowering.operators)
        transforms, layouts = len(activation_transforms(mod)), layouts_of(mod)
        mod = through(mod, lowering.kernels)
        verification.check(mod, run, "verify kernels")
        flops = flops_of(mod)
        mod = through(mod, lowering.schedules)
        mod = through(mod, lowering.instructions)
    return Lowered(mod, transforms, facts.of(KernelCalls)[-1].described(flops, layouts))


def build_executable(mod: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """Build a module that :func:`lower` returned."""
    if target.kind.name == "cuda":
        return cuda.build(mod, target)
    return relax.build(mod, target, relax_pipeline=None)
