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
"""The tiers of the test suite, and its tables."""

from pathlib import Path

import pytest
import tvm.testing

from helpers import grids
from helpers.coverage_tables import CoverageTable, CoverageTables, OutcomeTable

CASES = [(height, width) for height in range(20) for width in range(20)]


def test_the_ci_tier_takes_a_fixed_sample_in_order(monkeypatch):
    monkeypatch.setattr(grids, "_tier", "ci")
    chosen = grids.sample(CASES, 30)
    assert len(set(chosen)) == 30
    assert chosen == sorted(chosen)
    assert chosen == grids.sample(CASES, 30)
    assert chosen != grids.sample(CASES, 30, seed=1)
    assert grids.sample(CASES, len(CASES) + 1) == CASES


def test_the_quick_tier_takes_half_of_it(monkeypatch):
    monkeypatch.setattr(grids, "_tier", "quick")
    chosen = grids.sample(CASES, 29)
    assert len(set(chosen)) == 15
    assert chosen == sorted(chosen)
    assert len(grids.sample(CASES, 1)) == 1
    monkeypatch.setattr(grids, "_tier", "ci")
    assert set(chosen) < set(grids.sample(CASES, 29))


def test_full_tier_takes_every_case(monkeypatch):
    monkeypatch.setattr(grids, "_tier", "full")
    assert grids.sample(CASES, 30) == CASES


def test_one_build_of_the_quick_tier_has_a_third_of_the_named_cases(monkeypatch):
    cases = {f"case {number}": number for number in range(20)}
    few_cases = dict(list(cases.items())[:7])
    monkeypatch.setattr(grids, "_tier", "quick")
    chosen = grids.thinned(cases)
    assert len(chosen) == 6 and chosen == grids.thinned(cases)
    assert list(chosen) == [name for name in cases if name in chosen]
    assert len(grids.thinned(few_cases)) == 4
    monkeypatch.setattr(grids, "_tier", "ci")
    assert grids.thinned(cases) == cases


@pytest.mark.parametrize("cases, count", [([], 3), (CASES, 0), (CASES, -1)])
def test_an_empty_sample_is_an_error(cases, count):
    with pytest.raises(ValueError, match=f"{count} of {len(cases)} cases"):
        grids.sample(cases, count)


def test_an_unknown_tier_is_an_error():
    with pytest.raises(ValueError, match="unknown tier 'medium'"):
        grids.use_tier("medium")


def test_a_table_counts_cases_and_passes():
    table = CoverageTable("grid")
    for kernel in ("OIHW", "IOHW", "IOHW"):
        with table.case(kernel=kernel, data_layout="NCHW"):
            pass
    with pytest.raises(AssertionError, match="unequal"), table.case(kernel="OIHW", data_layout="?"):
        raise AssertionError("unequal")
    assert table.markdown("From here.").splitlines() == [
        "# grid",
        "",
        "From here.",
        "",
        "| kernel | data layout | cases | passed |",
        "| --- | --- | --- | --- |",
        "| IOHW | NCHW | 2 | 2 |",
        "| OIHW | ? | 1 | 0 |",
        "| OIHW | NCHW | 1 | 1 |",
        "| total |  | 4 | 3 |",
    ]


def test_a_table_rejects_other_columns():
    table = CoverageTable("grid")
    with table.case(kernel="OIHW"):
        pass
    with pytest.raises(ValueError, match="'grid' has columns"), table.case(data="NCHW"):
        pass


def test_a_written_table_names_the_versions_in_use(tmp_path):
    tables = CoverageTables()
    assert tables("grid") is tables("grid")
    with tables("grid").case(kernel="OIHW"):
        pass
    (path,) = tables.write(tmp_path / "tables")
    assert path == tmp_path / "tables" / "grid.md"
    assert f"apache-tvm {tvm.__version__}" in path.read_text()


TESTS_FOR_EACH_TIER = """
import hypothesis
import pytest
from helpers.grids import batched, sample

@pytest.mark.parametrize("case", sample(list(range(10)), 3))
def test_case(case, coverage_table):
    with coverage_table("parity").case(odd=bool(case % 2)):
        assert case != 4

def test_profile(request):
    expected = {"quick": 8, "ci": 25, "full": 500}[request.config.getoption("tier")]
    assert hypothesis.settings().max_examples == expected
    assert batched(5).max_examples == expected // 5
"""


