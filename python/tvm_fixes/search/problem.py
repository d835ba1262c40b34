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
"""The problem of a model that ``reduce`` and ``bisect`` search for."""

import math
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..errors import UsageError


class Kind(StrEnum):
    """A way in which a model is wrong."""

    WRONG = "wrong"
    """An output is not equal to the reference's."""
    CRASHES = "crashes"
    """The compiler or the compiled model crashes, or exceeds the time limit."""
    FAILS = "fails"
    """The compilation or a run raises an error."""
    SLOWER = "slower"
    """A run takes more than a multiple of the reference's time."""
    LARGER = "larger"
    """The artifact has more than a number of bytes."""
    CHECK = "check"
    """A command exits with 0."""


@dataclass(frozen=True)
class Problem:
    """A problem, and when a trial shows it.

    Attributes
    ----------
    kind : Kind
    limit : float
        The multiple of ``SLOWER``, the bytes of ``LARGER``.
    command : str
        The command of ``CHECK``; it gets a path as its last argument.
    cause : str
        Of ``CRASHES`` and ``FAILS``: the :func:`cause_of` the message that another trial must have,
        too; empty for any.
    """

    kind: Kind = Kind.WRONG
    limit: float = 0.0
    command: str = ""
    cause: str = ""

    def __post_init__(self) -> None:
        if self.kind in (Kind.SLOWER, Kind.LARGER) and not 0 < self.limit < float("inf"):
            raise UsageError(f"{self.kind}: expected a limit > 0, got {self.limit}")
        if self.kind is Kind.CHECK and not self.command.strip():
            raise UsageError("check: expected a command, got an empty one")

    def __str__(self) -> str:
        return {
            Kind.WRONG: "not equal to the reference",
            Kind.CRASHES: "crashes",
            Kind.FAILS: "fails",
            Kind.SLOWER: f"slower than {self.limit:g} x the reference",
            Kind.LARGER: f"larger than {self.limit:.0f} bytes",
            Kind.CHECK: f"`{self.command}` exits with 0",
        }[self.kind]

    def like(self, observed: "Observed") -> "Problem":
        """This problem with the cause that a trial showed."""
        if self.kind not in (Kind.CRASHES, Kind.FAILS):
            return self
        return replace(self, cause=cause_of(observed.what))

    def doubt(self, observed: "Observed") -> str:
        """A sentence, if the limit is within the noise of a trial's latency; empty otherwise."""
        for degree in observed.degrees if self.kind is Kind.SLOWER else ():
            if degree.low <= self.limit <= degree.high:
                return self.doubt_of(degree)
        return ""

    def doubt_of(self, degree: "Degree") -> str:
        """A sentence about a latency whose noise includes the limit."""
        return f"the limit of {self.limit:g} is within the noise of {degree}"


class Measure(StrEnum):
    """The unit of a degree; an earlier one decides before a later one."""

    LATENCY = "latency"
    """The time of a run relative to the reference's, with its quartiles over the turns."""
    BYTES = "bytes"
    """The size of the artifact."""
    UNDEFINED = "undefined"
    """The number of wrong elements whose error is undefined, such as a NaN."""
    ERROR = "error"
    """The largest error relative to the tolerance."""
    ELEMENTS = "elements"
    """The number of wrong elements."""


@dataclass(frozen=True)
class Degree:
    """How much of a problem a trial shows.

    Attributes
    ----------
    measure : Measure
    value : float
    low, high : float
        The range of the noise.
    """

    measure: Measure
    value: float
    low: float
    high: float

    @classmethod
    def counted(cls, measure: Measure, value: float) -> "Degree":
        """The degree of a trial that gives the same value each time, up to rounding errors.

        These are up to the tolerance; a number of elements changes by about its square root.
        """
        noise = {Measure.BYTES: 0.0, Measure.ERROR: 1.0}.get(measure, math.sqrt(value))
        return cls(measure, value, value - noise, value + noise)

    def __str__(self) -> str:
        value = f"{self.value:.3g}"
        match self.measure:
            case Measure.LATENCY:
                noise = f"noise: {self.low:.3g} to {self.high:.3g}"
                return f"{value} x the reference ({noise})"
            case Measure.BYTES:
                return f"{self.value:.0f} bytes"
            case Measure.UNDEFINED:
                return f"no finite error at {self.value:.0f} elements"
            case Measure.ERROR:
                return f"an error of {value} x the tolerance"
            case Measure.ELEMENTS:
                return f"{self.value:.0f} wrong elements"

    def is_worse(self, other: "Degree") -> bool:
        """Whether it is larger, beyond the noise of both."""
        return self.low > other.high


@dataclass(frozen=True)
class Observed:
    """The result of one trial.

    Attributes
    ----------
    shows : bool or None
        Whether it showed the problem; None if it had another problem that hides the answer, such as
        an error for a model that should be not equal.
    what : str
        The result in one line.
    seconds : float
        Wall-clock time.
    fixes : tuple of str
        The fixes applied.
    sizes : dict of str to int
        The sizes of the symbolic dims at which an output differs.
    degrees : tuple of Degree
        How much of the problem it shows, by each measure of the problem; none if that is unknown.
    accepted : bool
        Whether the outputs are accepted, or were not compared.
    magnitude : float
        The factor of random floats in the inputs with which it differs.
    tolerances : tuple of float
        Relative and absolute tolerances beyond which an output differs; empty if none differs.
    unstable : str
        A sentence about an output that is not the same in all runs with the same inputs, if the
        trial repeats the run, and if there is one.
    """

    shows: bool | None
    what: str
    seconds: float = 0.0
    fixes: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    degrees: tuple[Degree, ...] = ()
    accepted: bool = True
    magnitude: float = 1.0
    tolerances: tuple[float, ...] = ()
    unstable: str = ""


def disagreement(first: Observed, again: Observed) -> str:
    """A sentence about two trials of one configuration; empty if they agree."""
    if first.shows is again.shows:
        return ""
    return f"not deterministic: two trials of the model find: {first.what}; {again.what}"


def cause_of(message: str) -> str:
    """The part of a message that faults with the same cause share: no names and no numbers."""
    line = next(iter(message.splitlines()), "")
    bare = re.sub(r"'[^']*'|\[[^\]]*\]|\([^)]*\)|\{[^}]*\}", "", line)
    return re.sub(r"[^A-Za-z_. ]+", "", bare).strip()[:60]
