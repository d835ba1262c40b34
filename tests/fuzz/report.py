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
"""Console output of a run: a table, and the faults grouped by cause."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .campaign import FAULTS, Result, Verdict


def summary(results: Mapping[str, Sequence[Result]]) -> Table:
    """A table with one row per campaign: the number of cases per verdict, and the total time."""
    table = Table(title="Fuzzing")
    table.add_column("campaign", no_wrap=True)
    for column in ("cases", *Verdict, "minutes"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, found in results.items():
        counts = Counter(result.verdict for result in found)
        minutes = sum(result.seconds for result in found) / 60
        cells = [str(counts[verdict]) for verdict in Verdict]
        table.add_row(name, str(len(found)), *cells, f"{minutes:.1f}")
    return table


def groups(results: Iterable[Result], verdicts: Sequence[Verdict]) -> list[list[Result]]:
    """Group the results with one of `verdicts` by cause, the largest group first."""
    by_cause: dict[tuple[Verdict, str], list[Result]] = {}
    for result in results:
        if result.verdict in verdicts:
            by_cause.setdefault((result.verdict, result.cause), []).append(result)
    return sorted(by_cause.values(), key=len, reverse=True)


def show_faults(console: Console, name: str, results: Sequence[Result]) -> None:
    """Print each group of faults of the campaign `name` with the command that reproduces it."""
    for group in groups(results, FAULTS):
        first = group[0]
        console.print(f"[bold]{name}: {first.verdict}, {len(group)} cases[/bold]")
        console.print(escape("\n".join(first.message.splitlines()[:12])), highlight=False)
        seeds = " ".join(str(result.seed) for result in group[:5])
        console.print(f"  seeds {seeds}; repeat: make fuzz ARGS='{name} --seed {first.seed}'\n")


def show_rejections(
    console: Console, name: str, results: Sequence[Result], limit: int = 10
) -> None:
    """Print the most frequent messages of rejected inputs of the campaign `name`."""
    for group in groups(results, (Verdict.REFUSED,))[:limit]:
        text = group[0].message.splitlines()[0][:150]
        console.print(f"  {len(group):5d}  {escape(text)}", highlight=False)
