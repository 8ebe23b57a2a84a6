"""Fault classes, their reasons, part, order and roles; every entry of the tables."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.core.culprits import CULPRIT, VICTIM, roles, went_along
from detector.core.diagnosis import (
    UNCLASSIFIED,
    candidates,
    conclude,
    find_signs,
    is_better,
    is_hard,
    nfs_stage,
    order_of,
    spread_of,
    worth,
)
from detector.core.fault_classes import FAULT_CLASSES, LIKELY, POSSIBLE, RULES, Rule
from detector.core.fault_signs import SIGNS
from detector.core.xid_codes import XID_CODES, codes_of
from detector.diagnosis_text import diagnosis_lines
from detector.evaluation.parts import same_part
from detector.outcome import Diagnosis, Evidence, Incident, Layer
from tests.test_docs import tables, text_of

T0 = 1_767_225_600.0
STEP = 60.0


def item(metric: str, **fields: object) -> Evidence:
    """Return one piece of peer evidence; `fields` change it."""
    made = Evidence(
        metric=metric,
        labels={},
        part="",
        layer=Layer.PEER,
        reason="5 units, peers 1 (n=60): 9.0 robust deviations above for 4 min",
        score=2.0,
        value=5.0,
        peer_median=1.0,
        band=(0.5, 1.5),
        since=T0,
        n_peers=59,
        target="GPU",
        side="above",
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def xid(code: float, part: str = "gpu 3", score: float = 1.5, **fields: object) -> Evidence:
    return item(
        "DCGM_FI_DEV_XID_ERRORS",
        layer=Layer.DIRECT,
        value=code,
        part=part,
        score=score,
        side="",
        n_siblings=8,
        reason=f"XID {code:.0f} appeared (critical)",
        **fields,
    )


def gpus(metric: str, side: str, n: int, score: float = 3.0, **fields: object) -> Evidence:
    """Return evidence on the first `n` of eight GPUs."""
    parts = tuple(f"gpu {k}" for k in range(n))
    part = parts[0] if n < 3 else f"{n} GPUs"
    return item(metric, side=side, parts=parts, part=part, n_siblings=8, score=score, **fields)


def shown_by(name: str) -> list[Evidence]:
    """Return evidence that shows one sign."""
    sign = SIGNS[name]
    metric = sign.metrics[0].replace("*", "x") if sign.metrics[0] != "*" else "dcgm_fi_dev_x"
    layer = Layer(sign.layer or "peer")
    value = float(sign.codes[0]) if sign.codes else 5.0
    made = item(
        metric,
        layer=layer,
        side=sign.side,
        value=value,
        labels=dict(sign.labels),
        reason=sign.reads.replace("*", "4") if sign.reads else "5 units, peers 1 (n=60): more",
        part=sign.part.replace("*", "3"),
    )
    if sign.spread == "few":
        return [replace(made, part="gpu 3", parts=() if layer is Layer.DIRECT else ("gpu 3",), n_siblings=8)]
    if sign.spread == "most" and layer is Layer.DIRECT:
        return [replace(made, part=f"gpu {k}", n_siblings=8) for k in range(8)]
    if sign.spread == "most":
        return [replace(made, part="8 GPUs", parts=tuple(f"gpu {k}" for k in range(8)), n_siblings=8)]
    return [made]


def least(rule: Rule) -> tuple[str, ...]:
    """Return the fewest signs that meet a rule."""
    return (*rule.all_of, *(rule.any_of[: rule.at_least]))


def test_tables_name_only_what_exists_and_nothing_is_left_over():
    used = {name for rule in RULES for name in (*rule.all_of, *rule.any_of, *rule.none_of, *rule.supports)}
    assert used == set(SIGNS)
    assert {rule.fault_class for rule in RULES} == set(FAULT_CLASSES)
    assert {xid.fault_class for xid in XID_CODES.values()} <= {*FAULT_CLASSES, ""}
    assert {rule.confidence for rule in RULES} == {LIKELY, POSSIBLE}
    assert all(rule.all_of or rule.any_of for rule in RULES)
    assert all(known.title and known.check for known in FAULT_CLASSES.values())
    for sign in SIGNS.values():
        assert sign.spread in ("", "few", "most"), sign
        assert all(glob == glob.casefold() for glob in sign.metrics), sign
    assert 149 in codes_of("nvlink")


@pytest.mark.parametrize("name", SIGNS)
def test_each_sign_is_found_in_evidence_like_it_and_only_there(name: str):
    shown = shown_by(name)
    assert name in find_signs(shown).by_sign
    wrong = [replace(piece, metric="some_other_thing") for piece in shown]
    if SIGNS[name].metrics != ("*",):
        assert name not in find_signs(wrong).by_sign
    if SIGNS[name].side:
        other = "below" if SIGNS[name].side == "above" else "above"
        assert name not in find_signs([replace(piece, side=other) for piece in shown]).by_sign
    if SIGNS[name].codes:
        assert name not in find_signs([replace(piece, value=999.0) for piece in shown]).by_sign


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.fault_class}-{'+'.join(least(rule))}")
def test_each_rule_gives_its_class_and_needs_all_of_its_signs(rule: Rule):
    names = least(rule)
    evidence = [piece for name in names for piece in shown_by(name)]
    found = {c.rule.fault_class: c for c in candidates(find_signs(evidence))}
    assert rule.fault_class in found
    assert conclude(evidence, STEP).diagnosis.reasons
    for left_out in names:
        fewer = [piece for name in names if name != left_out for piece in shown_by(name)]
        assert rule not in [c.rule for c in candidates(find_signs(fewer))]
    for forbidden in rule.none_of:
        more = [*evidence, *shown_by(forbidden)]
        assert rule not in [c.rule for c in candidates(find_signs(more))]


@pytest.mark.parametrize("code", XID_CODES)
def test_each_xid_gives_its_class_and_says_what_to_do(code: int):
    found = conclude([xid(code)], STEP).diagnosis
    assert found.check == XID_CODES[code].check
    assert f"XID {code} on gpu 3: {XID_CODES[code].meaning}" in found.reasons
    assert found.fault_class == (XID_CODES[code].fault_class or UNCLASSIFIED)
    assert found.part == "gpu 3"


def test_an_unknown_xid_is_told_and_not_classified():
    found = conclude([xid(999)], STEP).diagnosis
    assert (found.fault_class, found.title, found.confidence) == (UNCLASSIFIED, "unclassified: GPU", "")
    assert found.reasons == ("XID 999 on gpu 3: a code without an entry",)


def test_an_xid_is_the_cause_and_the_idle_gpus_are_its_consequence():
    idle = [
        gpus("DCGM_FI_DEV_GPU_UTIL", "below", 8, 4.0),
        gpus("DCGM_FI_DEV_POWER_USAGE", "below", 8, 4.0),
        gpus("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "below", 8, 4.0),
    ]
    found = conclude([xid(149), *idle], STEP).diagnosis
    assert (found.fault_class, found.confidence, found.part) == ("nvlink", LIKELY, "gpu 3")
    assert conclude(idle, STEP).diagnosis.fault_class == "gpu_idle"


def test_nvlink_of_one_gpu_or_of_all_eight():
    one = conclude([xid(74)], STEP).diagnosis
    assert (one.fault_class, one.part) == ("nvlink", "gpu 3")
    every = conclude([xid(74, f"gpu {k}") for k in range(8)], STEP).diagnosis
    assert (every.fault_class, every.part) == ("nvswitch", "8 GPUs")
    slow = conclude([gpus("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "below", 8)], STEP).diagnosis
    assert (slow.fault_class, slow.part, slow.confidence) == ("nvswitch", "8 GPUs", POSSIBLE)
    single = conclude([gpus("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "below", 1)], STEP).diagnosis
    assert (single.fault_class, single.part) == ("nvlink", "gpu 0")


def test_the_scorer_understands_a_number_of_parts():
    every = ",".join(f"gpu {k}" for k in range(8))
    assert same_part("8 GPUs", every)
    assert not same_part("8 GPUs", "gpu 3")
    assert not same_part("3 GPUs", every)
    assert not same_part("8 GPUs", every.replace("gpu", "disk"))
    assert same_part("gpu 3", every)


def test_too_hot_or_held_back():
    clock = gpus("DCGM_FI_DEV_SM_CLOCK", "below", 1)
    power = gpus("DCGM_FI_DEV_POWER_USAGE", "below", 1)
    hot = gpus("DCGM_FI_DEV_GPU_TEMP", "above", 1)
    assert conclude([clock, hot, power], STEP).diagnosis.fault_class == "thermal"
    assert conclude([clock, power], STEP).diagnosis.fault_class == "power_cap"
    assert conclude([clock, power], STEP).diagnosis.confidence == LIKELY
    assert conclude([clock], STEP).diagnosis.confidence == POSSIBLE


def test_all_ports_slow_without_a_link_error_look_like_pcie_and_one_port_like_a_port():
    ports = tuple(f"mlx5_{k}/1" for k in range(8))
    wait = item(
        "node_infiniband_port_transmit_wait_total", parts=ports, part="8 InfiniBand ports", n_siblings=9
    )
    found = conclude([wait], STEP).diagnosis
    assert (found.fault_class, found.confidence, found.part) == ("pcie", POSSIBLE, "8 InfiniBand ports")
    one = replace(wait, parts=ports[:1], part=ports[0])
    assert conclude([one], STEP).diagnosis.fault_class == "nic_slow"
    down = item("node_infiniband_state_id", layer=Layer.DIRECT, value=1.0, part=ports[0], side="", score=1.1)
    assert conclude([wait, down], STEP).diagnosis.fault_class == "ib_port_down"


@pytest.mark.parametrize(
    ("queue", "response", "stage", "fault_class"),
    [(9.0, 2.0, "queue", "nfs_queue"), (2.0, 9.0, "response", "nfs_server"), (1.0, 1.0, "", "nfs")],
)
def test_the_stage_of_slow_nfs_is_where_the_excess_is(queue, response, stage, fault_class):
    name = "node_mountstats_nfs_operations_{}_time_seconds_total"
    evidence = [
        item(name.format("queue"), value=queue, target="NFS", part="s:/data"),
        item(name.format("response"), value=response, target="NFS", part="s:/data"),
    ]
    found = find_signs(evidence)
    assert nfs_stage(found.by_sign) == stage
    diagnosis = conclude(evidence, STEP).diagnosis
    assert (diagnosis.fault_class, diagnosis.part) == (fault_class, "s:/data")


def test_a_missing_part_and_a_missing_node():
    gone = item(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        layer=Layer.ABSENCE,
        part="gpu 5",
        side="",
        value=None,
        score=1.2,
        target="Absence",
        reason="gpu 5 has vanished from its exporters while its siblings and peers report",
    )
    found = conclude([gone], STEP).diagnosis
    assert (found.fault_class, found.part, found.also) == ("gpu_lost", "gpu 5", ())
    silent = replace(
        gone, metric="up", part="", reason="all 4 exporters of the node are silent while its peers"
    )
    assert conclude([silent], STEP).diagnosis.fault_class == "node_unreachable"


def test_without_reasons_there_is_no_class():
    assert conclude([], STEP).diagnosis.fault_class == UNCLASSIFIED
    found = conclude([item("some_new_metric", target="Other", part="thing 1")], STEP)
    assert found.diagnosis.title == "unclassified: Other"
    assert (found.diagnosis.part, found.diagnosis.confidence) == ("thing 1", "")


def test_spread_counts_parts_against_siblings():
    assert spread_of([gpus("m", "above", 2)]) == "few"
    assert spread_of([gpus("m", "above", 3)]) == "few"
    assert spread_of([gpus("m", "above", 4)]) == "most"
    assert spread_of([replace(gpus("m", "above", 3), n_siblings=0)]) == "most"
    assert spread_of([item("m")]) == ""


def test_order_is_told_only_as_finely_as_the_samples_allow():
    def moved(target: str, after: float, score: float = 2.0) -> Evidence:
        return item("m", target=target, since=T0 + after, score=score)

    assert order_of([moved("GPU", 90), moved("NFS", 0)], 60) == "NFS moved 90 s before GPU"
    assert order_of(
        [moved("GPU", 30), moved("NFS", 0)], 60
    ) == "GPU and NFS moved together (within 60 s)" or (
        order_of([moved("GPU", 30), moved("NFS", 0)], 60) == "NFS and GPU moved together (within 60 s)"
    )
    assert order_of([moved("GPU", 0)], 60) == ""
    assert order_of([moved("GPU", 0), moved("NFS", 600, score=0.5)], 60) == ""
    several = [moved("CPU", 0), moved("GPU", 60), moved("NFS", 600), moved("Disk", 610)]
    assert order_of(several, 60) == "CPU moved 60 s before GPU, 10 min before NFS and Disk"


def test_a_diagnosis_gives_way_only_to_one_nearer_to_the_cause():
    cause = conclude([xid(149)], STEP).diagnosis
    idle = conclude([gpus("DCGM_FI_DEV_GPU_UTIL", "below", 8, 4.0)], STEP).diagnosis
    writes = conclude([item("node_mountstats_nfs_write_bytes_total", score=4.0)], STEP).diagnosis
    assert is_better(cause, None)
    assert is_better(cause, idle)
    assert not is_better(idle, cause)
    assert not is_better(writes, idle)
    weaker = conclude([xid(145, score=0.7)], STEP).diagnosis
    assert is_better(cause, weaker)
    assert not is_better(weaker, cause)


def test_a_victim_is_who_followed_and_only_went_where_its_pool_went():
    first = [xid(79, since=T0)]
    followed = [gpus("DCGM_FI_DEV_GPU_UTIL", "below", 8, since=T0 + 120, with_pool=True)]
    own = [gpus("DCGM_FI_DEV_GPU_TEMP", "above", 1, since=T0 + 120)]
    pools = dict.fromkeys(("a", "b", "c", "d"), 0)
    found = roles({"a": first, "b": followed, "c": own}, pools, STEP, T0 + 400)
    assert found["a"].word == CULPRIT
    assert found["b"].word == VICTIM
    assert found["b"].is_only_victim
    assert "2 min" in found["b"].reason or "120 s" in found["b"].reason
    assert "c" not in found
    at_once = [replace(followed[0], since=T0 + 30)]
    assert "b" not in roles({"a": first, "b": at_once}, pools, STEP, T0 + 400)
    assert not roles({"a": first, "b": followed}, {"a": 0, "b": 1}, STEP, T0 + 400)
    assert not roles({"a": first, "b": [replace(followed[0], since=T0 + 900)]}, pools, STEP, T0 + 1000)
    assert not roles({"a": first, "b": followed}, pools, STEP, T0 + 1000)
    with_event = [*followed, xid(63, since=T0 + 120)]
    assert "b" not in roles({"a": first, "b": with_event}, pools, STEP, T0 + 400)


def test_two_that_began_together_are_both_kept():
    both = {node: [xid(79, since=T0 + k)] for k, node in enumerate("ab")}
    both["v"] = [gpus("DCGM_FI_DEV_GPU_UTIL", "below", 8, since=T0 + 200, with_pool=True)]
    found = roles(both, dict.fromkeys("abv", 0), STEP, T0 + 400)
    assert {node: role.word for node, role in found.items()} == {"a": CULPRIT, "b": CULPRIT, "v": VICTIM}


def test_classes_and_codes_are_told_on_their_page():
    rows = list(tables(text_of("faults.md")))
    told = {row["class"].strip("`"): (row["in words"], row["check first"]) for row in rows if "class" in row}
    assert told == {key: (known.title, known.check) for key, known in FAULT_CLASSES.items()}
    codes = {int(row["code"]): row for row in rows if "code" in row}
    assert set(codes) == set(XID_CODES)
    for code, known in XID_CODES.items():
        row = codes[code]
        assert (row["meaning"], row["class of fault"].strip("`"), row["do first"]) == (
            known.meaning,
            known.fault_class,
            known.check,
        )


class TestAChangeOfHabit:
    """It is soft as a comparison with peers is: the same signs, and nothing that speaks for itself."""

    def test_it_meets_the_signs_of_peers_and_of_no_other_layer(self):
        for name, sign in SIGNS.items():
            piece = item(sign.metrics[0].replace("*", "x"), layer=Layer.PEER, side=sign.side or "above")
            moved = replace(piece, layer=Layer.HABIT)
            assert (name in find_signs([moved]).by_sign) == (name in find_signs([piece]).by_sign)

    def test_it_weighs_what_the_same_of_peers_does(self):
        piece = item("DCGM_FI_DEV_GPU_TEMP", part="gpu 2", score=4.0)
        moved = replace(piece, layer=Layer.HABIT)
        assert not is_hard(moved)
        assert is_hard(replace(piece, layer=Layer.DIRECT))
        assert worth(moved) == worth(piece) < worth(replace(piece, layer=Layer.DIRECT))
        later = item("node_load1", layer=Layer.HABIT, target="CPU", since=T0 + 600)
        assert order_of([moved, later], STEP) == "GPU moved 10 min before CPU"

    def test_who_only_went_along_is_a_victim_in_either_layer(self):
        along = item("DCGM_FI_DEV_POWER_USAGE", layer=Layer.HABIT, with_pool=True)
        assert went_along([along, replace(along, layer=Layer.PEER)])
        assert not went_along([along, replace(along, with_pool=False)])
        assert not went_along([replace(along, layer=Layer.DIRECT)])

    def test_its_reason_is_told_short(self):
        text = "345 megahertz, peers 1920 (n=60): moved 19.6 robust deviations below its habit for 5 min"
        moved = item("DCGM_FI_DEV_SM_CLOCK", layer=Layer.HABIT, side="below", reason=text, part="gpu 1")
        assert any(
            said.endswith("345 megahertz, peers 1920") for said in conclude([moved], STEP).diagnosis.reasons
        )


numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
pieces = st.builds(
    Evidence,
    metric=st.sampled_from([*(s.metrics[0].replace("*", "x") for s in SIGNS.values()), "up", "", "ünï*[x"]),
    labels=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    part=st.sampled_from(["", "gpu 1", "8 GPUs", "mlx5_0/1", "x"]),
    layer=st.sampled_from(list(Layer)),
    reason=st.text(max_size=20),
    score=st.floats(0, 5),
    value=st.none() | numbers,
    peer_median=st.none() | numbers,
    band=st.none(),
    since=st.floats(0, 1e9),
    n_peers=st.integers(0, 9),
    target=st.sampled_from(["GPU", "NFS", ""]),
    side=st.sampled_from(["", "above", "below"]),
    parts=st.lists(st.sampled_from(["gpu 0", "gpu 1", "gpu 2", "gpu 3"]), unique=True).map(tuple),
    n_siblings=st.integers(0, 8),
)


@given(st.lists(pieces, max_size=20))
def test_any_evidence_has_an_answer_and_a_class_has_reasons(evidence):
    found = conclude(evidence, STEP)
    diagnosis = found.diagnosis
    assert (diagnosis.confidence == "") == (diagnosis.fault_class == UNCLASSIFIED)
    assert "certain" not in diagnosis.confidence
    if diagnosis.fault_class != UNCLASSIFIED:
        assert diagnosis.reasons
    assert found.first is None or found.first in evidence
    assert conclude(evidence, STEP) == found
    assert diagnosis_lines(diagnosis.plain())


def test_incidents_stored_before_there_were_diagnoses_are_read():
    old = (
        b'{"id":"a@1","node":"a","state":"suspect","active_at":1.0,"evidence":[{"metric":"m","labels":{},'
        b'"part":"","layer":"peer","reason":"r","score":1.0,"value":null,"peer_median":null,"band":null,'
        b'"since":1.0,"n_peers":3,"target":"GPU"}]}'
    )
    found = msgspec.json.decode(old, type=Incident)
    assert found.diagnosis is None
    assert found.evidence[0].parts == ()
    new = replace(found, diagnosis=Diagnosis("pcie", "PCIe link", reasons=("a",), also=("b",)))
    assert msgspec.json.decode(msgspec.json.encode(new), type=Incident) == new


def test_lines_of_a_diagnosis():
    found = conclude([xid(149), item("backendai_async_task_count", target="Scheduler", since=T0 + 90)], STEP)
    lines = diagnosis_lines(found.diagnosis.plain())
    assert lines[0] == "  likely: NVLink of one GPU (gpu 3)"
    assert lines[1] == "    because XID 149 on gpu 3: NVLink network unit NETIR, in most forms a lost link"
    assert "  order: GPU moved 90 s before Scheduler" in lines
    assert lines[-1].startswith("  check: read the sub-code")
    assert diagnosis_lines(None) == []
