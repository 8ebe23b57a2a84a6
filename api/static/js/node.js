// One node: why it is named, what moved first, and each piece of evidence against its peers.

import { buttons } from "./actions.js";
import { ApiError, get, incidentPage, inPath, nodePage, pinned, steady, SUBJECT } from "./api.js";
import { crossing, draw, isByHabitElsewhere, isPast, passings } from "./chart.js";
import { $, fill, h, name, problem, table } from "./dom.js";
import { diagnosis, marks, ranked, score } from "./parts.js";
import { follow } from "./recording.js";
import { ago, clock, number, span, state } from "./words.js";

const FIRST = 8;
const AT_ONCE = 3;
const PEERS = 12;
const refresh = steady(show);
let shown = FIRST;
let plots = [];
let scope = "all";
let before = 0;
const PASTS = [["not shown", 0], ["10 min earlier", 600], ["1 h earlier", 3600], ["1 day earlier", 86400], ["1 week earlier", 604800]];
const KEPT_STEPS = 20;
const pasts = new Map();
let reading = Promise.resolve(); // one past is read at a time

function head(answer, now) {
  const node = answer.node;
  const incident = answer.incidents.find((item) => item.state !== "cleared");
  const named = incident && incident.suspect_at !== null;
  document.title = `${node.node} ${node.status} · Oddnode`;
  fill("head",
    h("div.title", null, h("h1", null, name(node.node)), state(node.status), node.part ? h("span.part", null, name(node.part)) : null, score(node.score)),
    h("p.when", null, node.since === null ? "nothing against it now" : ["since ", ago(node.since, now)], node.pool ? [", pool ", name(node.pool)] : ", in no pool",
      incident ? [", ", h("a", { href: incidentPage(incident.id) }, "incident")] : null),
    marks(node, now),
    buttons({
      node: node.node, incident: named ? incident.id : null, acknowledged: node.acknowledged, dismissed: node.dismissed,
      muted: node.muted, isOpen: Boolean(incident), after: refresh,
    }));
}

function why(told, answer) {
  const found = told.explanation;
  const lines = found
    ? [h("p.lead", null, name(found.summary)), diagnosis(answer?.node.diagnosis ?? null),
      h("ul.plain", null, (answer?.node.diagnosis?.reasons ?? []).map((line) => h("li", null, "because ", name(line)))),
      h("p.quiet", null, name(found.pool.text), `; ${Object.entries(found.fates).map(([fate, n]) => `${n} ${fate}`).join(", ")}`)]
    : [h("p.lead", null, name(told.note))];
  const doubts = found ? [found.undetermined && `not judged: ${found.undetermined}`, ...found.notes,
    ...found.group_events.map((event) => `group event: ${event.reason}`), ...found.data_quality.map((item) => `${item.kind}: ${item.reason}`)].filter(Boolean) : [];
  fill("why", lines, doubts.length ? [h("h3", null, "In doubt"), h("ul.plain", null, doubts.map((line) => h("li", null, name(line))))] : null);
}

function decision(told) {
  const found = told.explanation;
  $("s-decision").hidden = !found;
  if (!found) return;
  const unit = (check, value) => `${number(Math.round(value * 100) / 100)}${check.unit ? ` ${check.unit}` : ""}`;
  fill("decision",
    table("Conditions of the decision", ["condition", "is", "needs", "", "what follows"], found.checks.map((check) => [
      check.name, unit(check, check.value), unit(check, check.needed), check.passed ? "✓ yes" : "– no", name(check.text)])),
    found.targets.length ? table("Score of each monitored target", ["target", "strongest metric", "signals", "now", "by how long it lasted"],
      found.targets.map((item) => [name(item.target), h("code", null, name(item.metric)), String(item.n_signals), number(item.instant, 3), number(item.lasting, 3)])) : null);
}

