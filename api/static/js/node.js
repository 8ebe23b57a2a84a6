// One node: why it is named, what moved first, and each piece of evidence against its peers.

import { buttons } from "./actions.js";
import { ApiError, get, incidentPage, inPath, isThereNow, nodePage, pinned, steady, SUBJECT } from "./api.js";
import { $, fill, h, name, problem, table } from "./dom.js";
import { Charts } from "./evidence.js";
import { diagnosis, marks, score } from "./parts.js";
import { follow } from "./recording.js";
import { ago, clock, number, span, state } from "./words.js";

const AFRESH = /^repaired/;
const refresh = steady(show);
const charts = new Charts("evidence", () => SUBJECT, refresh);

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

async function evidence(answer, now) {
  if (!answer.evidence.length) {
    charts.clear();
    fill("evidence", answer.node.status === "undetermined"
      ? h("p.warn", null, `? It cannot be judged: ${answer.node.reason}${AFRESH.test(answer.node.reason) ? ", judged afresh at the next evaluation" : ""}.`)
      : h("p.good", null, `Nothing against it at ${pinned() === null ? "the newest" : "this"} evaluation.`));
    return;
  }
  await charts.show({ items: answer.evidence, incident: answer.incidents.find((item) => item.state !== "cleared") ?? null, now });
}

function past(found, now) {
  fill("past", found.length ? table("Incidents of this node", ["state", "first sign", "named", "cleared", "part", "likely", "peak", "feedback"], found.map((item) => [
    state(item.state), h("a", { href: incidentPage(item.id) }, clock(item.active_at, now)), clock(item.suspect_at, now), clock(item.cleared_at, now), name(item.part || "–"),
    name(item.diagnosis?.title ?? "–"), number(item.peak_score, 3), item.acknowledged ? "✓ acknowledged" : item.dismissed ? "✕ dismissed" : "–"]))
    : h("p.quiet", null, "none is stored"));
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

/** Turned back to before the node had sent anything. */
function notYet() {
  document.title = `${SUBJECT} · Oddnode`;
  fill("head", h("h1", null, name(SUBJECT)), h("p.note", null, `At ${clock(pinned())} this node was not there yet: nothing of it had been seen.`));
  for (const id of ["why", "evidence", "past"]) fill(id, h("p.quiet", null, "nothing yet"));
  for (const id of ["s-order", "s-near", "s-decision"]) $(id).hidden = true;
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
    if (error instanceof ApiError && error.status === 404 && pinned() !== null && await isThereNow(`v1/nodes/${inPath(SUBJECT)}`)) {
      problem("");
      notYet();
      return;
    }
    problem(error.message);
    if (error instanceof ApiError && error.status < 500) for (const id of ["why", "evidence", "past"]) fill(id, h("p.quiet", null, "–"));
    throw error;
  }
}

charts.tools($("tools"));
follow(refresh);
