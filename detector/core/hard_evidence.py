"""What needs no peers to count: direct signals, and series that are gone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.core.absence import AbsenceReport, judge_absence
from detector.core.conclusion import FORGET_S
from detector.core.direct import step_direct
from detector.core.ingest import CellValues
from detector.core.memory import Memory
from detector.core.parameters import Parameters
from detector.core.stall import blame
from grouping.index import SeriesIndex
from grouping.layout import Layout

FloatArray = NDArray[np.float64]


def hard_evidence(
    memory: Memory,
    index: SeriesIndex,
    layout: Layout,
    cells: CellValues,
    parameters: Parameters,
    pool_of: NDArray[np.int32],
    stalled_since: FloatArray,
    *,
    at: float,
    dt: float,
    is_partial: bool,
) -> tuple[FloatArray, AbsenceReport]:
    """Advance direct signals and absences by one evaluation.

    Parameters
    ----------
    memory
        Changed in place.
    index, layout, cells
        Series, groups and newest values.
    parameters
        Knobs; a layer that takes no part gives nothing.
    pool_of : ndarray of shape (n_nodes,)
        Pool of each node, -1 for none.
    stalled_since : ndarray of shape (n_pools,)
        Epoch seconds since when each pool's job waits, NaN where none does.
    at, dt
        Epoch seconds, and seconds since the evaluation before.
    is_partial
        True when the database may have left series out: then nothing is said to be gone.

    Returns
    -------
    direct_score : ndarray of shape (n_direct,)
        Scores of the cells of direct signals.
    absence
        Who is silent and what is gone.
    """
    p = parameters
    direct = step_direct(
        memory.direct,
        index,
        layout,
        cells,
        exporter_known=memory.exporter_known(),
        at=at,
        dt=dt,
        continuity_s=p.full_s,
        hold_s=p.direct_hold_s,
        group_share=p.group_event_share,
        group_min=p.group_event_min_nodes,
        restored=memory.direct_memory if memory.remembers_direct else None,
    )
    direct = direct * ~memory.unheard[memory.direct.cells]
    direct = blame(direct, memory.direct, index, pool_of, stalled_since)
    memory.note_exporters(cells.fresh)
    if is_partial or "absence" not in p.layers:
        absence = AbsenceReport(silent=np.zeros(len(index.nodes), dtype=bool))
    else:
        absence = judge_absence(
            memory.presence,
            index,
            cells.fresh,
            cells.value,
            at=at,
            absence_after_s=max(p.absence_after_s, 3 * p.step_s),
            forget_s=FORGET_S,
            group_share=p.group_event_share,
        )
    return direct * ("direct" in p.layers), absence
