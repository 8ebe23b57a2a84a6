"""What is left out by default: virtual interfaces, pseudo file systems, partitions.

Patterns are shell globs, matched against the whole value.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

MAX_REMEMBERED = 20_000

VIRTUAL_INTERFACES = (
    "lo",
    "veth*",
    "docker*",
    "docker_gwbridge",
    "br-*",
    "cali*",
    "cni*",
    "flannel*",
    "cilium*",
    "lxc*",
    "tun*",
    "tap*",
    "tunl*",
    "vxlan*",
    "geneve*",
    "gre*",
    "erspan*",
    "sit*",
    "ip6tnl*",
    "ip6_vti*",
    "ip_vti*",
    "ip6gre*",
    "virbr*",
    "vnet*",
    "kube-*",
    "nodelocaldns*",
    "dummy*",
    "ifb*",
    "wg*",
    "weave*",
    "datapath",
    "ovs-system",
    "podman*",
    "lxdbr*",
    "azv*",
    "eni*",
    "teql*",
    "vcan*",
    "nlmon*",
)
"""Interfaces of containers, tunnels and bridges: they come and go with what runs."""

VIRTUAL_DISKS = (
    "loop*",
    "ram*",
    "zram*",
    "fd*",
    "sr*",
    "nbd*",
    "rbd*",
    "dm-*",
    "nvme*n*p*",
    "sd*[0-9]",
    "vd*[0-9]",
    "xvd*[0-9]",
    "hd*[0-9]",
    "md*p*",
    "mmcblk*p*",
)
"""Devices without hardware of their own, and partitions: their disk is counted already."""

PSEUDO_FILESYSTEMS = (
    "tmpfs",
    "devtmpfs",
    "ramfs",
    "overlay",
    "overlayfs",
    "aufs",
    "squashfs",
    "iso9660",
    "udf",
    "proc",
    "sysfs",
    "cgroup*",
    "devpts",
    "mqueue",
    "hugetlbfs",
    "autofs",
    "binfmt_misc",
    "bpf",
    "configfs",
    "debugfs",
    "tracefs",
    "securityfs",
    "selinuxfs",
    "efivarfs",
    "fusectl",
    "fuse.lxcfs",
    "fuse.gvfsd*",
    "fuse.portal",
    "nsfs",
    "pstore",
    "rpc_pipefs",
    "nfsd",
    "rootfs",
    "fuse.snapfuse",
)
"""File systems in memory, of the kernel, and of container layers."""

TRANSIENT_MOUNTS = (
    "/var/lib/docker/*",
    "/var/lib/containerd/*",
    "/var/lib/containers/*",
    "/var/lib/kubelet/*",
    "/var/lib/rancher/*",
    "/run/*",
    "/var/run/*",
    "/snap/*",
    "/var/snap/*",
    "/proc/*",
    "/sys/*",
    "/dev/*",
    "/etc/*",
)
"""Mount points that a container runtime or a package makes; they differ from node to node."""


class Globs:
    """Some shell globs as one test with a bounded memory.

    Parameters
    ----------
    patterns
        Globs; none match nothing.

    Raises
    ------
    ValueError
        When a pattern is empty or longer than 200 characters.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if not 0 < len(pattern) <= 200:
                raise ValueError(f"pattern {pattern[:40]!r} must have 1 to 200 characters")
        joined = "|".join(f"(?:{fnmatch.translate(pattern)})" for pattern in patterns)
        self._match = re.compile(joined).match if patterns else None
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return self._match is not None

    def matches(self, value: str) -> bool:
        """Tell whether a whole value matches any of the globs."""
        known = self._known.get(value)
        if known is None:
            known = self._match is not None and self._match(value) is not None
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[value] = known
        return known