# The ci tier differs from the quick one by two numbers.
@pytest.mark.parametrize(
    "tier, counted, failed",
    [("quick", 2, 0), pytest.param("ci", 3, 0, marks=grids.from_tier("ci")), ("full", 10, 1)],
)
def test_a_session_runs_its_tier(pytester, tier, counted, failed):
    folder = Path(__file__).parent
    pytester.makeini(f"[pytest]\npythonpath = {folder}\nmarkers =\n  relay\n")
    pytester.makeconftest((folder / "conftest.py").read_text())
    pytester.makepyfile(TESTS_FOR_EACH_TIER)
    result = pytester.runpytest_subprocess("--tier", tier, "--tables", "tables", "--strict-markers")
    # `test_profile` also passes, hence the + 1.
    result.assert_outcomes(passed=counted - failed + 1, failed=failed)
    table = (pytester.path / "tables" / "parity.md").read_text()
    assert f"| total | {counted} | {counted - failed} |" in table


MARKED = """
import pytest
from helpers.grids import few, from_tier

@from_tier("ci")
def test_long():
    pass

@from_tier("full")
def test_very_long():
    pass

@few(3)
@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("other", range(2))
def test_each(case, other):
    pass

@few(3)
@pytest.mark.parametrize("case", [0, pytest.param(1, marks=from_tier("ci"))])
def test_two(case):
    pass
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """A session of a tier, of tests with a text."""
    pytester.makeini("[pytest]\nmarkers =\n  from_tier\n  few\n")
    pytester.makeconftest(
        "from helpers import grids\n\n"
        "def pytest_collection_modifyitems(config, items):\n    grids.deselect(config, items)\n"
    )

    def run(text, tier, *arguments):
        monkeypatch.setattr(grids, "_tier", tier)
        pytester.makepyfile(test_marks=text)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-v", *arguments)

    return run


@pytest.mark.parametrize("tier, run, left", [("quick", 4, 8), ("ci", 11, 1), ("full", 12, 0)])
def test_marks_leave_tests_to_later_tiers(session, tier, run, left):
    session(MARKED, tier).assert_outcomes(passed=run, deselected=left)


def test_the_same_few_cases_run_each_time(session):
    first, second = (session(MARKED, "quick").outlines for _ in range(2))
    cases = [line.split()[0] for line in first if "test_each[" in line]
    assert len(cases) == 3
    assert cases == [line.split()[0] for line in second if "test_each[" in line]


def test_a_named_test_runs_in_each_tier(session):
    session(MARKED, "quick", "test_marks.py::test_very_long").assert_outcomes(passed=1)


def test_each_file_has_a_test_in_each_tier(session):
    result = session(MARKED.partition("@few")[0], "quick")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no test of test_marks.py is in the quick tier*"])


def test_outcomes_are_counted_per_importer():
    table = OutcomeTable("cases", ["passed", "failed"])
    for importer, outcome in (("a", "passed"), ("a", "passed"), ("b", "failed")):
        table.count(importer, outcome, operator="Add")
    table.count("b", "passed", operator="Sub")
    assert table.markdown("From here.") == (
        "# cases\n\nFrom here.\n\n"
        "| operator | a: passed | a: failed | b: passed | b: failed |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| Add | 2 | 0 | 0 | 1 |\n"
        "| Sub | 0 | 0 | 1 | 0 |\n"
        "| total | 2 | 0 | 1 | 1 |\n"
    )
    with pytest.raises(ValueError, match="table 'cases' has columns"):
        table.count("a", "passed", dtype="int8")
    with pytest.raises(ValueError, match="unknown outcome 'lost'"):
        table.count("a", "lost", operator="Add")


def test_a_measurement_table_keeps_the_order_of_its_rows():
    tables = CoverageTables()
    table = tables.measurement_table("sizes")
    table.add(model="b", peak_MB=1.5)
    table.add(model="a", peak_MB="exceeded")
    assert tables.measurement_table("sizes").markdown("From here.") == (
        "# sizes\n\nFrom here.\n\n"
        "| model | peak MB |\n| --- | --- |\n| b | 1.5 |\n| a | exceeded |\n"
    )
    with pytest.raises(ValueError, match="table 'sizes' has columns"):
        table.add(model="c")


if __name__ == "__main__":
    tvm.testing.main()
