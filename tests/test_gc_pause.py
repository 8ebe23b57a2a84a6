"""The pause of the cyclic collector ends whatever happens, and is no pause of what was off."""

import gc
import threading
from collections.abc import Iterator

import pytest

from detector.errors import SourceDecode
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
