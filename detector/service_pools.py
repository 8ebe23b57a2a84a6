"""Pools from a query of the database, asked by the shell and handed to the pipeline."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from detector.source.prometheus_api import LabelledValue
from grouping.identity import NodeIdentity
from grouping.pools import PoolRules

log = logging.getLogger("oddnode.detector.service")


class TakesPools(Protocol):
    """A pipeline that is told which pool a node is declared to be in."""

    declared: Mapping[str, str] | None
    identity: NodeIdentity


class Asked(Protocol):
    """Whoever answers a query."""

    def query(self, promql: str, at: float) -> Sequence[LabelledValue]:
        """Return the instant vector of a PromQL expression at `at` (epoch seconds)."""


class PoolQuery:
    """Asks for pools every now and then.

    Parameters
    ----------
    rules
        Query and label.
    pipeline
        Is given the answer.
    every_s
        Seconds between two questions, by evaluation time.
    """

    def __init__(self, rules: PoolRules, pipeline: TakesPools, every_s: float) -> None:
        self._rules = rules
        self._pipeline = pipeline
        self._every_s = every_s
        self._asked_at = float("-inf")

    def __call__(self, database: Asked, at: float) -> None:
        """Ask when it is due; an empty answer leaves the pools as they are.

        Raises
        ------
        SourceError
            When the database does not answer.
        """
        query, label = self._rules.query, self._rules.label
        if query is None or label is None or at - self._asked_at < self._every_s:
            return
        answer = database.query(query, at)
        self._asked_at = at
        pools: dict[str, str] = {}
        for labels, _ in answer:
            node = self._pipeline.identity.node_of(labels, "")
            if node is not None and labels.get(label):
                pools[node] = labels[label]
        if not pools:
            log.warning("pools query=%r told_nothing=true", query)
            return
        self._pipeline.declared = pools
