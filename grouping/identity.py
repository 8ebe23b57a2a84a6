"""Which label sets are one machine: names, addresses, and what joins them.

Exporters name their machine in different ways, and some only by the address at which they
are scraped. Label sets that carry a name and an address (``node_uname_info`` first of all)
teach which is which; series without a name are then joined by their address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from grouping.gpu_slots import GpuSlots
from grouping.host_names import Claims, Conflict, HostNames, Oddities
from grouping.hosts import Host, is_container_name, parse_host, shorten

MAX_CACHED = 400_000
"""Label combinations remembered; beyond that the memory starts anew (churning pod addresses)."""

MAX_CONFLICTS = 200
MAX_REWRITES = 32
MAX_PATTERN = 500

DEFAULT_LABELS = ("node", "kubernetes_node", "nodename", "Hostname", "hostname", "host", "exported_instance")
"""Labels that name the machine, most trusted first; ``instance`` and the agent's id come after them."""

_KEY_LABELS = ("instance", "display_name", "agent_id")
_UNAME, _NAMED = 2, 1

Key = tuple[str | None, ...]


@dataclass(frozen=True)
class IdentityRules:
    """How a node's name is read from labels.

    Parameters
    ----------
    node_label
        Label that names the node and goes before all others; None for none.
    labels
        Labels that name the node, most trusted first.
    strip_domain
        True to name ``gpu065.cluster.local`` ``gpu065`` as long as only one domain has a gpu065.
    rewrites
        Pairs (regular expression, replacement) applied in order to every host name in lower case.
    cluster_label
        Label that becomes part of the name (``a/gpu01``) once it has more than one value; None to ignore it.
    aliases
        Names by address or by other name, with or without port; they go before everything that is learnt.

    Raises
    ------
    ValueError
        When a rewrite is no regular expression, there are too many, or an alias has an empty side.
    """

    node_label: str | None = None
    labels: tuple[str, ...] = DEFAULT_LABELS
    strip_domain: bool = True
    rewrites: tuple[tuple[str, str], ...] = ()
    cluster_label: str | None = "cluster"
    aliases: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.rewrites) > MAX_REWRITES:
            raise ValueError(f"identity has {len(self.rewrites)} rewrites, more than {MAX_REWRITES}")
        for pattern, replacement in self.rewrites:
            if len(pattern) > MAX_PATTERN:
                raise ValueError(
                    f"identity rewrite {pattern[:40]!r}... is longer than {MAX_PATTERN} characters"
                )
            try:
                re.sub(pattern, replacement, "")
            except (re.error, IndexError) as error:
                raise ValueError(f"identity rewrite {pattern!r} to {replacement!r}: {error}") from None
        for key, name in self.aliases.items():
            if parse_host(key) is None or parse_host(name) is None:
                raise ValueError(f"identity alias {key!r} to {name!r} has an empty side")

    @property
    def name_labels(self) -> tuple[str, ...]:
        """All labels that name a node, in order of trust."""
        first = (self.node_label,) if self.node_label else ()
        return (*first, *(label for label in self.labels if label not in first))


@dataclass(slots=True)
class _Answer:
    node: str | None
    source: str
    epoch: int


