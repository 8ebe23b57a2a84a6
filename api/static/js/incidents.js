// What was: incidents with filters, nodes that come back, and what operators did.

import { get, incidentPage, nodePage, pinned, steady } from "./api.js";
import { $, fill, h, name, problem, table } from "./dom.js";
import { life } from "./parts.js";
import { follow } from "./recording.js";
import { clock, number, span, state } from "./words.js";

const SIZE = 50;
const RANGES = [["1 day", 1], ["7 days", 7], ["30 days", 30], ["all", 0]];
const STATES = [["any state", ""], ["open", "open"], ["suspect", "suspect"], ["pending", "pending"], ["cleared", "cleared"]];
const wanted = new URLSearchParams(location.search);
const refresh = steady(show);

function filters() {
  const node = h("input", { type: "search", id: "f-node", placeholder: "any node", maxlength: "253", value: wanted.get("node") ?? "" });
  const select = (id, options, chosen) => h("select", { id }, options.map(([label, value]) => h("option", { value: String(value), selected: String(value) === chosen }, label)));
  const status = select("f-state", STATES, wanted.get("state") ?? "");
  const days = select("f-days", RANGES, wanted.get("days") ?? "30");
  const signs = h("input", { type: "checkbox", id: "f-signs", checked: wanted.get("signs") === "1" });
  const apply = () => {
    for (const [key, value] of [["node", node.value.trim()], ["state", status.value], ["days", days.value], ["signs", signs.checked ? "1" : ""], ["offset", ""]]) {
      if (value) wanted.set(key, value);
      else wanted.delete(key);
    }
    if (days.value === "0") wanted.set("days", "0");
    go();
  };
  for (const field of [node, status, days, signs]) field.addEventListener("change", apply);
  $("filters").addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  const pair = (label, input) => h("span.pair", null, h("label", { for: input.id }, label), input);
  $("filters").replaceChildren(pair("Node", node), pair("State", status), pair("Within", days), h("label.check", null, signs, "also first signs that named nobody"));
}

function go() {
  if (pinned() === null) wanted.delete("at");
  else wanted.set("at", String(pinned()));
  const query = wanted.toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  refresh();
}

const feedback = (item) => (item.acknowledged ? ["✓ fault, ", name(item.acknowledged.by)] : item.dismissed ? ["✕ false alarm, ", name(item.dismissed.by)] : "–");

function list(answer, now) {
  const offset = answer.offset;
  const turn = (label, to) => h("button", { type: "button", "data-key": label, onclick: () => { wanted.set("offset", String(to)); go(); } }, label);
  // all bars are on one scale of time: what came together stands together
  const first = Math.min(...answer.incidents.map((item) => item.active_at));
  const bar = (item) => h("span.life", { role: "img", "aria-label": `from ${clock(item.active_at)} to ${item.cleared_at === null ? "now" : clock(item.cleared_at)}` }, life(item, first, Math.max(now, first + 1)));
  fill("list", answer.incidents.length
    ? [h("p.quiet", null, `Timeline: from ${clock(first)} at the left to ${clock(now)} at the right; `, h("span", { class: "state pending" }, "first sign"), ", ", h("span", { class: "state suspect" }, "named"), "."),
      table("Incidents", ["state", "node", "part", "likely", "timeline", "first sign", "lasted", "peak", "feedback"], answer.incidents.map((item) => [
      state(item.dismissed ? "dismissed" : item.state), h("a", { href: nodePage(item.node) }, name(item.node)), name(item.part || "–"), name(item.diagnosis?.title ?? item.reason), bar(item),
      h("a", { href: incidentPage(item.id) }, clock(item.active_at, now)), span((item.cleared_at ?? now) - item.active_at), number(item.peak_score, 3), feedback(item)]))]
    : h("p.quiet", null, "no incident fits"),
  h("div.buttons", null, offset > 0 ? turn("Newer", Math.max(0, offset - SIZE)) : null, offset + SIZE < answer.total ? turn("Older", offset + SIZE) : null,
    h("span.quiet", null, `${answer.total} in all`)));
}

function offenders(answer) {
  const words = (counts) => Object.entries(counts).map(([key, n]) => `${key || "whole node"} ×${n}`).join(", ");
  fill("offenders", answer.offenders.length
    ? table("Repeat offenders", ["node", "incidents", "open", "under suspicion", "last named", "parts", "classes"], answer.offenders.map((item) => [
      h("a", { href: nodePage(item.node) }, name(item.node)), String(item.n_incidents), String(item.n_open), span(item.suspect_s), clock(item.last_at, answer.until), name(words(item.parts)), name(words(item.classes))]))
    : h("p.quiet", null, "no node was suspect twice"));
}

function trail(answer, now) {
  fill("trail", answer.entries.length
    ? table("What operators did", ["when", "who", "what", "of what", "note"], answer.entries.map((item) => [
      clock(item.at, now), name(item.by), item.action, name(item.subject), name(item.note)]))
    : h("p.quiet", null, "nothing yet"));
}

async function show() {
  try {
    const query = new URLSearchParams({ limit: String(SIZE), offset: wanted.get("offset") ?? "0" });
    for (const key of ["node", "state"]) if (wanted.get(key)) query.set(key, wanted.get(key));
    if (wanted.get("signs") !== "1") query.set("was_suspect", "true");
    const days = Number(wanted.get("days") ?? "30");
    const newest = await get("v1/incidents?limit=1");
    const now = (newest.at ?? 0) + (newest.data_age_s ?? 0);
    if (days > 0 && now > 0) query.set("since", String(Math.max(0, now - days * 86400)));
    const [found, again, did] = await Promise.all([get(`v1/incidents?${query}`), get("v1/offenders?days=30").catch(() => ({ offenders: [], until: now })), get("v1/audit?limit=20").catch(() => ({ entries: [] }))]);
    problem("");
    list(found, now);
    for (const id of ["h-offenders", "h-trail"]) $(id).parentElement.hidden = pinned() !== null; // those are of now
    offenders(again);
    trail(did, now);
  } catch (error) {
    problem(error.message);
    throw error;
  }
}

filters();
follow(refresh);
