"""Short names, spellings, and what label sets claimed about addresses and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grouping.hosts import MAX_HOST, Host, parse_host, shorten

MAX_OWNERS = 3
"""An address with more names than this belongs to none of them (a proxy, a gateway)."""

MAX_NAMES = 200_000
MAX_LISTED = 200


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something about names and addresses that does not fit together.

    Parameters
    ----------
    kind
        Short class of the conflict.
    subject
        Address or name concerned.
    values
        What it could be.
    sentence
        The whole of it for a person.
    """

    kind: str
    subject: str
    values: tuple[str, ...]
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(slots=True)
class _Claim:
    name: str
    strength: int
    names: dict[str, int] = field(default_factory=dict)


class Claims:
    """What was said about each address (or other name): which node it is.

    Parameters
    ----------
    kind
        Word for the keys, in conflicts.
    max_owners
        Number of names beyond which a key belongs to none of them.
    """

    def __init__(self, kind: str, max_owners: int = MAX_OWNERS) -> None:
        self._kind = kind
        self._max_owners = max_owners
        self._by_key: dict[str, dict[str, _Claim]] = {}

    def teach(self, cluster: str, key: str, name: str, strength: int) -> bool:
        """Take in one claim; of equally strong ones the newest holds.

        Returns
        -------
        bool
            True when an answer may have changed.
        """
        if len(self._by_key) >= MAX_NAMES and key not in self._by_key:
            return False
        claims = self._by_key.setdefault(key, {})
        claim = claims.get(cluster)
        if claim is None:
            claims[cluster] = _Claim(name, strength, {name: strength})
            return True
        before = self._holder(claim)
        if len(claim.names) <= MAX_OWNERS or name in claim.names:
            claim.names[name] = max(strength, claim.names.get(name, 0))
        if strength >= claim.strength:
            claim.name, claim.strength = name, strength
        return self._holder(claim) != before

    def name_of(self, cluster: str, key: str) -> str | None:
        """Return the name claimed for a key, None when there is none or too many share it."""
        claims = self._by_key.get(key)
        if claims is None:
            return None
        claim = claims.get(cluster) or claims.get("")
        if claim is None and not cluster and len(claims) == 1:
            claim = next(iter(claims.values()))
        return None if claim is None else self._holder(claim)

    def _holder(self, claim: _Claim) -> str | None:
        strongest = sum(strength == claim.strength for strength in claim.names.values())
        return None if strongest > self._max_owners else claim.name

    def conflicts(self, shown: Callable[[str], str]) -> list[Conflict]:
        """Return the keys for which different names were claimed."""
        found = []
        for key, claims in self._by_key.items():
            if len(claims) == 1 and len(next(iter(claims.values())).names) == 1:
                continue
            for cluster, claim in claims.items():
                names = sorted({shown(name) for name in claim.names})
                host = parse_host(key)
                if len(names) < 2 or host is None or host.exact != host.name:
                    continue
                chosen = self.name_of(cluster, key)
                what = f"taken as {shown(chosen)}" if chosen is not None else "taken as none of them"
                found.append(
                    Conflict(
                        f"{self._kind} with two names",
                        key,
                        tuple(names),
                        f"{self._kind} {key} was called {', '.join(names)}: "
                        f"series that carry no better name are {what}",
                    )
                )
        return found


