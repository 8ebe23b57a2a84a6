"""Random lives of nodes in every store, compared with a plain model: repairs, refusals, kills."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from detector.control.model import Action, AuditEntry, Repair
from detector.core.incidents import CLEARED, PENDING, SUSPECT, Observation, step
from detector.errors import StoreError
from detector.outcome import Incident, Outcome, Transition
from detector.store_contract import Keeping
from detector.store_control import ControlStore
from detector.store_pending import Pending
from detector.store_writer import StoreWriter
from tests.contract.stores import KINDS, Place
from tests.servers import Postgres
from tests.test_store import T0

DT, CLEAR = 30.0, 120.0
NODES = ("gpu001", "gpu002", "gpu003")
SEEN = {
    "healthy": Observation(known=True),
    "weak": Observation(known=True, score=0.6),
    "sign": Observation(known=True, score=1.4, reason="a sign"),
    "named": Observation(known=True, score=2.0, decided=True, part="gpu 3", reason="decided"),
    "unknown": Observation(known=False),
    "gone": Observation(known=False, gone=True),
}
LEGAL = {("clear", PENDING), (PENDING, SUSPECT), (PENDING, CLEARED), (SUSPECT, CLEARED)}


class Lives(RuleBasedStateMachine):
    """A service's memory, its store, and what must be in it."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place, self.store = place, place.open()
        self.at, self.is_refused, self.n_audit = T0, False, 0
        self.last: float | None = None
        self.memory: dict[str, Incident] = {}
        self.kept: dict[str, Incident] = {}
        self.moves: list[Transition] = []
        self.store_waits = False
        self.waiting: dict[str, Incident] = {}
        self.waiting_moves: list[Transition] = []

    @rule(seen=st.fixed_dictionaries({node: st.sampled_from(sorted(SEEN)) for node in NODES}))
    def evaluate(self, seen: dict[str, str]) -> None:
        self.at += DT
        changed, moves = [], []
        for node, what in seen.items():
            found, made = step(
                node, self.memory.pop(node, None), SEEN[what], at=self.at, dt=DT, clear_after_s=CLEAR
            )
            if found is not None:
                changed.append(found)
                if found.state != CLEARED:
                    self.memory[node] = found
            moves += made
        self.waiting |= {item.id: item for item in changed}
        self.waiting_moves += moves
        try:
            self.store.save(Outcome(self.at, incidents=tuple(changed), transitions=tuple(moves)))
        except StoreError:
            assert self.is_refused
            assert self.store.problem
            self.store_waits = True
            assert self.store.n_pending == len(self.waiting) + len(self.waiting_moves)
        else:
            self._written(self.at)

    def _written(self, at: float | None) -> None:
        self.kept |= self.waiting
        self.moves += self.waiting_moves
        self.waiting, self.waiting_moves = {}, []
        self.last = self.last if at is None else at
        self.store_waits = False

    @precondition(lambda self: not self.is_refused)
    @rule()
    def refuse(self) -> None:
        self.place.refuse(self.store, is_on=True)
        self.is_refused = True

    @precondition(lambda self: self.is_refused)
    @rule()
    def allow(self) -> None:
        self.place.refuse(self.store, is_on=False)
        self.is_refused = False

    @precondition(lambda self: not self.is_refused and self.memory)
    @rule(data=st.data())
    def repair(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.memory)))
        before = self.memory.pop(node)
        after = replace(before, state=CLEARED, cleared_at=self.at + 1, reason="repaired")
        move = Transition(before.id, node, self.at + 1, before.state, CLEARED, "repaired")
        entry = AuditEntry(at=self.at, by="kim", action=Action.REPAIRED, subject=node)
        ControlStore(self.store).put_repair(
            Repair(node=node, at=self.at, evaluated_at=self.at), entry, [after], [move]
        )
        self._written(self.at if self.store_waits else None)
        self.kept[after.id] = after
        self.moves.append(move)
        self.n_audit += 1

    @precondition(lambda self: not self.is_refused)
    @rule(is_killed=st.booleans())
    def restart(self, *, is_killed: bool) -> None:
        if is_killed:
            # what a process holds in memory is gone with it
            assert isinstance(self.store, StoreWriter)
            self.store._pending = Pending()
            self.waiting, self.waiting_moves = {}, []
        self.store.close()
        self._written(self.at if self.store_waits and not is_killed else None)
        self.store = self._opened()
        self.memory = {item.node: item for item in self.store.open_incidents()}

    def _opened(self) -> Keeping:
        """Open it again: a server may take a moment to see that a session has ended."""
        until = time.monotonic() + 20
        while True:
            try:
                return self.place.open()
            except StoreError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    @precondition(lambda self: not self.is_refused)
    @invariant()
    def the_store_holds_what_was_written(self) -> None:
        found = {item.id: item for item in self.store.incidents(limit=1000)}
        assert found == self.kept
        assert self.store.last_evaluation() == self.last
        opened = self.store.open_incidents()
        assert {item.id for item in opened} == {i.id for i in found.values() if i.state != CLEARED}
        told = self.store.transitions(limit=1000)
        assert sorted(told, key=repr) == sorted(self.moves, key=repr)
        assert ControlStore(self.store).count_audit() == self.n_audit

    @precondition(lambda self: not self.is_refused)
    @invariant()
    def every_life_is_one_that_may_be(self) -> None:
        lives: dict[str, list[Transition]] = {}
        for move in self.store.transitions(limit=1000):
            lives.setdefault(move.incident_id, []).append(move)
            assert (move.before, move.after) in LEGAL
        for item in self.store.incidents(limit=1000):
            life = lives.pop(item.id)
            assert [move.before for move in life] == ["clear", *(move.after for move in life[:-1])]
            assert life[-1].after == item.state
        assert lives == {}, "steps of no incident"

    def teardown(self) -> None:
        if self.is_refused:
            self.allow()
        self.place.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.server)])
def test_random_lives_are_kept_as_they_were(kind: str, request: pytest.FixtureRequest) -> None:
    folders: list[Path] = []

    def new_database() -> str:
        server: Postgres = request.getfixturevalue("postgres_server")
        return server.new_database()

    def lives() -> Lives:
        folders.append(Path(tempfile.mkdtemp(prefix="oddnode-lives-")))
        return Lives(Place(kind, folders[-1], new_database))

    examples, steps = (40, 30) if kind == KINDS[0] else (12, 20)
    try:
        run_state_machine_as_test(
            lives,
            settings=settings(
                max_examples=examples, stateful_step_count=steps, deadline=None, phases=[Phase.generate]
            ),
        )
    finally:
        for folder in folders:
            shutil.rmtree(folder)
