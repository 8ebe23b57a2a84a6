"""What survives a restart besides incidents: habits, expected series, group memory, direct events.

Arrays are stored under the names of cells and groups, not under their numbers, so a snapshot fits
whatever order the series come back in.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from grouping.index import SeriesIndex

VERSION = 1

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Named arrays and plain values.

    Parameters
    ----------
    cell_keys
        Names of cells, parallel to each array of `cells`.
    cells
        Arrays of shape (n_cells,) by name.
    row_keys, rows
        The same for peer groups.
    plain
        JSON values (pool memory, times).
    tables
        Arrays of any other shape by name.
    """

    cell_keys: tuple[str, ...]
    cells: dict[str, FloatArray]
    row_keys: tuple[str, ...]
    rows: dict[str, FloatArray]
    plain: dict[str, object] = field(default_factory=dict)
    tables: dict[str, NDArray[np.generic]] = field(default_factory=dict)


def cell_keys(index: SeriesIndex, start: int = 0) -> list[str]:
    """Name each cell: metric, role, level, node, part."""
    return [
        "\x00".join(
            (
                index.signals[s].spec.name,
                index.signals[s].role,
                str(int(index.signals[s].per_node)),
                index.nodes[n],
                index.parts[p],
            )
        )
        for s, n, p in zip(
            index.cell_signal[start:].tolist(),
            index.cell_node[start:].tolist(),
            index.cell_part[start:].tolist(),
            strict=True,
        )
    ]


def pack(snapshot: Snapshot) -> bytes:
    """Write a snapshot as one compressed block of bytes."""
    head = {
        "version": VERSION,
        "cell_keys": snapshot.cell_keys,
        "row_keys": snapshot.row_keys,
        "plain": snapshot.plain,
    }
    arrays: dict[str, NDArray[np.generic]] = {
        "head": np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    }
    arrays.update({f"cell_{name}": array.astype(np.float64) for name, array in snapshot.cells.items()})
    arrays.update({f"row_{name}": array.astype(np.float64) for name, array in snapshot.rows.items()})
    arrays.update({f"table_{name}": array for name, array in snapshot.tables.items()})
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def unpack(blob: bytes) -> Snapshot:
    """Read a snapshot.

    Raises
    ------
    ValueError
        When the bytes are not a snapshot of this version.
    """
    try:
        with np.load(io.BytesIO(blob), allow_pickle=False) as data:
            head = json.loads(data["head"].tobytes())
            cells = {name[5:]: data[name] for name in data.files if name.startswith("cell_")}
            rows = {name[4:]: data[name] for name in data.files if name.startswith("row_")}
            tables = {name[6:]: data[name] for name in data.files if name.startswith("table_")}
    except (OSError, KeyError, ValueError, EOFError) as error:
        raise ValueError(f"the saved detection state cannot be read: {error}") from error
    if head.get("version") != VERSION:
        raise ValueError(f"the saved detection state has version {head.get('version')}, not {VERSION}")
    keys = tuple(head["cell_keys"]), tuple(head["row_keys"])
    return Snapshot(keys[0], cells, keys[1], rows, head["plain"], tables)
