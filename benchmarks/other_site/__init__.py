"""Telemetry of a lean GPU site with faults, written by somebody who had not seen the simulator.

The project's own simulator shows what its authors thought of. These cases model dcgm-exporter and
node_exporter under a Prometheus stack, with other jobs, other noise, other everyday events and other faults:
an independent check. Nothing of the detector is tuned on them.

`run` is the command, `cases` the list, `site` the state of the nodes, `write` what is made of it.
"""
