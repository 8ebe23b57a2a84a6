"""Stories of cases in which nothing is wrong."""

from __future__ import annotations

import numpy as np

from benchmarks.other_site.events import (
    backup,
    interactive_session,
    log_rotation,
    package_update,
    reboot,
    restart_dcgm_exporter,
    restart_node_exporter,
    scheduled_jobs,
)
from benchmarks.other_site.jobs import serve, slow_down, train
from benchmarks.other_site.site import Site


def ordinary_day(site: Site) -> None:
    """Train one job with evaluations, amid updates, restarts of exporters and a session."""
    train(site, site.nodes, "llama70b", evaluate_every=40)
    scheduled_jobs(site)
    log_rotation(site, 45)
    for node, minute in ((3, 20), (11, 55), (17, 100)):
        package_update(site, node, minute)
    restart_node_exporter(site, 8, 70)
    restart_dcgm_exporter(site, 21, 85)
    interactive_session(site, 14, 60, 50)


def rolling_driver_update(site: Site) -> None:
    """Update the driver of idle nodes one after the other, half of the site at work."""
    train(site, range(24), "llama70b")
    scheduled_jobs(site)
    for k, node in enumerate(range(28, 40)):
        minute = 20 + 9 * k
        reboot(site, node, minute, 4.5)
        site.drivers[node].append((site.point(minute + 4.5), "550.127.05"))
        site.label_benign("driver update", node, minute, minute + 7)
        site.mask(node, minute - 1, minute + 20)


def jobs_change(site: Site) -> None:
    """End one of two jobs, and start another on nodes of it and on idle ones."""
    train(site, range(24), "gpt-pre", n_stages=4)
    train(site, range(24, 48), "moe", runs=[(-60, 62)], n_stages=2, checkpoint_every=15)
    train(site, range(30, 60), "sft", runs=[(75, None)], checkpoint_every=12, level=0.7)
    scheduled_jobs(site)
    backup(site, 5, 40, 35)
    package_update(site, 50, 30)


def inference_beside_training(site: Site) -> None:
    """Serve on some nodes of a cloud and train on the others, with a restart of the job."""
    train(site, range(14), "mistral-ft", runs=[(-60, 80), (84, None)])
    serve(site, range(14, 24))
    scheduled_jobs(site, 10)
    interactive_session(site, 2, 30, 60)
    package_update(site, 16, 50)
    restart_dcgm_exporter(site, 18, 100)


def small_site(site: Site) -> None:
    """Train on a few nodes with short intervals of everything."""
    train(site, site.nodes, "vit-h", evaluate_every=25, checkpoint_every=12)
    scheduled_jobs(site, 5)
    backup(site, 3, 30, 30)
    restart_node_exporter(site, 6, 66)
    log_rotation(site, 90)
    package_update(site, 1, 100)


def many_small_jobs(site: Site) -> None:
    """Let researchers run a job of their own on each of most nodes."""
    rng = site.rng
    for node in site.nodes:
        start = rng.uniform(-60, 20)
        if rng.random() < 0.75:
            name = "job-" + site.noise.text(4)
            end = start + rng.uniform(60, 200)
            level, every = rng.uniform(0.4, 1.0), rng.uniform(8, 30)
            train(
                site,
                [node],
                name,
                runs=[(start, end)],
                level=level,
                checkpoint_every=every,
                namespace="research",
            )
        if rng.random() < 0.3:
            interactive_session(site, node, rng.uniform(10, 60), rng.uniform(10, 60))
    scheduled_jobs(site)


def rolling_exporter_update(site: Site) -> None:
    """Restart every exporter one after the other, then congest the fabric for everybody."""
    job = train(site, site.nodes, "llama70b", n_stages=2)
    scheduled_jobs(site)
    for k, node in enumerate(site.nodes):
        restart_node_exporter(site, node, 30 + 0.7 * k)
        restart_dcgm_exporter(site, node, 70 + 1.2 * k)
    points = site.between(110, 125)
    slow_down(job, points, 0.85)
    site.rdma.wait_factor[:, :, points] = 5


def restarted_job(site: Site) -> None:
    """Restart a job twice beside idle nodes, one of which gets a backup."""
    train(
        site,
        range(48),
        "gpt-pre",
        runs=[(-60, 55), (58, 118), (121, None)],
        checkpoint_every=22,
        writes_on_first=False,
    )
    scheduled_jobs(site)
    backup(site, 60, 50, 40)
    package_update(site, 9, 20)
    interactive_session(site, 33, 80, 60)
    log_rotation(site, 100)


def drained_node(site: Site) -> None:
    """Reboot a drained node beside a job that does not use it."""
    train(site, range(23), "clip")
    scheduled_jobs(site)
    backup(site, 23, 60, 30)
    package_update(site, 12, 70)
    reboot(site, 23, 35, 8)
    site.label_benign("reboot of a drained node", 23, 35, 44)
    site.mask(23, 34, 60)


def hot_afternoon(site: Site) -> None:
    """Warm the room by 5 degrees while a job of four stages evaluates now and then."""
    train(site, site.nodes, "moe", n_stages=4, evaluate_every=30, checkpoint_every=16)
    scheduled_jobs(site)
    site.host.heat += np.linspace(0, 5, site.n_points)[None]
    restart_dcgm_exporter(site, 13, 50)
    package_update(site, 22, 80)
    interactive_session(site, 6, 100, 30)
