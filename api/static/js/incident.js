// One incident: how it went, what was said of it, its evidence over its time, and what can be done about it.

import { buttons, exportButton, reportButton } from "./actions.js";
import { ApiError, get, inPath, isThereNow, nodePage, pinned, steady, SUBJECT } from "./api.js";
import { fill, h, name, problem } from "./dom.js";
import { Charts } from "./evidence.js";
import { diagnosis, life, marks } from "./parts.js";
import { follow } from "./recording.js";
import { ago, clock, number, span, state } from "./words.js";

const AFTER_S = 300; // shown after the end
const refresh = steady(show);
let incident = null;
const charts = new Charts("evidence", () => incident.node, refresh);

function head(item, node, now) {
  document.title = `${item.node} ${item.state} · Oddnode`;
  const isOpen = item.state !== "cleared";
  const newer = node?.incidents.find((other) => other.state !== "cleared" && other.id !== item.id) ?? null;
  fill("head",
    h("div.title", null, h("h1", null, h("a", { href: nodePage(item.node) }, name(item.node))), state(item.dismissed ? "dismissed" : item.state),
      item.part ? h("span.part", null, name(item.part)) : null, h("span.score", null, `peak score ${number(item.peak_score, 3)}`)),
    h("p.when", null, "first sign ", ago(item.active_at, now), `, ${isOpen ? "lasting" : "lasted"} ${span((item.cleared_at ?? now) - item.active_at)}, `, h("code", null, name(item.id))),
    h("p.lead", null, name(item.reason)),
    diagnosis(item.diagnosis),
    item.diagnosis ? h("ul.plain", null, item.diagnosis.reasons.map((line) => h("li", null, name(line)))) : null,
    item.suspect_at === null ? h("p.quiet", null, "a first sign that named nobody") : null,
    buttons({
      node: item.node, incident: item.suspect_at === null ? null : item.id, acknowledged: item.acknowledged, dismissed: item.dismissed,
      // what is over needs no quiet, and its node is healthy or has another incident
      muted: isOpen ? node?.node.muted ?? null : {}, isOpen, after: refresh, files: [reportButton(item.id), exportButton(item.id)],
    }),
    isOpen ? null : h("p.quiet", null, "It is over. ", newer ? [h("a", { href: nodePage(item.node) }, "The node"), " has another incident now."] : "What is done about the node is done on ", newer ? null : [h("a", { href: nodePage(item.node) }, "its page"), "."]));
}

/** Time from first sign to end as a bar, and all that happened in it as a list. */
function timeline(item, transitions, trail, now) {
  const end = Math.max(item.cleared_at ?? now, item.active_at + 1);
  const named = item.suspect_at;
  const steps = transitions.map((step) => ({ at: step.at, kind: step.after, what: [state(step.before), " → ", state(step.after)], why: step.reason }));
  const done = trail.map((line) => ({ at: line.at, kind: "said", what: [h("b", null, line.action), " by ", name(line.by)], why: line.note }));
  const first = new Map();
  for (const one of item.evidence) if (!first.has(one.target) || one.since < first.get(one.target).since) first.set(one.target, one);
  const signs = [...first.values()].map((one) => ({ at: one.since, kind: "sign", what: ["first sign of ", h("b", null, name(one.target)), ": ", h("code", null, name(one.metric))], why: "" }));
  const all = [...signs, ...steps, ...done].sort((a, b) => a.at - b.at);
  const since = (at) => `${at < item.active_at ? "−" : "+"}${span(Math.abs(at - item.active_at))}`;
  fill("steps",
    h("div.life", { role: "img", "aria-label": `First sign ${clock(item.active_at)}, ${named === null ? "never named" : `named ${clock(named)}`}, ${item.cleared_at === null ? "still open" : `cleared ${clock(item.cleared_at)}`}` },
      life(item, item.active_at, end)),
    h("p.life-ends", { "aria-hidden": "true" }, h("span", null, clock(item.active_at, now)), h("span", null, item.cleared_at === null ? `${clock(now, now)}, still open` : `${clock(item.cleared_at, now)}, cleared`)),
    h("ol.timeline", null, all.map((one) => h("li", { class: one.kind }, h("time", { datetime: new Date(one.at * 1000).toISOString() }, clock(one.at, now)), h("span.quiet", null, ` ${since(one.at)} `),
      h("span", null, one.what, one.why ? [": ", name(one.why)] : null)))));
}

/** Lines of the trail about this incident, or about its node while it lasted, oldest first. */
async function trailOf(item) {
  const { entries } = await get("v1/audit?limit=200").catch(() => ({ entries: [] }));
  const until = Math.min(pinned() ?? Infinity, item.cleared_at ?? Infinity);
  const about = (line) => line.subject === `incident ${item.id}` ? line.at <= (pinned() ?? Infinity)
    : line.subject.replace(/^mute [^:]*: /, "").split(", ").includes(`node ${item.node}`) && line.at >= item.active_at && line.at <= until + 1;
  return entries.filter(about).reverse();
}

/** Turned back to before it began. */
function notYet(item) {
  document.title = `${item.node} · Oddnode`;
  fill("head", h("h1", null, h("a", { href: nodePage(item.node) }, name(item.node))),
    h("p.note", null, `At ${clock(pinned())} this incident had not begun: its first sign came ${span(item.active_at - pinned())} later, at ${clock(item.active_at)}. `,
      h("a", { href: `?at=${item.suspect_at ?? item.active_at}` }, item.suspect_at === null ? "Go to its first sign" : "Go to when it was named")));
  for (const id of ["steps", "feedback", "evidence"]) fill(id, h("p.quiet", null, "nothing yet"));
}

async function show() {
  try {
    const answer = await get(`v1/incidents/${inPath(SUBJECT)}`);
    const now = (answer.at ?? 0) + (answer.data_age_s ?? 0);
    const item = answer.incident;
    incident = item;
    const [node, trail] = await Promise.all([get(`v1/nodes/${inPath(item.node)}`).catch(() => null), trailOf(item)]);
    problem("");
    head(item, node, now);
    timeline(item, answer.transitions, trail, now);
    const said = marks(item, now);
    fill("feedback", said.length ? said : h("p.quiet", null, "nobody has said what it was"));
    await charts.show({ items: item.evidence, incident: item, now, until: item.cleared_at === null ? null : item.cleared_at + AFTER_S });
  } catch (error) {
    const later = error instanceof ApiError && error.status === 404 && pinned() !== null ? await isThereNow(`v1/incidents/${inPath(SUBJECT)}`) : null;
    if (later) {
      problem("");
      notYet(later.incident);
      return;
    }
    problem(error.message);
    if (error instanceof ApiError && error.status === 404) fill("head", h("h1", null, name(SUBJECT)));
    if (error instanceof ApiError && error.status < 500) for (const id of ["steps", "feedback", "evidence"]) fill(id, h("p.quiet", null, "–"));
    throw error;
  }
}

follow(refresh);
