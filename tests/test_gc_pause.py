"""The pause of the cyclic collector ends whatever happens, and is no pause of what was off."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from detector.errors import SourceDecode
from detector.service_memory import FEW, LongLived
from detector.source.gc_pause import gc_pause
from detector.source.samples import SampleCollector
from tests.interner import DictInterner


@pytest.fixture(autouse=True)
def _collector_on() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_the_collector_is_off_inside_and_on_after() -> None:
    with gc_pause():
        assert not gc.isenabled()
        with gc_pause():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with gc_pause():
        pass
    assert not gc.isenabled()


def test_it_is_on_again_after_a_broken_line() -> None:
    part = SampleCollector(DictInterner(), "here").part()
    with pytest.raises(SourceDecode, match="line 1"):
        part.add(b'{"metric":{}\n')
    assert gc.isenabled()


def test_it_stays_off_until_the_last_thread_is_done() -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with gc_pause():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    with gc_pause():
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join(10)
    assert gc.isenabled()


class _Loop:
    """Holds itself: only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_long_lived_things_are_set_aside_when_there_are_many_more_of_them() -> None:
    kept = LongLived()
    gc.unfreeze()
    try:
        kept.fetched(FEW)
        assert gc.get_freeze_count() == 0, "a small service has nothing to gain"
        garbage = weakref.ref(_Loop())
        kept.fetched(10 * FEW)
        n_frozen = gc.get_freeze_count()
        assert n_frozen > 1000
        assert garbage() is None, "no garbage is kept for ever"
        held = [[] for _ in range(5000)]
        kept.fetched(11 * FEW)
        assert gc.get_freeze_count() <= n_frozen, "a few more are not worth a walk"
        kept.fetched(20 * FEW)
        assert gc.get_freeze_count() > n_frozen
        assert len(held) == 5000
        kept.replaced()
        assert gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()
