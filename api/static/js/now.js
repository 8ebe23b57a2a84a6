// Who is suspect now, since when, why; how the fleet looks; whether the data can be relied on.

import { buttons } from "./actions.js";
import { get, incidentPage, nodePage, pinned, steady } from "./api.js";
import { $, fill, h, name, problem, say } from "./dom.js";
import { atAGlance, Charts } from "./evidence.js";
import { Heat } from "./heat.js";
import { diagnosis, evidence, marks, ranked, score } from "./parts.js";
import { follow } from "./recording.js";
import { ago, clock, number, span } from "./words.js";

const SHOWN = 4;
const PLOTTED = 3; // suspects whose strongest evidence is drawn: the first ones
const heat = new Heat($("fleet"));
const refresh = steady(show);
const redraw = steady(draw); // not waited for by what tells names: samples may have to be read back
const plots = Array.from({ length: PLOTTED }, () => new Charts("", () => "", redraw));
let plotted = [];
let shownNow = 0;
let known = null;
let ready = null;

const placeOf = (node) => [...document.querySelectorAll("[data-plot]")].find((place) => place.dataset.plot === node);

/** The chart's place of a suspect, with what is drawn there as long as nothing newer is. */
function plot(item) {
  const shown = atAGlance(item.evidence);
  return h("div.glance", null, h("p.quiet", null, h("code", null, name(shown.metric)), shown.part ? [" on ", name(shown.part)] : null, " against the peers"), placeOf(item.node) ?? h("div.chart", { "data-plot": item.node }, h("p.quiet", null, "loading")),
    h("p.legend", null, h("span.key", null, h("i.dash.mine"), "this node"), h("span.key", null, h("i.dash.peer"), "median of the peers"), h("span.key", null, h("i.swatch.band"), "their ordinary band"),
      h("span.key", null, h("i.post.sign"), "first sign"), h("span.key", null, h("i.post.verdict"), "named")));
}

async function draw() {
  for (const [k, charts] of plots.entries()) {
    const item = plotted[k];
    const place = item && placeOf(item.node);
    if (!place) {
      charts.clear();
      continue;
    }
    charts.node = () => item.node;
    await charts.only(place, { item: atAGlance(item.evidence), incident: { active_at: item.since, suspect_at: item.suspect_since }, now: shownNow });
  }
}

function card(item, now, isPlotted) {
  const rest = item.evidence.length - SHOWN;
  return h("article.card.suspect", { "data-node": item.node },
    h("header", null,
      h("h3", null, h("span", { class: "state suspect" }, "▲ "), h("a", { href: nodePage(item.node), "data-key": `open ${item.node}` }, name(item.node))),
      item.part ? h("span.part", null, name(item.part)) : h("span.part", null, "the node as a whole"),
      score(item.score)),
    h("p.when", null, "since ", ago(item.since, now), item.pool ? [", pool ", name(item.pool)] : null),
    diagnosis(item.diagnosis),
    item.diagnosis?.order ? h("p.quiet", null, name(item.diagnosis.order)) : null,
    marks(item, now),
    h("div.story", null, h("ul.evidence", null, ranked(item.evidence).slice(0, SHOWN).map(evidence)), isPlotted && item.evidence.length ? plot(item) : null),
    h("p.more", null, h("a", { href: nodePage(item.node) }, rest > 0 ? `${rest} more, with charts` : "charts"), " · ",
      h("a", { href: incidentPage(item.incident_id) }, "incident")),
    buttons({ node: item.node, incident: item.incident_id, acknowledged: item.acknowledged, muted: item.muted, isOpen: true, after: refresh }));
}

function nobody(answer) {
  const reasons = Object.entries(answer.undetermined);
  const unjudged = reasons.reduce((sum, [, n]) => sum + n, 0);
  if (!unjudged) return h("p.good", null, `● No suspect among ${answer.n_nodes} nodes.`);
  const why = reasons.map(([reason, n]) => `${n} ${reason}`).join(", ");
  // what cannot be judged is not healthy
  return unjudged >= answer.n_nodes
    ? h("p.warn", null, `? No node can be judged now: ${why}.`)
    : h("p.good.unsure", null, `? No suspect among ${answer.n_nodes - unjudged} nodes; ${unjudged} cannot be judged: ${why}.`);
}

function suspects(answer, now) {
  const names = answer.suspects.map((item) => item.node);
  document.title = `${names.length ? `(${names.length}) ` : ""}Now · Oddnode`;
  const fresh = known === null || pinned() !== null ? [] : names.filter((node) => !known.has(node));
  if (fresh.length) say(`New suspect: ${fresh.join(", ")}`);
  known = new Set(names);
  // those that nobody looks after come first
  const rank = (item) => (item.muted ? 2 : item.acknowledged ? 1 : 0);
  const sorted = [...answer.suspects].sort((a, b) => rank(a) - rank(b));
  plotted = sorted.slice(0, PLOTTED);
  shownNow = now;
  fill("suspects", sorted.length
    ? h("div.cards", null, sorted.map((item, k) => card(item, now, k < PLOTTED)))
    : nobody(answer));
  redraw();
}

