"""The fixed texts of the page."""

HEAD = """\
# How good is the detection

Written by `make bench-detect`; not edited by hand. Cases are drawn from the published ranges below,
simulated, and replayed through Oddnode and through every rival, on the same samples and with the same
scorer; recorded and reconstructed cases have tables of their own. An alarm counts when the node's name is
raised between one step before the onset and ten minutes after the end; every other alarm episode is false.
Intervals are 95 % (Wilson; Poisson for rates, one-sided). There is no point adjustment.

Each fault is graded against the same cluster of the same seed without it:

- **visible**: a fault code, a machine that is down, or in its time a signal of its node, or the mean over
  the node's parts, that in 8 of 40 consecutive scrapes is gone alone, or is farther from the node's own
  habit, less what all nodes do, than 1.5 times the 99.9 % quantile of what sound nodes show of it without
  the fault, than 1.5 times what the second farthest sound node shows in that scrape, and than 1.5 % of its
  level. Gauges are taken as they are, counters as rates. The visible onset is the first such sample.
- **faint**: some trace below that mark. Finding it is a hit; missing it counts among all faults only.
- **hidden**: no trace at all; masked, counts neither way.

Whether the part was named right is asked where the fault has a code or a series of that very part has a
trace: a case may have the pressure that a slow disk makes, and no metric of disks.

In the table of visible faults precision is that of all alarms, as an alarm that found a faint fault is
right.
"""

CAVEATS = """\
## What this can't show

The cases come from a simulator written by the same people as the detector. Its noise, its faults and the
traces they leave are an opinion on real clusters, so figures here rank methods under that opinion and say
how a change of the detector moves them; they don't predict recall or false alarms on anybody's cluster.
All kinds of faults are equally frequent, which they are not in any fleet. Oddnode's own defaults were set
by people who knew this simulator; the rivals' settings were searched on the train split. Minder is rebuilt
from its description at one sample per 30 s instead of one per second, and learns from the train split's
healthy hours only: its figures here are not those of the published system. A fault without a trace counts
neither way; the test for any trace is lenient, so some faint faults may be beyond anybody's reach, and the
mark of visible ones is set by the quiet of this simulator: real nodes are noisier. Spares are watched and
never faulty. Rivals are told which nodes work and never look at spares; Oddnode finds out and watches both.
"""
