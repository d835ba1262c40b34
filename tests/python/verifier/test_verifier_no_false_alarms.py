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
"""No findings in valid modules: models as imported, and after every pass."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
import tvm
import tvm.testing
from tvm import relax

from helpers.architectures import ARCHITECTURES, import_architecture
from helpers.coverage_tables import CoverageTables
from helpers.grids import sample
from test_convert_models import MODELS as CONVERTED
from test_convert_models import SHAPES, imported, instance
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import pipeline
from tvm_fixes.verifier import Diagnostic, verify

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

PIPELINES: dict[str, Callable[[], tvm.transform.Pass]] = {
    "default": lambda: relax.pipeline.get_pipeline("default_build"),
    "zero": lambda: tvm.transform.Sequential(
        [relax.pipeline.get_pipeline("zero"), relax.pipeline.get_pipeline("default_build")]
    ),
    "cpu_generic": lambda: relax.backend.cpu_generic.get_default_pipeline(
        tvm.target.Target("llvm")
    ),
    "tvm_fixes": pipeline,
    "tvm_fixes NHWC": partial(pipeline, layout="NHWC"),
}


@tvm.ir.instrument.pass_instrument
@dataclass
class VerifyAfterPasses:
    """Verifies the module after each pass."""

    modules: int = 0
    warnings: int = 0
    errors: list[tuple[str, Diagnostic]] = field(default_factory=list)
    passes: set[str] = field(default_factory=set)

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self.check(mod, str(info.name))

    def check(self, mod: tvm.IRModule, after: str) -> None:
        if not isinstance(mod, tvm.IRModule):
            return
        self.modules += 1
        self.passes.add(after)
        for diagnostic in verify(mod):
            if diagnostic.severity == "error":
                self.errors.append((after, diagnostic))
            else:
                self.warnings += diagnostic.severity == "warning"


CASES = list(itertools.product([*CONVERTED, *ARCHITECTURES], SHAPES, PIPELINES))


def module_of(name: str, shapes: str) -> tvm.IRModule:
    if name not in CONVERTED:
        return import_architecture(ARCHITECTURES[name], shapes)
    if shapes == "static":
        return imported(name, "torch", shapes)
    # A symbol that occurs only in a multiple cannot be solved for, which is an error.
    dims = {axis: dim for axis, dim in CONVERTED[name].dims().items() if not hasattr(dim, "root")}
    program = torch.export.export(*instance(name, shapes), dynamic_shapes=(dims,))
    return from_exported_program(program)


def checked(name: str, shapes: str, lowering: str) -> tuple[VerifyAfterPasses, str]:
    """The findings after the import and after each pass, and the outcome of the build.

    Models that TVM cannot lower (dynamic lengths lost by its passes, dtypes of some constants) are
    verified up to that point: the outcome is ``built``, or the class of the exception.
    """
    mod = module_of(name, shapes)
    instrument = VerifyAfterPasses()
    instrument.check(mod, "import")
    target = tvm.target.Target("llvm")
    try:
        with target, tvm.transform.PassContext(instruments=[instrument]):
            relax.build(mod, target, relax_pipeline=PIPELINES[lowering]())
    except Exception as error:
        return instrument, type(error).__name__
    return instrument, "built"


@pytest.mark.parametrize("name, shapes, lowering", sample(CASES, 3, seed=1684))
def test_nothing_is_wrong_with_a_model(
    name: str, shapes: str, lowering: str, coverage_table: CoverageTables
):
    instrument, end = checked(name, shapes, lowering)
    counts = {
        "end": end,
        "passes": len(instrument.passes),
        "modules": instrument.modules,
        "errors": len(instrument.errors),
        "warnings": instrument.warnings,
    }
    table = coverage_table("verifier_no_false_alarms")
    with table.case(model=name, shapes=shapes, pipeline=lowering, **counts):
        assert instrument.modules > 1
        assert not instrument.errors


if __name__ == "__main__":
    tvm.testing.main()
