"""The process of a try: lowest priority, first to go when memory is short, ends with the service."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from detector.errors import OddnodeError
from detector.what_if.messages import Advanced, Done, Failed, line
from detector.what_if.run import Job, run
from grouping.catalog import CatalogError

NICE = 19
TELL_EVERY_S = 0.25


def _end_with_parent() -> None:
    """Wait for the end of the pipe that only the service holds: it ended, or does not want the answer."""
    sys.stdin.buffer.read(1)
    os._exit(1)


def main() -> int:
    """Read a job from standard input and write messages to standard output."""
    os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    job: Job = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the service that started this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with os.fdopen(os.dup(1), "wb", buffering=0) as out:
        os.dup2(2, 1)  # whatever is printed on the way is no message
        told_at = -TELL_EVERY_S

        def progress(share: float) -> None:
            nonlocal told_at
            if time.monotonic() - told_at >= TELL_EVERY_S:
                told_at = time.monotonic()
                out.write(line(Advanced(share)))

        try:
            out.write(line(Done(run(job, progress))))
        except (OddnodeError, CatalogError) as error:
            out.write(line(Failed(str(error))))
        except MemoryError:
            out.write(line(Failed("there is not enough memory: try fewer hours")))
        sys.stdout.flush()
    # the thread that waits holds a lock of standard input, which an orderly end would wait for
    os._exit(0)


if __name__ == "__main__":
    main()
