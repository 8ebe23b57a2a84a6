"""Real labelled cases: which sets there are, what they can and can't show, and the subset kept here.

Four public sets have been brought into the form of recorded incidents. All of it is evaluated in
place (``oddnode evaluate FOLDER``); what its licences allow to pass on is copied to ``replay_data/real``,
of the largest set a third of the labelled cases.

Run: ``python -m benchmarks.cases_real describe FOLDER`` or ``... copy FOLDER [--out replay_data/real]``
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detector.evaluation.cases import find_cases
from detector.evaluation.model import Findings, Rules
from detector.evaluation.scoring import score_case
from detector.evaluation.summary import set_of
from detector.evaluation.timelines import distinct
from detector.source.incident_file import Recording

ROOT = Path(__file__).resolve().parent.parent / "replay_data" / "real"
ALLOWED = ("MIT", "Apache-2.0")
MAX_COPIED_BYTES = 11 << 20
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class RealSet:
    """One public data set.

    Parameters
    ----------
    origin
        Where it is from.
    licence
        SPDX identifier.
    what
        What was recorded.
    limits
        What its numbers can't show.
    kept
        Cases that are copied.
    rule
        How they were chosen.
    """

    origin: str
    licence: str
    what: str
    limits: str
    kept: tuple[str, ...] = ()
    rule: str = "all"


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SETS = {
    "asd": RealSet(
        origin="github.com/zhhlee/InterFusion (Li et al., KDD 2021)",
        licence="MIT",
        what="12 production servers, 19 metrics every 5 minutes, labelled by experts per server",
        limits="values are scaled per server and names are hidden; metrics 00 to 05 are private to a "
        "server; many labels do not stand out from the peers",
        kept=_names(
            "asd-h01 asd-h03 asd-h05 asd-i00-single asd-i02-fleet asd-i04-single "
            "asd-i06-minority asd-i08-single asd-i10-single asd-i12-single asd-i14-single "
            "asd-i16-single asd-i18-single asd-i20-single asd-i22-single asd-i24-minority "
            "asd-i26-single asd-i28-minority asd-i30-single asd-i32-single asd-i34-minority "
            "asd-i36-single asd-i38-minority asd-i40-single asd-i42-single asd-i44-minority "
            "asd-i46-single asd-i48-single asd-i50-single asd-i52-single"
        ),
    ),
    "bytedance_straggler": RealSet(
        origin="github.com/ByteDance-Seed/StragglerAnalysis (Lin et al., OSDI 2025)",
        licence="Apache-2.0",
        what="workers of three jobs that train large models: seconds per operation and step; one worker "
        "slowed down, and two jobs that are slow with no machine at fault",
        limits="32 to 44 sampled steps on a nominal clock of 1 to 2 seconds: too short for minutes of "
        "continuity",
        kept=("bytedance-ar", "bytedance-se", "bytedance-st"),
    ),
    "jumpstarter": RealSet(
        origin="github.com/NetManAIOps/JumpStarter (Ma et al., USENIX ATC 2021)",
        licence="MIT",
        what="machines of a content platform in pools of 5 to 16, raw units every 5 minutes",
        limits="pools were formed by equal levels and correlation; kinds are unknown; some labels are "
        "invisible in the data and effects outlast labels",
        kept=_names(
            "dataset2a-i02-single dataset2a-i05-single dataset2a-i08-single "
            "dataset2b-i01-fleet dataset2c-i01-single dataset2c-i04-single "
            "dataset2c-i07-single dataset2c-i10-single dataset2c-i13-single"
        ),
        rule="of the labelled cases in order of name, the third, the sixth and so on",
    ),
    "mlperf_power": RealSet(
        origin="github.com/mlcommons/training_results_v4.0 (Sustainable Metal Cloud, power)",
        licence="Apache-2.0",
        what="AC and DC watts of 8 and 64 nodes with 8 H100 each in training runs, every 2 seconds",
        limits="healthy only, 2 to 57 minutes long; one metric in two forms",
        kept=_names(
            "mlperf-gpt3-64n-5848-2 mlperf-gpt3-64n-5849-3 mlperf-llama2_70b_lora-64n-5730-8 "
            "mlperf-llama2_70b_lora-64n-5731-3 mlperf-llama2_70b_lora-64n-5732-7 "
            "mlperf-llama2_70b_lora-64n-5864-3 mlperf-llama2_70b_lora-64n-5864-6 "
            "mlperf-llama2_70b_lora-8n-5742-10 mlperf-llama2_70b_lora-8n-5742-4 "
            "mlperf-llama2_70b_lora-8n-5742-9 mlperf-llama2_70b_lora-8n-5788-3 "
            "mlperf-llama2_70b_lora-8n-5788-5 mlperf-resnet-8n-4960-2 mlperf-resnet-8n-4960-4 "
            "mlperf-ssd-8n-4957-1 mlperf-ssd-8n-4957-3 mlperf-ssd-8n-4957-5"
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reader must know of a set before believing its numbers.

    Parameters
    ----------
    n_cases, n_faults
        Counts.
    node_days, distinct_node_days
        Node-time of all cases, and without what several cases hold.
    common_onset_s, n_common_onset
        Most frequent distance of a fault's onset from the start of its case, and how many have it.
    """

    n_cases: int
    n_faults: int
    node_days: float
    distinct_node_days: float
    common_onset_s: float
    n_common_onset: int