/** First movers: targets in the order of their first sign. */
function order(answer, now) {
  const first = new Map();
  for (const item of answer.evidence) {
    const before = first.get(item.target);
    if (!before || item.since < before.since) first.set(item.target, item);
  }
  const found = [...first.values()].sort((a, b) => a.since - b.since);
  $("s-order").hidden = found.length === 0;
  const begin = found[0]?.since ?? 0;
  fill("order", answer.node.diagnosis?.order ? h("p", null, name(answer.node.diagnosis.order)) : null,
    h("ol.order", null, found.map((item) => h("li", null, h("b", null, item.since === begin ? clock(begin, now) : `+${span(item.since - begin)}`), " ", name(item.target), ": ",
      h("code", null, name(item.metric)), item.part ? [" on ", name(item.part)] : null))));
}

/** Of the series of a metric, the one of a part that fits the labels of the evidence best. */
function bestOf(series, part, labels) {
  const fits = (item) => Object.entries(labels).filter(([key, value]) => item.labels[key] === value).length;
  return series.filter((item) => item.part === part).sort((a, b) => fits(b) - fits(a))[0];
}

/** Series of a metric of this node, none when there are none. */
async function seriesOf(metric, more, labels = {}) {
  const query = new URLSearchParams({ node: SUBJECT, metric, scope, ...more });
  for (const [key, value] of Object.entries(labels).slice(0, 10)) query.append("label", `${key}=${value}`);
  try {
    return (await get(`v1/series?${query}`)).series;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return [];
    throw error;
  }
}

/** The series that a piece of evidence tells of, with single peers, and the node's other parts that deviate as well. */
async function seriesFor(item) {
  const [first, ...rest] = item.parts.length ? item.parts : [item.part];
  let found = await seriesOf(item.metric, { part: first, peers: String(PEERS), limit: "4" }, item.labels);
  if (!found.length) found = await seriesOf(item.metric, { peers: String(PEERS), limit: "4" });
  const one = bestOf(found, first, item.labels) ?? bestOf(found, "", item.labels) ?? found[0];
  const all = one && rest.length ? await seriesOf(item.metric, { limit: "40" }) : [];
  return [one, rest.slice(0, 15).map((part) => bestOf(all, part, {})).filter(Boolean)];
}

/** What the member was some hours earlier, at the times of its chart; read back anew only after a while. */
async function pastOf(one) {
  if (!before) return null;
  const key = JSON.stringify([one.metric, one.part, one.labels, before]);
  const last = one.times.at(-1);
  const step = one.times.length > 1 ? last - one.times.at(-2) : 30;
  const known = pasts.get(key);
  if (!known || last < known.first || last - known.last > KEPT_STEPS * step) {
    const query = new URLSearchParams({ node: SUBJECT, metric: one.metric, part: one.part, before_s: String(before), limit: "10" });
    for (const [label, value] of Object.entries(one.labels).slice(0, 10)) query.append("label", `${label}=${value}`);
    let series = [];
    let why = "nothing is kept of then";
    try {
      const answer = reading.then(() => get(`v1/earlier?${query}`));
      reading = answer.catch(() => {});
      ({ series } = await answer);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 429) throw error;
      why = error.message;
    }
    const found = bestOf(series, one.part, one.labels);
    const values = new Map((found?.times ?? []).map((time, k) => [Math.round(time + before), found.value[k]]));
    pasts.set(key, { values, why, first: one.times[0], last });
  }
  const { values, why } = pasts.get(key);
  const shownThen = one.times.map((time) => values.get(Math.round(time)) ?? null);
  return shownThen.some((value) => value !== null) ? shownThen : why;
}

function inWords(one) {
  const notes = [];
  if (isByHabitElsewhere(one)) notes.push(`by habit ${number(Math.abs(one.habit), 2)} robust deviations ${one.habit > 0 ? "above" : "below"} its peers`);
  const passed = passings(one);
  if (isPast(one)) notes.push("past its threshold in the whole window");
  if (passed.length) notes.push(`threshold passed ${passed.length > 3 ? `${passed.length} times, first` : ""} at ${passed.slice(0, passed.length > 3 ? 1 : 3).map((time) => clock(time, time)).join(", ")}`);
  if (scope === "slot") notes.push(one.scope === "slot" ? `the same slot of ${one.n_peers} other nodes` : "it has no slots: all peers");
  return notes;
}

