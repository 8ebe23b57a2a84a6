"""Where a series belongs, and why not."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouping.catalog import load_catalog
from grouping.identity import IdentityRules, NodeIdentity
from grouping.index import SeriesIndex
from grouping.interfaces_rules import Globs
from grouping.model import Placement, Refusal
from grouping.placement import MAX_SHOWN, PlacementRules, Placer

CATALOG = load_catalog()


def placer(rules=None):
    return Placer(CATALOG, NodeIdentity(IdentityRules()), rules or PlacementRules())


def series(metric, /, **labels):
    return {"__name__": metric, "instance": "gpu065:9100", "job": "node", **labels}


def dcgm(gpu, uuid="", bus="", node="gpu065", metric="DCGM_FI_DEV_GPU_TEMP", **more):
    labels = {"__name__": metric, "instance": "10.1.0.5:9400", "Hostname": node, "gpu": str(gpu), **more}
    if uuid:
        labels["UUID"] = uuid
    if bus:
        labels["pci_bus_id"] = bus
    return labels


def all_smi(index, uuid, node="gpu065", **more):
    labels = {"__name__": "all_smi_gpu_utilization", "instance": "10.1.0.5:9090", "exported_instance": node}
    return {**labels, "index": str(index), "uuid": uuid, "gpu": "NVIDIA B200", **more}


@pytest.mark.parametrize(
    ("labels", "part", "role"),
    [
        (series("node_load1"), "", ""),
        (series("node_cpu_seconds_total", cpu="17", mode="idle"), "cpu 17", "idle"),
        (series("node_network_receive_bytes_total", device="direct0"), "direct0", "direct0"),
        (series("node_infiniband_port_data_received_bytes_total", device="mlx5_0", port="1"), "mlx5_0/1", ""),
        (
            series("node_mountstats_nfs_operations_requests_total", export="nfs1:/data", operation="READ"),
            "nfs1:/data",
            "nfs1:/data|READ",
        ),
        (series("node_disk_read_bytes_total", device="nvme0n1"), "nvme0n1", "nvme0n1"),
        (
            series("node_filesystem_avail_bytes", device="/dev/md0", fstype="xfs", mountpoint="/mnt/x"),
            "/mnt/x",
            "/mnt/x",
        ),
        (series("node_edac_correctable_errors_total", controller="0"), "controller 0", ""),
        (series("node_cpu_core_throttles_total", package="1", core="4"), "1/4", ""),
        (dcgm(3), "gpu 3", ""),
        (all_smi(3, "GPU-3"), "gpu 3", ""),
        (
            {"__name__": "all_smi_gpu_utilization", "instance": "gpu065", "gpu_index": "4", "gpu_uuid": "u"},
            "gpu 4",
            "",
        ),
    ],
)
def test_parts_and_roles(labels, part, role):
    if labels["__name__"] not in CATALOG.by_name:
        pytest.fail(f"{labels['__name__']} is not in the catalog")
    placed = placer().place(labels)
    assert isinstance(placed, Placement), placed
    assert (placed.node, placed.part, placed.role) == ("gpu065", part, role)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (series("node_unheard_of"), "not in catalog"),
        ({"instance": "gpu065:9100"}, "not in catalog"),
        ({"__name__": "node_load1"}, "no label names the node"),
        (dcgm(3, GPU_I_ID="1", GPU_I_PROFILE="1g.23gb"), "MIG slice"),
        (series("DCGM_FI_DEV_GPU_TEMP"), "label gpu missing"),
        (series("all_smi_gpu_utilization"), "label gpu_index|index missing"),
        (series("node_network_receive_bytes_total"), "label device missing"),
        (series("node_network_receive_bytes_total", device="veth3f2a91c"), "virtual interface left out"),
        (series("node_disk_read_bytes_total", device="nvme0n1p2"), "virtual disk or partition left out"),
        (
            series("node_filesystem_avail_bytes", fstype="tmpfs", mountpoint="/dev/shm"),
            "pseudo file system left out",
        ),
        (
            series("node_filesystem_avail_bytes", fstype="xfs", mountpoint="/var/lib/kubelet/pods/a/b"),
            "transient mount left out",
        ),
        (series("node_cpu_seconds_total", cpu="1", mode="x" * 2000), "label value too long"),
        (
            series("backendai_async_task_count", service_group="manager", display_name="manager-1"),
            "service group is not agent",
        ),
    ],
)
def test_refusals_say_why(labels, reason):
    assert placer().place(labels) == Refusal(reason)


@pytest.mark.parametrize(
    "device",
    [
        *("lo", "veth12ab", "docker0", "br-4f5e", "cali9d1", "cni0", "flannel.1", "tun0", "tap1", "virbr0"),
        *("kube-ipvs0", "dummy0", "lxc1f", "cilium_host", "wg0", "tunl0", "vxlan.calico", "ifb0"),
    ],
)
def test_virtual_interfaces_are_left_out(device):
    assert isinstance(placer().place(series("node_network_up", device=device)), Refusal)


@pytest.mark.parametrize("device", ["ib0", "ib7", "direct0", "net0", "eth0", "eno1", "enp5s0f0np0", "bond0"])
def test_physical_interfaces_are_compared(device):
    assert isinstance(placer().place(series("node_network_up", device=device)), Placement)


@pytest.mark.parametrize(
    ("device", "kept"),
    [("nvme0n1", True), ("sda", True), ("md0", True), ("sda1", False), ("loop3", False), ("dm-0", False)],
)
def test_disks(device, kept):
    placed = placer().place(series("node_disk_read_bytes_total", device=device))
    assert isinstance(placed, Placement) is kept


def test_interfaces_can_be_listed():
    chosen = placer(PlacementRules(interface_include=("ib[0-7]", "lo")))
    assert isinstance(chosen.place(series("node_network_up", device="ib3")), Placement)
    assert isinstance(chosen.place(series("node_network_up", device="lo")), Placement)
    refused = chosen.place(series("node_network_up", device="eth0"))
    assert refused == Refusal("virtual interface not in the list")


def test_roce_ports_can_be_left_out():
    chosen = placer(PlacementRules(ib_exclude=("mlx5_8",)))
    state = "node_infiniband_state_id"
    assert isinstance(chosen.place(series(state, device="mlx5_7", port="1")), Placement)
    assert isinstance(chosen.place(series(state, device="mlx5_8", port="1")), Refusal)


def test_jobs_can_be_left_out_and_are_a_role_of_runtimes():
    chosen = placer(PlacementRules(job_exclude=("prometheus", "kube-*")))
    assert isinstance(chosen.place(series("go_goroutines", job="kube-state-metrics")), Refusal)
    agent = chosen.place(series("process_resident_memory_bytes", job="backend-ai"))
    exporter = chosen.place(series("process_resident_memory_bytes", job="node"))
    assert (agent.role, exporter.role) == ("backend-ai", "node")


def test_an_empty_pattern_is_told():
    with pytest.raises(ValueError, match="disk_exclude: pattern"):
        PlacementRules(disk_exclude=("",))


def test_what_changes_with_a_release_is_no_part_of_the_place():
    old = dcgm(3, "GPU-3", "0:3b", DCGM_FI_DRIVER_VERSION="570", pod="a", modelName="B200")
    new = dcgm(3, "GPU-3", "0:3b", DCGM_FI_DRIVER_VERSION="580", pod="b", modelName="B200")
    chosen = placer()
    assert chosen.place(old) == chosen.place(new)


def test_components_are_what_is_summed():
    chosen = placer()
    name = "node_mountstats_nfs_transport_bad_transaction_ids_total"
    plain = chosen.place(series(name, export="nfs1:/data", protocol="tcp"))
    first = chosen.place(series(name, export="nfs1:/data", protocol="tcp", transport="0"))
    second = chosen.place(series(name, export="nfs1:/data", protocol="tcp", transport="1"))
    assert (plain.part, plain.role) == (first.part, first.role) == (second.part, second.role)
    assert len({plain.component, first.component, second.component}) == 3


def test_a_bar_in_a_role_value_makes_no_other_role():
    chosen = placer()
    name = "node_mountstats_nfs_operations_requests_total"
    one = chosen.place(series(name, export="a|b", operation="c"))
    other = chosen.place(series(name, export="a", operation="b|c"))
    assert one.role != other.role


@given(st.text(min_size=1, max_size=1000), st.text(min_size=1, max_size=1000))
def test_any_value_gives_a_bounded_place(export, operation):
    placed = placer().place(
        series("node_mountstats_nfs_operations_requests_total", export=export, operation=operation)
    )
    assert isinstance(placed, Placement)
    assert len(placed.part) <= MAX_SHOWN
    assert len(placed.role) <= MAX_SHOWN
    assert placed.part.isprintable()
    assert placed.role.isprintable()


def test_long_values_that_differ_at_the_end_stay_apart():
    chosen = placer()
    first = chosen.place(series("node_disk_read_bytes_total", device="x" * 500 + "1"))
    second = chosen.place(series("node_disk_read_bytes_total", device="x" * 500 + "2"))
    assert first.part != second.part


def learnt(*label_sets):
    identity = NodeIdentity(IdentityRules())
    chosen = Placer(CATALOG, identity, PlacementRules())
    for labels in label_sets:
        identity.learn(labels)
    return identity, chosen


def test_the_other_exporters_index_is_mapped_by_uuid():
    """After GPU 2 is lost, all-smi counts 0 to 6 where DCGM goes on with 0, 1, 3 to 7."""
    _, chosen = learnt(*(dcgm(k, f"GPU-{k}", f"0:{k}b") for k in range(8)))
    whole = [chosen.place(all_smi(k, f"GPU-{k}")).part for k in range(8)]
    assert whole == [f"gpu {k}" for k in range(8)]
    left = [0, 1, 3, 4, 5, 6, 7]
    shifted = [chosen.place(all_smi(i, f"GPU-{k}")).part for i, k in enumerate(left)]
    assert shifted == [f"gpu {k}" for k in left]
    assert chosen.notes() == []


@pytest.mark.parametrize("shifted_first", [False, True])
def test_a_shifted_dcgm_index_is_mapped_by_bus(shifted_first):
    whole = [dcgm(k, f"GPU-{k}", f"0:{k}b") for k in range(8)]
    left = [dcgm(i, f"GPU-{k}", f"0:{k}b") for i, k in enumerate([0, 1, 3, 4, 5, 6, 7])]
    _, chosen = learnt(*((*left, *whole) if shifted_first else (*whole, *left)))
    assert [chosen.place(labels).part for labels in left] == [f"gpu {k}" for k in (0, 1, 3, 4, 5, 6, 7)]
    assert [chosen.place(labels).part for labels in whole] == [f"gpu {k}" for k in range(8)]


@pytest.mark.parametrize("bus", ["0:2b", ""])
def test_one_damaged_index_moves_no_gpu(bus):
    metrics = [f"DCGM_FI_DEV_{k}" for k in range(8)]
    identity, chosen = learnt(*(dcgm(2, "GPU-2", bus, metric=metric) for metric in metrics))
    before = identity.generation
    identity.learn(dcgm(7, "GPU-2", bus, metric=metrics[0]))
    assert identity.generation == before
    assert chosen.place(dcgm(2, "GPU-2", bus)).part == "gpu 2"
    assert chosen.place(all_smi(0, "GPU-2")).part == "gpu 2"
    for metric in metrics[1:]:
        identity.learn(dcgm(7, "GPU-2", bus, metric=metric))
    assert identity.generation > before, "what all of its series say is no damage"
    assert chosen.place(all_smi(0, "GPU-2")).part == "gpu 7"


def test_a_swapped_gpu_keeps_its_slot_and_is_noted():
    identity, chosen = learnt(dcgm(3, "GPU-old", "0:3b"))
    assert chosen.place(dcgm(3, "GPU-old", "0:3b")).part == "gpu 3"
    identity.learn(dcgm(3, "GPU-new", "0:3b"))
    assert chosen.place(dcgm(3, "GPU-new", "0:3b")).part == "gpu 3"
    (note,) = chosen.notes()
    assert "slot 3 of gpu065" in note


def test_uuids_learnt_late_move_the_series():
    identity, chosen = learnt()
    before = identity.generation
    assert chosen.place(all_smi(2, "GPU-3")).part == "gpu 2"
    identity.learn(dcgm(3, "GPU-3"))
    assert identity.generation > before
    assert chosen.place(all_smi(2, "GPU-3")).part == "gpu 3"
    after = identity.generation
    identity.learn(dcgm(5, "GPU-5"))
    assert identity.generation == after


def test_a_gpu_is_only_mapped_on_its_own_node():
    _, chosen = learnt(dcgm(3, "GPU-3", node="gpu001"), dcgm(6, "GPU-3", node="gpu002"))
    assert chosen.place(all_smi(0, "GPU-3", node="gpu001")).part == "gpu 3"
    assert chosen.place(all_smi(0, "GPU-3", node="gpu002")).part == "gpu 6"
    assert chosen.place(all_smi(0, "GPU-3", node="gpu003")).part == "gpu 0"


def key(labels):
    return json.dumps(labels, separators=(",", ":")).encode()


def test_an_index_moves_its_cells_to_names_learnt_late():
    identity = NodeIdentity(IdentityRules())
    index = SeriesIndex(CATALOG, identity, Placer(CATALOG, identity, PlacementRules()))
    load = key(series("node_load1", instance="10.1.0.5:9100"))
    index.add_many([load, key(dcgm(0, "GPU-0"))])
    name = {"__name__": "node_uname_info", "instance": "10.1.0.5:9100", "nodename": "gpu065"}
    index.add_many([key(name)])
    cell = index.component_cell[index.series_component[index.codes[load]]]
    assert index.nodes[index.cell_node[cell]] == "gpu065"
    assert index.codes[key(name)] == -1


def test_two_exporters_of_one_gpu_are_one_member():
    identity = NodeIdentity(IdentityRules())
    index = SeriesIndex(CATALOG, identity, Placer(CATALOG, identity, PlacementRules()))
    index.add_many([key(dcgm(0, "GPU-0", pod="exporter-a")), key(dcgm(0, "GPU-0", pod="exporter-b"))])
    assert index.n_series == 2
    assert len(set(index.series_component.tolist())) == 1


def test_thousands_of_interfaces_leave_little_behind():
    globs = Globs(("veth*",))
    chosen = placer()
    for k in range(50_000):
        assert globs.matches(f"veth{k:x}")
        chosen.place(series("node_network_up", device=f"veth{k:x}"))
    assert len(globs._known) <= 20_000
    assert len(chosen._refusals) <= 2


def test_a_place_is_cheap():
    chosen = placer()
    labels = series("node_cpu_seconds_total", cpu="17", mode="idle")
    chosen.place(labels)
    best = min(_seconds(chosen, labels) for _ in range(5))
    assert best / 2000 < 100e-6


def _seconds(chosen, labels):
    start = time.perf_counter()
    for _ in range(2000):
        chosen.place(labels)
    return time.perf_counter() - start
