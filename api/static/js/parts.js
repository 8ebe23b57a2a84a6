// What several pages show alike: marks, diagnosis, evidence in words.

import { h, name } from "./dom.js";
import { clock, number } from "./words.js";

export function marks(item, now) {
  const found = [];
  if (item.acknowledged) {
    found.push(h("p.mark", null, "✓ acknowledged by ", name(item.acknowledged.by), ` at ${clock(item.acknowledged.at, now)}`,
      item.acknowledged.note ? [": ", name(item.acknowledged.note)] : null));
  }
  if (item.dismissed) {
    found.push(h("p.mark", null, "✕ dismissed as a false alarm by ", name(item.dismissed.by), ` at ${clock(item.dismissed.at, now)}: `, name(item.dismissed.reason)));
  }
  if (item.muted) {
    found.push(h("p.mark", null, `∅ muted until ${clock(item.muted.until, now)} by `, name(item.muted.by), ": ", name(item.muted.reason)));
  }
  return found;
}

/** "likely: NVLink of one GPU", and what to check. */
export function diagnosis(found) {
  if (!found) return null;
  const sure = found.confidence ? `${found.confidence}: ` : "";
  return h("div.diagnosis", null,
    h("p", null, h("strong", null, sure, name(found.title)), found.role ? ` (${found.role}: ${found.role_reason})` : null),
    found.check ? h("p", null, h("span.tag", null, "check"), " ", name(found.check)) : null,
    found.also.length ? h("p.quiet", null, "also possible: ", name(found.also.join(", "))) : null);
}

/** A score in words and as a bar; eight thresholds fill it. */
export function score(value) {
  const inner = h("i");
  inner.style.width = `${Math.round(Math.min(1, (value ?? 0) / 8) * 100)}%`;
  return h("span.score", { title: "1 is the threshold" }, h("span.bar", { "aria-hidden": "true" }, inner), `score ${number(value, 3)}`);
}

/** Evidence that is worth a threshold by itself first, else in the order of the service. */
export const ranked = (items) => [...items].sort((a, b) => (b.score >= 1) - (a.score >= 1));

/** One piece of evidence as a line. */
export function evidence(item) {
  const where = item.part ? [" on ", h("b", null, name(item.part))] : null;
  return h("li", null, h("span.tag", null, item.layer), " ", h("code", null, name(item.metric)), where, ": ", name(item.reason));
}

/** An incident as pieces of a bar from one time to another: first sign, and from when it was named. */
export function life(item, from, to) {
  const share = (at) => Math.min(100, Math.max(0, 100 * (at - from) / Math.max(1, to - from)));
  const end = item.cleared_at ?? to;
  const piece = (kind, begin, until) => {
    const part = h("span", { class: `piece ${kind}` });
    const width = Math.max(0.8, share(until) - share(begin));
    part.style.left = `${Math.min(100 - width, share(begin))}%`;
    part.style.width = `${width}%`;
    return part;
  };
  return [piece("pending", item.active_at, item.suspect_at ?? end), item.suspect_at === null ? null : piece("suspect", item.suspect_at, end)];
}
