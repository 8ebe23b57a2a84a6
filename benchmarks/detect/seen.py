"""One case through Oddnode and, at will, through variants of it; the samples for the rivals on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib import import_module

from benchmarks.detect.cache import SIMULATION, Cache, digest, sources
from benchmarks.detect.incidents import CaseSpec, recording_of
from benchmarks.detect.matrix import CaseMatrix, Collector
from benchmarks.detect.simulated import SimulatedSource, Tape
from benchmarks.detect.witness import HIDDEN, Grade, Witness, graded
from detector.core.parameters import LAYERS, Parameters
from detector.evaluation.builtin import farthest_signal, findings_of
from detector.evaluation.model import Findings, Rules
from detector.outcome import Outcome, Status, Verdict
from detector.pipeline import Pipeline
from detector.replay import play
from detector.source.incident_file import Recording
from grouping.catalog import Catalog, load_catalog

ODDNODE = "Oddnode"
RULES = Rules()


@lru_cache(maxsize=1)
def _catalog() -> Catalog:
    return load_catalog()


@dataclass(frozen=True, slots=True)
class Variant:
    """Oddnode with other parameters.

    Parameters
    ----------
    name
        Name in tables.
    parameters
        Knobs; the step is taken from each case.
    constants
        Constants of the core that are no knobs, as ``module.NAME``, and their values in this variant.
    """

    name: str = ODDNODE
    parameters: Parameters = field(default_factory=Parameters)
    constants: tuple[tuple[str, float], ...] = ()

    def pipeline(self, step_s: float) -> Pipeline:
        """Return a fresh pipeline."""
        return Pipeline(_catalog(), replace(self.parameters, step_s=step_s))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give its constants their values while a block runs."""
        places = [
            (import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name, _ in self.constants
        ]
        usual = [getattr(module, name) for module, name in places]
        for (module, name), (_, value) in zip(places, self.constants, strict=True):
            setattr(module, name, value)
        try:
            yield
        finally:
            for (module, name), value in zip(places, usual, strict=True):
                setattr(module, name, value)


NEVER_S = 1e9

WORDS = {
    "direct": "direct signals",
    "absence": "absence",
    "peer": "robust z",
    "habit": "changes of habit",
    "trend": "trend",
    "standing": "what stands from the start",
    "independence": "one cause counts once",
    "one by one": "nodes fail one by one",
    "recurrence": "what comes back",
}
"""Layers of evidence in the words of the tables."""

VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(),
        *(
            Variant(f"without {WORDS[layer]}", Parameters(layers=tuple(x for x in LAYERS if x != layer)))
            for layer in LAYERS
        ),
        *(Variant(f"{WORDS[layer]} alone", Parameters(layers=(layer,))) for layer in LAYERS[:5]),
        Variant("without group events", Parameters(group_event_share=1.01)),
        Variant("without habit", Parameters(habit_s=NEVER_S)),
        Variant(
            "plain continuity",
            constants=(
                ("detector.core.continuity.LEAK", NEVER_S),
                ("detector.core.judge.SOONER_FROM", NEVER_S),
            ),
        ),
        Variant("signals of a target do not agree", constants=(("detector.core.fusion.AGREEMENT", 0.0),)),
        Variant("a target weighs 0.5", constants=(("detector.core.fusion.TARGET_SHARE", 0.5),)),
        Variant("a target weighs 0.8", constants=(("detector.core.fusion.TARGET_SHARE", 0.8),)),
        Variant("continuity 2 min", Parameters(continuity_s=120.0)),
        Variant("continuity 8 min", Parameters(continuity_s=480.0)),
        Variant("z from 4", Parameters(z_threshold=4.0)),
        Variant("z from 7", Parameters(z_threshold=7.0)),
    )
}
"""What can be named on the command line; each is a row of the tables."""


