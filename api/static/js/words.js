// Numbers and times in words. All times are UTC, as in logs and dashboards.

import { h } from "./dom.js";

const pad = (n) => String(n).padStart(2, "0");

/** "12:03:10", with the date when it is not the day of `now`. */
export function clock(at, now = null) {
  if (at === null || at === undefined) return "–";
  const d = new Date(at * 1000);
  const time = `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}:${pad(d.getUTCSeconds())}`;
  const day = d.toISOString().slice(0, 10);
  return now !== null && new Date(now * 1000).toISOString().slice(0, 10) === day ? time : `${day} ${time}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A moment as people ask for it: how long ago, and when. */
export function ago(at, now) {
  if (at === null || at === undefined) return "–";
  return h("time", { datetime: new Date(at * 1000).toISOString() }, `${span(now - at)} ago (${clock(at, now)})`);
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e4 || (size > 0 && size < 1e-3)) {
    const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => size >= least);
    return steps ? `${trim((value / steps[0]).toPrecision(3))} ${steps[1]}` : value.toExponential(2);
  }
  return trim(value.toPrecision(size >= 1000 ? Math.max(4, digits) : digits));
}

const trim = (text) => (text.includes(".") && !text.includes("e") ? text.replace(/0+$/, "").replace(/\.$/, "") : text);

export const SIGNS = { suspect: "▲", pending: "◆", undetermined: "?", clear: "●", cleared: "○", muted: "∅", dismissed: "✕" };

/** A state: a sign, a colour and a word. */
export function state(value) {
  return h("span.state", { class: `state ${value}` }, h("span", { "aria-hidden": "true" }, `${SIGNS[value] ?? "·"} `), value);
}

const NATURAL = new Intl.Collator("en", { numeric: true });
export const natural = (a, b) => NATURAL.compare(a, b);