async function chart(place, item, moments) {
  let one;
  let others;
  let past;
  try {
    [one, others] = await seriesFor(item);
    past = one ? await pastOf(one) : null;
  } catch (error) {
    place.replaceChildren(h("p.quiet", null, error.message));
    return;
  }
  if (!one) {
    place.replaceChildren(h("p.quiet", null, "no samples of it are kept"));
    return;
  }
  const over = crossing(one);
  const label = `${item.metric} ${item.part}: ${item.reason}. ${over === null ? "Never outside of the peers' band in this window." : `Outside of the peers' band since ${clock(over)}.`} ${inWords(one).join(", ")}`;
  const earlier = item.since < one.times[0] ? `; first sign ${span(one.times[0] - item.since)} before this window` : "";
  const notes = typeof past === "string" ? [...inWords(one), `own past: ${past}`] : inWords(one);
  plots.push(draw(place, one, others, moments(item), label, earlier, notes, Array.isArray(past) ? past : null));
}

async function evidence(answer, now) {
  const incident = answer.incidents.find((item) => item.state !== "cleared") ?? null;
  const moments = (item) => [
    { at: item.since, color: "pending", dash: [3, 3] },
    { at: incident?.suspect_at ?? null, color: "suspect", dash: [] },
  ];
  const items = ranked(answer.evidence).slice(0, shown);
  if (!items.length) {
    fill("evidence", answer.node.status === "undetermined"
      ? h("p.warn", null, `? It cannot be judged: ${answer.node.reason}.`)
      : h("p.good", null, `Nothing against it at ${pinned() === null ? "the newest" : "this"} evaluation.`));
    return;
  }
  const old = new Map([...document.querySelectorAll("[data-chart]")].map((place) => [place.dataset.chart, place]));
  const places = items.map((item, k) => old.get(`${item.metric} ${item.part} ${k}`) ?? h("div.chart", { "data-chart": `${item.metric} ${item.part} ${k}` }, h("p.quiet", null, "loading")));
  fill("evidence",
    h("p.legend", null, h("span.key", null, h("i.dash.mine"), "this node"), h("span.key", null, h("i.dash.sibling"), "its other parts"),
      h("span.key", null, h("i.dash.peer"), "median of the peers"), h("span.key", null, h("i.swatch.half"), "half of the peers"), h("span.key", null, h("i.swatch.band"), "their ordinary band"),
      before ? h("span.key", null, h("i.dash.past"), "this node earlier") : null,
      h("span.key", null, h("i.dash.single"), "single peers"), h("span.key", null, h("i.dash.usual"), "its usual place"), h("span.key", null, h("i.dash.limit"), "threshold"), h("span.key", null, "▲ passes it"),
      h("span.key", null, h("i.dot"), "outside of the band"), h("span.key", null, h("i.post.sign"), "first sign"), h("span.key", null, h("i.post.verdict"), "named")),
    h("div.charts", null, items.map((item, k) => h("figure", null,
      h("figcaption", null, h("span.tag", null, item.layer), " ", h("code", null, name(item.metric)), item.part ? [" on ", h("b", null, name(item.part))] : null,
        h("br"), name(item.reason), h("span.quiet", null, ` · since ${clock(item.since, now)}, worth ${number(item.score, 3)}`)), places[k]))),
    answer.evidence.length > shown ? h("button", { type: "button", "data-key": "more", onclick: () => { shown = 999; refresh(); } }, `Show all ${answer.evidence.length}`) : null);
  const former = plots;
  plots = [];
  const waiting = items.map((item, k) => [places[k], item]);
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await chart(next[0], next[1], moments);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  former.forEach((plot) => plot.destroy());
}