class NodeIdentity:
    """Learns from label sets which names and addresses are one machine, and tells a series' node.

    Parameters
    ----------
    rules
        How names are read.

    Notes
    -----
    Both `learn` and `node_of` cost about a microsecond for a combination of identity labels
    that was seen before, and a few tens for a new one.
    """

    def __init__(self, rules: IdentityRules | None = None) -> None:
        self._rules = rules or IdentityRules()
        self._labels = self._rules.name_labels
        self._n_names = len(self._labels)
        self._key_labels = (*self._labels, *_KEY_LABELS, self._rules.cluster_label or "")
        self._names = HostNames(self._rules.strip_domain, self._rules.rewrites)
        self._fixed = self._read_aliases(self._rules.aliases)
        self._addresses = Claims("address")
        self._synonyms = Claims("name", max_owners=1)
        self._clusters: set[str] = set()
        self._clusters_of: dict[str, set[str]] = {}
        self._oddities = Oddities()
        self._learnt: set[Key] = set()
        self._answers: dict[Key, _Answer] = {}
        self._sources: dict[str, tuple[int, str]] = {}
        self._epoch = 0
        self._settled = 0
        self._generation = 0
        self._changed = False
        self.gpus = GpuSlots(self._node_of_key)

    def _read_aliases(self, aliases: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, name in aliases.items():
            host, target = parse_host(key), parse_host(name)
            if host is not None and target is not None:
                found[host.exact] = target.spelling
        return found

    @property
    def generation(self) -> int:
        """Changes when an answer that `node_of` or `gpus` gave would now be another one."""
        if self._settled != self._epoch:
            for key, answer in self._answers.items():
                if answer.epoch != self._epoch:
                    self._renew(key, answer)
            self._settled = self._epoch
        if self.gpus.take_changed(self._epoch) or self._changed:
            self._changed = False
            self._generation += 1
        return self._generation

    def learn(self, labels: Mapping[str, str]) -> None:
        """Take in a label set: a name and an address in it belong together.

        Parameters
        ----------
        labels
            Any label set, of a catalog metric or not.
        """
        key = tuple(map(labels.get, self._key_labels))
        if key not in self._learnt:
            if len(self._learnt) >= MAX_CACHED:
                self._learnt.clear()
            self._learnt.add(key)
            self._learn_key(key, labels)
        if "UUID" in labels:
            self.gpus.learn(key, labels)

    def node_of(self, labels: Mapping[str, str], exporter: str = "") -> str | None:
        """Return the node of a label set.

        Parameters
        ----------
        labels
            Label set of a series.
        exporter
            Exporter by the catalog; the same labels are read alike for all of them.

        Returns
        -------
        str or None
            None when no label tells the node.
        """
        key = tuple(map(labels.get, self._key_labels))
        answer = self._answers.get(key)
        if answer is None or answer.epoch != self._epoch:
            return self._node_of_key(key)
        return answer.node

    def sources(self) -> Mapping[str, str]:
        """Return for each node named so far the most trusted label that gave its name."""
        return {node: source for node, (_, source) in sorted(self._sources.items())}

    def conflicts(self) -> list[Conflict]:
        """Return what does not fit together, each as a sentence, in a stable order.

        What is told: an address with two names, a name at two addresses of one job, host names
        that are container ids, targets scraped at localhost, and short names with two domains.
        """
        found = [
            *self._addresses.conflicts(self._shown),
            *self._synonyms.conflicts(self._shown),
            *self._oddities.conflicts(self._shown),
            *self._names.conflicts(),
        ]
        return sorted(found, key=lambda c: (c.kind, c.subject))[:MAX_CONFLICTS]

    def _node_of_key(self, key: Key) -> str | None:
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MAX_CACHED:
                self._answers.clear()
            node, source = self._decide(key)
            self._answers[key] = _Answer(node, source, self._epoch)
            self._remember_source(node, source)
            return node
        if answer.epoch != self._epoch:
            self._renew(key, answer)
        return answer.node

    def _renew(self, key: Key, answer: _Answer) -> None:
        node, source = self._decide(key)
        if node != answer.node:
            self._changed = True
            if answer.node is not None:
                self._sources.pop(answer.node, None)
        answer.node, answer.source, answer.epoch = node, source, self._epoch
        self._remember_source(node, source)

    def _remember_source(self, node: str | None, source: str) -> None:
        if node is None:
            return
        order = (*self._labels, "node_uname_info", "alias")
        rank = order.index(source) if source in order else len(order)
        if node not in self._sources or rank < self._sources[node][0]:
            self._sources[node] = (rank, source)

    def _learn_key(self, key: Key, labels: Mapping[str, str]) -> None:
        instance = parse_host(key[self._n_names] or "")
        cluster = key[-1] or ""
        if cluster and cluster not in self._clusters:
            self._clusters.add(cluster)
            self._epoch += len(self._clusters) == 2
        if instance is not None and not instance.is_address:
            self._note_name(instance)
        names = self._own_names(key, instance)
        if not names:
            return
        preferred = names[0][1]
        by_uname = any(label == "nodename" for label, _ in names)
        strength = _UNAME if by_uname else _NAMED
        taught = False
        for _, host in names:
            taught |= self._note_name(host)
        target = self._names.canonical(preferred.name)
        for _, host in names[1:]:
            for form in sorted({host.name, self._names.canonical(host.name)} - {preferred.name, target}):
                taught |= self._synonyms.teach(cluster, form, target, strength)
        if instance is not None:
            taught |= self._addresses.teach(cluster, instance.exact, preferred.name, strength)
            if not instance.is_loopback and instance.name != preferred.name:
                taught |= self._addresses.teach(cluster, instance.name, preferred.name, strength)
            if by_uname and instance.name not in self._fixed and instance.exact not in self._fixed:
                self._oddities.note_home(cluster, target, labels.get("job", ""), instance)
        for form in {preferred.name, target}:
            clusters = self._clusters_of.setdefault(form, set())
            taught |= cluster not in clusters
            clusters.add(cluster)
        self._epoch += taught

    def _note_name(self, host: Host) -> bool:
        changed = self._names.note(host)
        self._epoch += changed
        return changed

    def _own_names(self, key: Key, instance: Host | None) -> list[tuple[str, Host]]:
        """Return the names by which a label set calls its machine; addresses and containers are none."""
        found: list[tuple[str, Host]] = []
        for label, value in zip(self._labels, key, strict=False):
            host = self._trusted(label, value, instance)
            if host is not None and not host.is_address:
                found.append((label, host))
        return found

    def _trusted(self, label: str, value: str | None, instance: Host | None) -> Host | None:
        if not value or (value.isdigit() and label == "node"):
            return None  # node="0" is a NUMA node
        host = parse_host(value)
        if host is None or host.is_loopback:
            return None
        if label != self._rules.node_label and is_container_name(host.name):
            self._oddities.note_container(instance, host)
            return None
        return host

    def _decide(self, key: Key) -> tuple[str | None, str]:
        instance = parse_host(key[self._n_names] or "")
        cluster = key[-1] or ""
        if instance is not None and self._fixed:
            name = self._fixed.get(instance.exact) or self._fixed.get(instance.name)
            if name is not None:
                return self._in_cluster(cluster, name), "alias"
        for label, value in zip(self._labels, key, strict=False):
            host = self._trusted(label, value, instance)
            if host is None:
                continue
            if host.name in self._fixed:
                return self._in_cluster(cluster, self._fixed[host.name]), "alias"
            return self._full(cluster, self._name_of(cluster, host)), label
        return self._by_address(cluster, instance, key)

    def _by_address(self, cluster: str, instance: Host | None, key: Key) -> tuple[str | None, str]:
        """Name a series that carries no name: by what was learnt of its address, or by its agent."""
        if instance is not None:
            name = self._addresses.name_of(cluster, instance.exact)
            if name is None and not instance.is_loopback:
                name = self._addresses.name_of(cluster, instance.name)
            if name is not None:
                return self._full(cluster, self._synonym(cluster, name)), "node_uname_info"
            if not instance.is_address and not instance.is_loopback:
                return self._full(cluster, self._synonym(cluster, instance.name)), "instance"
        agent = self._agent_host(key)
        if agent is not None and (instance is None or instance.is_loopback or agent in self._clusters_of):
            return self._full(cluster, self._synonym(cluster, agent)), "display_name"
        if instance is None:
            return None, ""
        if instance.is_loopback:
            self._oddities.note_loopback(instance)
        return self._full(cluster, instance.name), "instance"

    def _agent_host(self, key: Key) -> str | None:
        """Return the host name in an agent's id: ``agent-i-gpu065`` and ``i-gpu065`` are of gpu065."""
        display, agent_id = key[self._n_names + 1], key[self._n_names + 2]
        text = display.removeprefix("agent-") if display and display.startswith("agent-") else agent_id
        host = parse_host(text or "")
        if host is None:
            return None
        self._names.note(host)
        plain = host.name.removeprefix("i-")
        if host.name in self._clusters_of or not plain:
            return host.name
        return plain

    def _name_of(self, cluster: str, host: Host) -> str:
        if host.name not in self._clusters_of:
            known = self._addresses.name_of(cluster, host.exact)
            known = known or self._addresses.name_of(cluster, host.name)
            if known is not None:
                return self._synonym(cluster, known)
        return self._synonym(cluster, host.name)

    def _synonym(self, cluster: str, name: str) -> str:
        known = self._synonyms.name_of(cluster, name)
        return known or self._synonyms.name_of(cluster, self._names.canonical(name)) or name

    def _full(self, cluster: str, name: str) -> str:
        if not cluster and len(self._clusters) > 1:
            known = self._clusters_of.get(name) or self._clusters_of.get(self._names.canonical(name)) or set()
            if len(known - {""}) == 1:
                (cluster,) = known - {""}
        return self._in_cluster(cluster, self._shown(name))

    def _in_cluster(self, cluster: str, name: str) -> str:
        return f"{shorten(cluster, 64)}/{name}" if cluster and len(self._clusters) > 1 else name

    def _shown(self, name: str) -> str:
        return self._names.shown(name)


__all__ = ["Conflict", "IdentityRules", "NodeIdentity"]