class HostNames:
    """Short forms and spellings of host names.

    Parameters
    ----------
    strip_domain
        True to leave out the domain of names that have only one.
    rewrites
        Pairs (regular expression, replacement) for names in lower case.
    """

    def __init__(self, strip_domain: bool, rewrites: tuple[tuple[str, str], ...]) -> None:
        self._strip_domain = strip_domain
        self._rewrites = [(re.compile(pattern), replacement) for pattern, replacement in rewrites]
        self._domains: dict[str, dict[str, None]] = {}
        self._spelling: dict[str, str] = {}

    def note(self, host: Host) -> bool:
        """Take in a name as it was written.

        Returns
        -------
        bool
            True when a short name became ambiguous.
        """
        if host.is_address or len(self._spelling) >= MAX_NAMES:
            return False
        self._spelling.setdefault(host.name, host.spelling)
        short, dot, domain = host.name.partition(".")
        if not dot or not self._strip_domain:
            return False
        self._spelling.setdefault(short, host.spelling.partition(".")[0])
        domains = self._domains.setdefault(short, {})
        if domain in domains or len(domains) > MAX_OWNERS:
            return False
        domains[domain] = None
        return len(domains) == 2

    def canonical(self, name: str) -> str:
        """Return the form under which a host is known: rewritten, and short where that is unambiguous."""
        host = parse_host(name)
        if host is None or host.is_address:
            return name
        text = host.name
        for pattern, replacement in self._rewrites:
            text = shorten(pattern.sub(replacement, text), MAX_HOST)
        text = text or host.name
        short, dot, _ = text.partition(".")
        if dot and short and self._strip_domain and len(self._domains.get(short, ())) < 2:
            return short
        return text

    def shown(self, name: str) -> str:
        """Return the canonical form as it was first spelt."""
        text = self.canonical(name)
        return self._spelling.get(text, text if text != name.lower() else name)

    def conflicts(self) -> list[Conflict]:
        """Return short names that stand for hosts of different domains."""
        return [
            Conflict(
                "name with two domains",
                short,
                tuple(domains),
                f"{short} exists in the domains {', '.join(domains)}: its full names are used",
            )
            for short, domains in self._domains.items()
            if len(domains) > 1
        ]


class Oddities:
    """Remembers, within bounds, what cannot be right about targets and names."""

    def __init__(self) -> None:
        self._homes: dict[tuple[str, str, str, int], dict[str, None]] = {}
        self._containers: dict[str, dict[str, None]] = {}
        self._loopbacks: dict[str, None] = {}

    def note_home(self, cluster: str, name: str, job: str, instance: Host) -> None:
        """Take in that a machine calls itself so at this address."""
        if instance.is_address and not instance.is_loopback and len(self._homes) < MAX_NAMES:
            homes = self._homes.setdefault((cluster, name, job, instance.family), {})
            if len(homes) < MAX_LISTED:
                homes[instance.name] = None

    def note_container(self, instance: Host | None, host: Host) -> None:
        """Take in that an exporter called its machine by a container's name."""
        where = instance.name if instance is not None else "an unknown address"
        if len(self._containers) < MAX_LISTED or where in self._containers:
            names = self._containers.setdefault(where, {})
            if len(names) < MAX_LISTED:
                names[host.name] = None

    def note_loopback(self, instance: Host) -> None:
        """Take in that a node is known by a loopback address only."""
        self._loopbacks[instance.name] = None

    def conflicts(self, shown: Callable[[str], str]) -> list[Conflict]:
        """Return what was noted."""
        found = []
        for (_, key, job, _), homes in self._homes.items():
            if len(homes) > 1:
                name, where = shown(key), f" of job {job}" if job else ""
                told = f"{name} is the name of several targets{where} ({_listed(homes)})"
                sentence = f"{told}: two machines may be compared as one"
                found.append(Conflict("name at two addresses", name, tuple(homes), sentence))
        for address, names in self._containers.items():
            told = f"the exporter at {address} names its container ({_listed(names)}) instead of its machine"
            sentence = f"{told}: its series are joined by address"
            found.append(Conflict("container name", address, tuple(names), sentence))
        for host in self._loopbacks:
            sentence = f"targets are scraped at {host}, which does not tell machines apart"
            found.append(Conflict("loopback", host, (), sentence))
        return found


def _listed(values: Mapping[str, None]) -> str:
    first = list(values)[:4]
    return ", ".join(first) + (", ..." if len(values) > len(first) else "")
