"""Style sheet of the report: light and dark, no fonts or pictures from elsewhere."""

from __future__ import annotations

import re

STYLE = """
:root {
  color-scheme:light dark;
  --ink:#1c2430;
  --soft:#5b6675;
  --paper:#fff;
  --card:#f6f7f9;
  --line:#d5dae1;
  --fault:#e3a008;
  --missed:#c81e1e;
  --alarm:#1a56db;
  --band:#9aa5b133;
  --mask:#9aa5b155;
  --group:#7e3af21f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink:#e6e9ee;
    --soft:#9aa5b4;
    --paper:#14181f;
    --card:#1c222b;
    --line:#333c48;
    --fault:#d69e2e;
    --missed:#f05252;
    --alarm:#76a9fa;
    --band:#9aa5b12e;
    --group:#a78bfa2e;
  }
}
body {
  font:15px/1.5 system-ui,sans-serif;
  color:var(--ink);
  background:var(--paper);
  max-width:940px;
  margin:2rem auto;
  padding:0 1rem;
}
h1 { font-size:1.6rem; margin:0 }
h2 { font-size:1.2rem; margin:2rem 0 .5rem }
h3 { font-size:1rem; margin:0 }
table {
  border-collapse:collapse;
  width:100%;
  margin:.5rem 0 1rem;
  font-variant-numeric:tabular-nums;
}
td,th {
  text-align:left;
  padding:.3rem .6rem .3rem 0;
  border-bottom:1px solid var(--line);
  vertical-align:top;
  overflow-wrap:break-word;
}
th { color:var(--soft); font-weight:600 }
caption { text-align:left; font-weight:600; padding:.3rem 0 }
section.case,details.case {
  background:var(--card);
  border:1px solid var(--line);
  border-radius:8px;
  padding:.8rem 1rem;
  margin:.8rem 0;
}
summary { cursor:pointer }
.small,.why { color:var(--soft); font-size:.87rem; margin:.2rem 0 }
.bad { color:var(--missed); font-weight:600 }
ul { margin:.3rem 0; padding-left:1.2rem }
svg { width:100%; height:auto; display:block; margin:.5rem 0 }
svg text { font:11px system-ui,sans-serif; fill:var(--soft) }
svg .end { text-anchor:end; fill:var(--ink) }
.axis { stroke:var(--line) }
.fault { fill:var(--fault) }
.fault.missed { fill:var(--missed) }
.masked { fill:var(--mask) }
.alarm { fill:var(--alarm) }
.alarm.false { fill:var(--alarm); stroke:var(--missed); stroke-width:1.5 }
.group { fill:var(--group) }
.call { fill:#7e3af2 }
.band { fill:var(--band) }
.median { fill:none; stroke:var(--soft); stroke-dasharray:4 3 }
.value { fill:none; stroke:var(--alarm); stroke-width:1.8 }
circle.value { fill:var(--alarm) }
.during { fill:var(--fault); opacity:.22 }
.raised { stroke:var(--missed); stroke-dasharray:2 2 }
.key i { display:inline-block; width:1.6em; height:.7em; margin:0 .3em 0 .9em; border-radius:2px }
"""


def on_paper(style: str) -> str:
    """Return a style sheet in light colours without variables, for programs that print."""
    without_dark = re.sub(r"@media \(prefers-color-scheme: dark\) \{.*?\n\}\n", "", style, flags=re.DOTALL)
    colours = dict(re.findall(r"--(\w+):([^;]+);", without_dark))
    return re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], without_dark)
