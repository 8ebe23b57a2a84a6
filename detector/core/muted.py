"""Which cells are no evidence because operators have muted their metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detector.control.model import Mute
from grouping.catalog import Catalog
from grouping.index import SeriesIndex
from grouping.pools import Pools

BoolArray = NDArray[np.bool_]


def muted_cells(mutes: Sequence[Mute], index: SeriesIndex, pools: Pools, catalog: Catalog) -> BoolArray:
    """Tell which cells are of a muted metric, and of the node and pool of its mute where those are given.

    Parameters
    ----------
    mutes
        Those that hold now; the ones without a metric say nothing about cells.
    index, pools, catalog
        Cells and nodes, pools of nodes, and the other names of metrics.

    Returns
    -------
    ndarray of shape (n_cells,), bool
        False everywhere when there is no such mute.
    """
    found = np.zeros(index.n_cells, dtype=bool)
    for mute in mutes:
        if not mute.metric:
            continue
        spec = catalog.by_name.get(mute.metric)
        name = mute.metric if spec is None else spec.name
        signals = np.array([signal.spec.name == name for signal in index.signals], dtype=bool)
        nodes = np.array(
            [
                mute.concerns(node, pools.names[pool] if pool >= 0 else "")
                for node, pool in zip(index.nodes, pools.pool_of.tolist(), strict=True)
            ],
            dtype=bool,
        )
        if signals.any() and nodes.any():
            found |= signals[index.cell_signal] & nodes[index.cell_node]
    return found
