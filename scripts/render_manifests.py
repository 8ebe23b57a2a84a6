"""Render the chart to plain manifests with helm: what `kubectl apply -f deploy/manifests` needs.

    python scripts/render_manifests.py          writes deploy/manifests
    python scripts/render_manifests.py --check  exit code 1 when they are not what the chart gives

Needs `helm` (version 3 or 4) on the PATH. Tests without helm compare the hash of the chart that the
first line of every manifest carries.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "oddnode"
MANIFESTS = ROOT / "deploy" / "manifests"
HEAD = "# Rendered from deploy/helm/oddnode by scripts/render_manifests.py; chart sha256 "
ONLY_HELM = ("app.kubernetes.io/managed-by: Helm", "helm.sh/chart:", "# Source: ")
PLAIN = ["--set", "persistence.annotations=null"]
FILES = {
    "oddnode.yaml": PLAIN,
    "monitoring/servicemonitor.yaml": [
        *("--set", "metrics.serviceMonitor.enabled=true"),
        *("--show-only", "templates/servicemonitor.yaml"),
    ],
    "monitoring/vmservicescrape.yaml": [
        *("--set", "metrics.vmServiceScrape.enabled=true"),
        *("--show-only", "templates/vmservicescrape.yaml"),
    ],
}


def chart_sha256() -> str:
    """Return the hash over names and contents of the chart's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(CHART)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def template(*options: str) -> str:
    """Return what `helm template` makes of the chart.

    Raises
    ------
    RuntimeError
        With helm's own words.
    """
    command = ["helm", "template", "oddnode", str(CHART), "--namespace", "oddnode", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def rendered() -> dict[str, str]:
    """Return every manifest by its path below deploy/manifests."""
    head = f"{HEAD}{chart_sha256()}\n"
    made = {}
    for name, options in FILES.items():
        lines = template(*options).splitlines()
        kept = [line for line in lines if not line.strip().startswith(ONLY_HELM)]
        made[name] = head + "\n".join(kept) + "\n"
    return made


def main(arguments: list[str]) -> int:
    """Write the manifests, or compare them; return the exit code."""
    stale = []
    for name, text in rendered().items():
        path = MANIFESTS / name
        if arguments == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"deploy/manifests/{name} is not what the chart gives: run scripts/render_manifests.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
