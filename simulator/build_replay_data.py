"""Writes the recorded incidents of ``replay_data``: ``python -m simulator.build_replay_data [CASE...]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from simulator.recording import write_case
from simulator.scenarios import SCENARIOS, Scenario

ROOT = Path(__file__).resolve().parent.parent / "replay_data"


def build(scenario: Scenario, root: Path) -> int:
    """Write one case with its README and return the size of its series in bytes."""
    folder = root / scenario.name
    size = write_case(
        folder,
        scenario.cluster(),
        scenario.start,
        scenario.end,
        case_id=scenario.name,
        source=scenario.source,
        made=scenario.made,
        notes=scenario.notes,
    )
    (folder / "README.md").write_text(readme(scenario), encoding="utf-8")
    return size


def readme(scenario: Scenario) -> str:
    """Return what a reader of the case should know."""
    config = scenario.config
    what = "\n".join(
        f"- {f.kind} on {f.node}{' ' + f.part if f.part else ''}, {(f.onset - scenario.start) / 60:.0f} "
        f"minutes after the start, for {(min(f.end, scenario.end) - f.onset) / 60:.0f} minutes"
        for f in scenario.faults
    )
    events = "\n".join(
        f"- {e.kind}, {(e.onset - scenario.start) / 60:.0f} minutes after the start, for "
        f"{(e.end - e.onset) / 60:.0f} minutes: nobody is at fault"
        for e in scenario.events
    )
    truth = "\n".join(part for part in (what, events) if part) or "- nothing is wrong"
    metrics = len(config.metrics) if config.metrics is not None else 305
    return f"""# {scenario.name}

{scenario.notes}

{truth}

{config.train_nodes} nodes train, {config.spares} are idle; {metrics} metrics, {config.cpus} processors
per node, one scrape every {config.step_s:.0f} s for {scenario.length_s / 60:.0f} minutes.

Origin: {scenario.source}. The samples are {scenario.made}: a seeded generator made them, no machine did.

Made by `python -m simulator.build_replay_data {scenario.name}` (seed {scenario.seed}); the same
seed gives the same bytes. `incident.yaml` says what is true; only evaluation reads it.
"""


def main() -> None:
    """Build the named cases, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*SCENARIOS, []], metavar="CASE")
    parser.add_argument("--root", type=Path, default=ROOT)
    given = parser.parse_args()
    for name in given.cases or SCENARIOS:
        size = build(SCENARIOS[name](), given.root)
        print(f"{name}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