function past(found, now) {
  fill("past", found.length ? table("Incidents of this node", ["state", "first sign", "named", "cleared", "part", "likely", "peak", "feedback"], found.map((item) => [
    state(item.state), h("a", { href: incidentPage(item.id) }, clock(item.active_at, now)), clock(item.suspect_at, now), clock(item.cleared_at, now), name(item.part || "–"),
    name(item.diagnosis?.title ?? "–"), number(item.peak_score, 3), item.acknowledged ? "✓ acknowledged" : item.dismissed ? "✕ dismissed" : "–"]))
    : h("p.quiet", null, "none is stored"));
}

function tools() {
  const choice = (value, label) => {
    const input = h("input", { type: "radio", name: "scope", id: `scope-${value}`, value, checked: value === scope, onchange: () => { scope = value; refresh(); } });
    return h("label.check", { for: input.id }, input, label);
  };
  $("tools").replaceChildren(h("span.quiet", null, "Shown with"), choice("all", "all peers"), choice("slot", "the same slot of other nodes"));
  const select = h("select", { id: "own-past", onchange: () => { before = Number(select.value); pasts.clear(); refresh(); } }, PASTS.map(([label, value]) => h("option", { value: String(value) }, label)));
  $("tools").append(h("span.pair", null, h("label", { for: "own-past" }, "Own past"), select));
}

let neighbourhood = "";

/** What labels tell changes seldom: asked for again only when the node's state has changed. */
async function neighbours(answer) {
  if (neighbourhood === answer.node.status) return;
  let shared;
  try {
    ({ shared } = await get(`v1/neighbours?${new URLSearchParams({ node: SUBJECT })}`));
  } catch (error) {
    if (error instanceof ApiError && error.status < 500) return;
    throw error;
  }
  neighbourhood = answer.node.status;
  $("s-near").hidden = !shared.length;
  fill("near", h("ul.plain", null, shared.map((item) => {
    const odd = item.nodes.filter((other) => other.status !== "clear");
    return h("li", null, h("span.tag", null, name(item.label)), " ", h("b", null, name(item.value)), `: ${item.n_nodes - 1} other node${item.n_nodes === 2 ? "" : "s"}, `,
      odd.length ? odd.flatMap((other, k) => [k ? ", " : "", h("a", { href: nodePage(other.node) }, name(other.node)), " ", other.status ? state(other.status) : "silent"]) : "all of those shown clear",
      h("details", { "data-key": `near ${item.label} ${item.value}` }, h("summary", null, "which"),
        item.nodes.flatMap((other, k) => [k ? ", " : "", h("a", { href: nodePage(other.node) }, name(other.node))]), item.n_nodes - 1 > item.nodes.length ? " …" : ""));
  })));
}

async function show() {
  try {
    const told = await get(`v1/explain?${new URLSearchParams({ node: SUBJECT })}`);
    const now = told.at + (told.data_age_s ?? 0);
    let answer = null;
    try {
      answer = await get(`v1/nodes/${inPath(SUBJECT)}`);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
    problem("");
    why(told, answer);
    decision(told);
    if (answer) {
      head(answer, now);
      order(answer, now);
      past(answer.incidents, now);
      await neighbours(answer);
      await evidence(answer, now);
    } else {
      const stored = await get(`v1/incidents?${new URLSearchParams({ node: SUBJECT, limit: "50" })}`);
      past(stored.incidents, now);
      fill("evidence", h("p.quiet", null, "no data"));
    }
  } catch (error) {
    problem(error.message);
    if (error instanceof ApiError && error.status < 500) for (const id of ["why", "evidence", "past"]) fill(id, h("p.quiet", null, "–"));
    throw error;
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  for (const plot of plots) plot.setSize({ width: Math.max(220, plot.root.closest(".chart").clientWidth), height: plot.height });
});
tools();
follow(refresh);