function events(answer, now) {
  const open = answer.group_events.filter((event) => event.ended_at === null || now - event.ended_at < 3600);
  $("s-events").hidden = !open.length;
  fill("events", open.map((event) => h("article.card", null,
    h("p", null, h("span.tag", null, event.kind || "group"), " ", event.pool ? ["pool ", h("b", null, name(event.pool)), ": "] : null, name(event.reason)),
    event.cause ? h("p", null, "shared by all of them: ", name(event.cause)) : null,
    h("p.when", null, event.ended_at === null ? ["since ", ago(event.started_at, now)] : [`${clock(event.started_at, now)} to ${clock(event.ended_at, now)}, over`],
      `, ${event.nodes.length} nodes`),
    h("details", { "data-key": event.id }, h("summary", null, "nodes and metrics"),
      h("p", null, event.nodes.slice(0, 200).flatMap((node, k) => [k ? ", " : "", h("a", { href: nodePage(node) }, name(node))])),
      h("p", null, name(event.metrics.join(", ")))))));
}

function mutes(answer) {
  $("s-mutes").hidden = pinned() !== null || !answer.mutes.length; // the list is of now, the marks of nodes are of then
  fill("mutes", h("ul.plain", null, answer.mutes.slice(0, 50).map((mute) => {
    const what = [mute.node && `node ${mute.node}`, mute.pool && `pool ${mute.pool}`, mute.metric && `metric ${mute.metric}`, mute.apart && "apart"].filter(Boolean).join(", ");
    return h("li", null, h("span.tag", null, mute.state), " ", name(what),
      ` ${mute.state === "planned" ? `from ${clock(mute.start, answer.at)} ` : ""}until ${clock(mute.until, answer.at)}, by `, name(mute.by), ": ", name(mute.reason));
  })), answer.total > 50 ? h("p.quiet", null, `and ${answer.total - 50} more`) : null);
}

const fact = (label, value, kind = "") => h("div", { class: `fact ${kind}` }, h("span.quiet", null, label), h("b", null, value));

function strip() {
  if (!ready) return;
  const status = Object.entries(counts).map(([key, n]) => `${n} ${key}`).join(", ");
  if (pinned() !== null) {
    // what the service is now is nothing of then
    fill("state", fact("shown as of", clock(pinned())), fact("nodes", status || "–"), coverage);
    return;
  }
  const age = ready.data_age_s;
  fill("state",
    fact("verdicts", ready.is_ready ? "● ready" : "▲ not ready", ready.is_ready ? "ok" : "bad"),
    fact("data", age === null ? "none yet" : `${span(age)} old${ready.is_partial ? ", partial" : ""}`),
    fact("evaluated", clock(ready.at)),
    fact("nodes", status || "–"),
    coverage,
    [...ready.reasons.map((text) => h("p.warn", null, name(text))), ...ready.notes.map((text) => h("p.note", null, name(text)))]);
}

let counts = {};
let coverage = null;

function data(fleet, groups) {
  counts = {};
  for (const node of fleet.nodes) counts[node.status] = (counts[node.status] ?? 0) + 1;
  const named = fleet.targets.reduce((sum, target) => sum + target.n_metrics, 0);
  const seen = fleet.targets.reduce((sum, target) => sum + target.n_seen, 0);
  coverage = fact("catalog", `${seen} of ${named} metrics seen`);
  const share = (a, b) => h("meter", { min: "0", max: String(Math.max(1, b)), value: String(a) }, `${a} of ${b}`);
  fill("data",
    h("div.columns", null,
      h("div", null, h("h3", null, "Sources: signals with a fresh sample"),
        h("ul.plain", null, fleet.exporters.map((item) => h("li", null, share(item.n_fresh, item.n_expected), ` ${name(item.exporter).textContent}: ${number(item.n_fresh, 6)} of ${number(item.n_expected, 6)}`))),
        h("p.quiet", null, `${fleet.n_series} series are compared`)),
      h("div", null, h("h3", null, "Catalog: metrics seen"),
        h("ul.plain", null, fleet.targets.map((item) => h("li", null, share(item.n_seen, item.n_metrics), ` ${item.target}: ${item.n_seen} of ${item.n_metrics}`))))),
    groups.data_quality.length ? [h("h3", null, "Findings about the monitoring"),
      h("ul.plain", null, groups.data_quality.slice(0, 50).map((item) => h("li", null, h("span.tag", null, item.kind), " ", name(item.reason))))] : null,
    h("details", { "data-key": "groups" }, h("summary", null, `${groups.total} peer groups`),
      h("ul.plain", null, groups.groups.map((group) => h("li", null, "pool ", name(group.pool || "–"), `, ${group.unit}: ${group.n_members} members of ${group.n_nodes} nodes, ${group.n_signals} signals`,
        group.undetermined ? [", not judged: ", name(group.undetermined)] : null)))));
}

async function show() {
  try {
    const [found, groups, fleet, muted] = await Promise.all([
      get("v1/suspects?limit=100"), get("v1/groups?limit=200"), get("v1/fleet"), get("v1/mutes?limit=100").catch(() => ({ at: 0, total: 0, mutes: [] })),
    ]);
    const now = found.at + (found.data_age_s ?? 0);
    problem("");
    suspects(found, now);
    events(groups, now);
    mutes(muted);
    heat.show(fleet);
    data(fleet, groups);
    strip();
  } catch (error) {
    problem(error.message);
    throw error;
  }
}

follow(refresh, (state) => { ready = state; strip(); });