def facts(cases: Sequence[Recording]) -> Facts:
    """Measure overlap and regularity of the cases of one set."""
    rules = Rules()
    scores = [score_case(case, Findings(), rules) for case in cases]
    repeated = distinct(scores, rules.merge_s).repeated_node_s
    total = sum(len({*case.pool, *case.spares}) * (case.end - case.start) for case in cases)
    offsets = Counter(fault.onset - case.start for case in cases for fault in case.faults)
    common, count = max(offsets.items(), key=lambda item: (item[1], -item[0]), default=(0.0, 0))
    return Facts(
        n_cases=len(cases),
        n_faults=sum(offsets.values()),
        node_days=total / DAY_S,
        distinct_node_days=(total - repeated) / DAY_S,
        common_onset_s=common,
        n_common_onset=count,
    )


def describe(folder: Path) -> list[str]:
    """Return one line per set found in a folder."""
    found = find_cases([folder])
    by_set: dict[str, list[Recording]] = {}
    for case in found.cases:
        by_set.setdefault(set_of(case), []).append(case)
    lines = []
    for name, cases in sorted(by_set.items()):
        f = facts(cases)
        lines.append(
            f"{name}: {f.n_cases} cases, {f.n_faults} faults, {f.node_days:.1f} node-days "
            f"({f.distinct_node_days:.1f} distinct); {f.n_common_onset} of {f.n_faults} onsets lie "
            f"{f.common_onset_s:.0f} s after the start of their case"
        )
    lines += [f"left out: {item.path}: {item.reason}" for item in found.left_out]
    return lines


def copy(folder: Path, out: Path) -> int:
    """Copy the kept cases and describe their origin; return their size in bytes.

    Raises
    ------
    ValueError
        When a case is missing, says another licence than its set, or all are too large.
    """
    chosen: list[tuple[str, Path]] = []
    size = 0
    for name, real in SETS.items():
        for case in real.kept:
            found = find_cases([folder / name / case])
            if len(found.cases) != 1:
                raise ValueError(f"{folder / name / case}: {found.left_out[0].reason}")
            licence = found.cases[0].provenance.get("licence")
            if licence != real.licence or licence not in ALLOWED:
                raise ValueError(f"{folder / name / case}: licence {licence!r} is not {real.licence!r}")
            chosen.append((name, folder / name / case))
            size += sum(file.stat().st_size for file in (folder / name / case).iterdir())
    if size > MAX_COPIED_BYTES:
        raise ValueError(f"the kept cases have {size} bytes, more than {MAX_COPIED_BYTES}")
    for name, source in chosen:
        target = out / name / source.name
        target.mkdir(parents=True, exist_ok=True)
        for file in ("incident.yaml", "series.jsonl.gz"):
            shutil.copyfile(source / file, target / file)
        (out / name / "README.md").write_text(readme(name, SETS[name]), encoding="utf-8")
    return size


def readme(name: str, real: RealSet) -> str:
    """Describe a copied set."""
    return (
        f"# {name}\n\n{real.what}.\n\nOrigin: {real.origin}. Licence: {real.licence}. The samples are "
        f"recorded; they were brought into this form, with labels as published by the authors. Kept here: "
        f"{real.rule}.\n\n"
        f"What the numbers can't show: {real.limits}.\n\n"
        "Cases of one origin may hold the same time; evaluation counts it once. Onsets often lie at "
        "the same distance from the start of the case, so a detector that knows how long a case "
        "has run knows too much.\n"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("describe", "copy"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT)
    given = parser.parse_args()
    if given.action == "describe":
        print("\n".join(describe(given.folder)))
        return
    try:
        print(f"{copy(given.folder, given.out)} bytes copied to {given.out}")
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
