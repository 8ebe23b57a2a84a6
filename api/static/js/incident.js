// One incident: its steps, what was said of it, and its evidence at the peak.

import { buttons, exportButton } from "./actions.js";
import { ApiError, get, inPath, nodePage, pinned, steady, SUBJECT } from "./api.js";
import { fill, h, name, problem, table } from "./dom.js";
import { diagnosis, evidence, marks, ranked } from "./parts.js";
import { follow } from "./recording.js";
import { ago, clock, number, span, state } from "./words.js";

const refresh = steady(show);

function head(item, now) {
  document.title = `${item.node} ${item.state} · Oddnode`;
  fill("head",
    h("div.title", null, h("h1", null, h("a", { href: nodePage(item.node) }, name(item.node))), state(item.dismissed ? "dismissed" : item.state),
      item.part ? h("span.part", null, name(item.part)) : null, h("span.score", null, `peak score ${number(item.peak_score, 3)}`)),
    h("p.when", null, "first sign ", ago(item.active_at, now), `, lasted ${span((item.cleared_at ?? now) - item.active_at)}, `, h("code", null, name(item.id))),
    h("p.lead", null, name(item.reason)),
    diagnosis(item.diagnosis),
    item.diagnosis ? h("ul.plain", null, item.diagnosis.reasons.map((line) => h("li", null, name(line)))) : null,
    item.suspect_at === null ? h("p.quiet", null, "a first sign that named nobody")
      : buttons({ node: item.node, incident: item.id, acknowledged: item.acknowledged, dismissed: item.dismissed, muted: {}, isOpen: false, after: refresh }),
    h("div.buttons", null, exportButton(item.id)));
}

async function show() {
  try {
    const answer = await get(`v1/incidents/${inPath(SUBJECT)}`);
    const now = (answer.at ?? 0) + (answer.data_age_s ?? 0);
    const item = answer.incident;
    problem("");
    head(item, now);
    fill("steps", table("Steps of the incident", ["when", "after", "step", "why"], answer.transitions.map((step) => [
      clock(step.at, now), `+${span(step.at - item.active_at)}`, [state(step.before), " → ", state(step.after)], name(step.reason)])));
    const said = marks(item, now);
    fill("feedback", said.length ? said : h("p.quiet", null, "nobody has said what it was"));
    fill("evidence", h("ul.evidence", null, ranked(item.evidence).map(evidence)));
  } catch (error) {
    problem(error.message);
    if (error instanceof ApiError && error.status === 404) fill("head", h("h1", null, name(SUBJECT)), pinned() === null ? null : h("p.when", null, "it had not begun yet"));
    if (error instanceof ApiError && error.status < 500) for (const id of ["steps", "feedback", "evidence"]) fill(id, h("p.quiet", null, "–"));
    throw error;
  }
}

follow(refresh);