def variant_of(text: str) -> Variant:
    """Return a named variant, or one made of ``name=parameter:value,parameter:value``.

    Raises
    ------
    ValueError
        When the name or a parameter is unknown, or a value is no number.
    """
    name, equals, rest = text.partition("=")
    if not equals:
        if name not in VARIANTS:
            raise ValueError(
                f"unknown variant {name!r}; known: {', '.join(VARIANTS)}, or NAME=PARAMETER:VALUE"
            )
        return VARIANTS[name]
    known = {one.name for one in fields(Parameters)}
    changed: dict[str, float] = {}
    for item in rest.split(","):
        key, _, value = item.partition(":")
        if key not in known:
            raise ValueError(
                f"unknown parameter {key!r} of variant {name!r}; known: {', '.join(sorted(known))}"
            )
        changed[key] = type(getattr(Parameters(), key))(float(value))
    return Variant(name, replace(Parameters(), **changed))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Reached:
    """How near a faulty node came to being called.

    Parameters
    ----------
    node
        Faulty node.
    score
        Highest score between the onset and the end plus the grace.
    after_s
        Seconds from the onset to it.
    pending_s
        Longest time without a break in which it was pending or a suspect.
    seen
        The strongest evidence at the highest score, in words.
    farthest
        Metric and part that was farthest from its peers at the end of the fault.
    """

    node: str
    score: float
    after_s: float
    pending_s: float
    seen: str
    farthest: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One case after Oddnode saw it.

    Parameters
    ----------
    recording
        The case with its labels.
    n_hidden
        Faults that left no trace.
    findings
        By name of variant.
    reached
        Of the first variant.
    content
        Digest of the labels and the samples that rivals get, empty without the latter.
    seconds
        CPU seconds by phase.
    """

    recording: Recording
    n_hidden: int
    findings: Mapping[str, Findings]
    reached: tuple[Reached, ...]
    content: str
    seconds: Mapping[str, float] = field(compare=False)


class Watch:
    """Keeps the best verdict on each faulty node of a case.

    Parameters
    ----------
    case
        The case.
    pipeline
        The pipeline that is replayed.
    """

    def __init__(self, case: CaseSpec, pipeline: Pipeline) -> None:
        self._case, self._pipeline = case, pipeline
        self._best: dict[str, tuple[float, Verdict]] = {}
        self._farthest: dict[str, str] = {}
        self._run: dict[str, float] = {}
        self._longest: dict[str, float] = {}

    def __call__(self, outcome: Outcome) -> None:
        """Take in one evaluation."""
        grace = RULES.grace(self._case.config.step_s)
        due = {f.node for f in self._case.node_faults if f.onset <= outcome.at <= f.end + grace}
        if not due:
            return
        for verdict in outcome.verdicts:
            if verdict.node in due:
                run = self._run.get(verdict.node, 0.0) + self._case.config.step_s
                self._run[verdict.node] = run if verdict.status in (Status.PENDING, Status.SUSPECT) else 0.0
                self._longest[verdict.node] = max(
                    self._longest.get(verdict.node, 0.0), self._run[verdict.node]
                )
                best = self._best.get(verdict.node)
                if best is None or verdict.score > best[1].score:
                    self._best[verdict.node] = outcome.at, verdict
        for fault in self._case.node_faults:
            if fault.node not in self._farthest and outcome.at >= min(fault.end, self._case.end) - 60:
                self._farthest[fault.node] = " ".join(farthest_signal(self._pipeline, fault.node)).strip()

    def reached(self) -> tuple[Reached, ...]:
        """Return what was kept, one for each node with a fault."""
        found = []
        for node in dict.fromkeys(fault.node for fault in self._case.node_faults):
            onset = min(f.onset for f in self._case.node_faults if f.node == node)
            farthest = self._farthest.get(node, "")
            if node not in self._best:
                found.append(Reached(node, 0.0, 0.0, 0.0, "no verdict", farthest))
                continue
            at, verdict = self._best[node]
            told = verdict.evidence[0] if verdict.evidence else None
            seen = f"{told.metric} {told.part}: {told.reason}" if told else verdict.reason or "nothing"
            found.append(
                Reached(
                    node, verdict.score, at - onset, self._longest[node], " ".join(seen.split()), farthest
                )
            )
        return tuple(found)


def see(
    case: CaseSpec,
    variants: Sequence[Variant] = (Variant(),),
    *,
    wants_matrix: bool = True,
    cache: Cache | None = None,
) -> tuple[Seen, CaseMatrix | None]:
    """Simulate a case once while every variant replays it.

    Parameters
    ----------
    case
        The case.
    variants
        At least one; the samples for rivals are taken on the way of the first.
    wants_matrix
        False when no rival looks at the case.
    cache
        Grades of faults are kept there; None keeps none.
    """
    store = cache or Cache()
    seconds: dict[str, float] = {}
    tape = Tape(case.cluster(), keeps=len(variants) > 1)
    key = digest("grades", case, sources(SIMULATION))
    grades: tuple[Grade, ...] | None = () if not case.node_faults else store.find(key)
    witness = Witness(case) if grades is None else None
    findings: dict[str, Findings] = {}
    source = SimulatedSource(tape, witness.rows if witness else None)
    pipeline = variants[0].pipeline(case.config.step_s)
    collector = Collector(pipeline) if wants_matrix else None
    watch = Watch(case, pipeline)

    def watched(outcome: Outcome) -> None:
        watch(outcome)
        if collector is not None:
            collector(outcome)

    for i, variant in enumerate(variants):
        with timed(seconds, "oddnode" if i == 0 else "variants"), variant.applied():
            if i == 0:
                replayed = play(recording_of(case), source, pipeline, watch=watched)
            else:
                again = SimulatedSource(tape)
                replayed = play(recording_of(case), again, variant.pipeline(case.config.step_s))
        findings[variant.name] = findings_of(replayed)
    seconds["oddnode"] -= tape.seconds
    seconds["simulation"] = tape.seconds
    if witness is not None:
        with timed(seconds, "witness"):
            grades = witness.grades(source.kept)
        store.keep(key, grades)
    assert grades is not None
    recording = graded(case, grades)
    with timed(seconds, "matrix"):
        matrix = collector.matrix(recording) if collector is not None else None
        content = digest(recording, matrix) if matrix is not None else ""
    n_hidden = sum(grade.name == HIDDEN for grade in grades)
    return Seen(recording, n_hidden, findings, watch.reached(), content, seconds), matrix


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Add the CPU time of a block to a phase."""
    began = time.process_time()
    yield
    seconds[phase] = seconds.get(phase, 0.0) + time.process_time() - began
