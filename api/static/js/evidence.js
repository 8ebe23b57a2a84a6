// Evidence as charts against the peers, from before the first sign until now, or over the time of an incident.

import { ApiError, get } from "./api.js";
import { crossing, draw, isByHabitElsewhere, isPast, passings } from "./chart.js";
import { fill, h, name } from "./dom.js";
import { ranked } from "./parts.js";
import { clock, number, span } from "./words.js";

const FIRST = 8;
const AT_ONCE = 3;
const PEERS = 8;
const BEFORE_S = 900; // shown before the first sign
const PASTS = [["not shown", 0], ["10 min earlier", 600], ["1 h earlier", 3600], ["1 day earlier", 86400], ["1 week earlier", 604800]];
const KEPT_STEPS = 20;

/** Of the series of a metric, the one of a part that fits the labels of the evidence best. */
function bestOf(series, part, labels) {
  const fits = (item) => Object.entries(labels).filter(([key, value]) => item.labels[key] === value).length;
  return series.filter((item) => item.part === part).sort((a, b) => fits(b) - fits(a))[0];
}

/** The strongest piece of evidence that has peers to be shown against, else the strongest. */
export const atAGlance = (items) => ranked(items).find((item) => item.layer !== "direct") ?? items[0];

const hasAny = (one) => one.value.some((value) => value !== null);

/** Charts in the element `id`, of the node that `node` returns; `refresh`, a steady one, follows each choice. */
export class Charts {
  constructor(id, node, refresh) {
    Object.assign(this, { id, node, refresh, shown: FIRST, plots: [], scope: "all", before: 0, pasts: new Map(), used: new Set(), reading: Promise.resolve() });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      for (const plot of this.plots) plot.setSize({ width: Math.max(220, plot.root.closest(".chart").clientWidth), height: plot.height });
    });
  }

  /** Let go of what is not shown any more. */
  clear() {
    this.plots.forEach((plot) => plot.destroy());
    this.plots = [];
  }

  /** What the charts are shown with. */
  tools(place) {
    const choice = (value, label) => {
      const input = h("input", { type: "radio", name: "scope", id: `scope-${value}`, value, checked: value === this.scope, onchange: () => { this.scope = value; this.refresh(); } });
      return h("label.check", { for: input.id }, input, label);
    };
    const select = h("select", { id: "own-past", onchange: () => { this.before = Number(select.value); this.pasts.clear(); this.refresh(); } },
      PASTS.map(([label, value]) => h("option", { value: String(value) }, label)));
    place.replaceChildren(h("span.quiet", null, "Shown with"), choice("all", "all peers"), choice("slot", "the same slot of other nodes"),
      h("span.pair", null, h("label", { for: "own-past" }, "Own past"), select));
  }

  /** Show one piece of evidence alone in `place`. */
  async only(place, { item, incident, now }) {
    const former = this.plots;
    this.plots = [];
    try {
      if (item) await this.chart(place, item, { since: Math.min(incident.active_at, item.since) - BEFORE_S, until: null, now, incident });
    } finally {
      former.forEach((plot) => plot.destroy());
    }
  }

  /** Show pieces of evidence of an incident, null for none that is open; with `until` up to then, else up to now. */
  async show({ items, incident, now, until = null }) {
    const wanted = ranked(items).slice(0, this.shown);
    const began = Math.min(...(incident ? [incident.active_at] : items.map((item) => item.since)));
    const known = new Map([...document.querySelectorAll("[data-chart]")].map((place) => [place.dataset.chart, place]));
    const places = wanted.map((item, k) => known.get(`${item.metric} ${item.part} ${k}`) ?? h("div.chart", { "data-chart": `${item.metric} ${item.part} ${k}` }, h("p.quiet", null, "loading")));
    fill(this.id,
      h("p.legend", null, h("span.key", null, h("i.dash.mine"), "this node"), h("span.key", null, h("i.dash.sibling"), "its other parts"),
        h("span.key", null, h("i.dash.peer"), "median of the peers"), h("span.key", null, h("i.swatch.half"), "half of the peers"), h("span.key", null, h("i.swatch.band"), "their ordinary band"),
        this.before ? h("span.key", null, h("i.dash.past"), "this node earlier") : null,
        h("span.key", null, h("i.dash.single"), "single peers"), h("span.key", null, h("i.dash.usual"), "its usual place"), h("span.key", null, h("i.dash.limit"), "threshold"), h("span.key", null, "▲ passes it"),
        h("span.key", null, h("i.dot"), "outside of the band"), h("span.key", null, h("i.post.sign"), "first sign"), h("span.key", null, h("i.post.verdict"), "named"),
        incident?.cleared_at ? h("span.key", null, h("i.post.over"), "cleared") : null),
      h("div.charts", null, wanted.map((item, k) => h("figure", null,
        h("figcaption", null, h("span.tag", null, item.layer), " ", h("code", null, name(item.metric)), item.part ? [" on ", h("b", null, name(item.part))] : null,
          h("br"), name(item.reason), h("span.quiet", null, ` · since ${clock(item.since, now)}, worth ${number(item.score, 3)}`)), places[k]))),
      items.length > this.shown ? h("button", { type: "button", "data-key": "more", onclick: () => { this.shown = 999; this.refresh(); } }, `Show all ${items.length}`) : null);
    const former = this.plots;
    this.plots = [];
    this.used.clear();
    const waiting = wanted.map((item, k) => [places[k], item]);
    const worker = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        await this.chart(next[0], next[1], { since: Math.min(began, next[1].since) - BEFORE_S, until, now, incident });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    for (const key of this.pasts.keys()) if (!this.used.has(key)) this.pasts.delete(key);
    if (wanted.length && !this.plots.length) {
      const missing = h("p.note", { "data-missing": "" }, "There are no samples of that time any more: what follows is what was stored with the incident.");
      document.querySelector(`#${this.id} .legend`)?.replaceWith(missing);
    }
    former.forEach((plot) => plot.destroy());
  }

  async chart(place, item, time) {
    let told;
    let past;
    try {
      told = await this.seriesFor(item, time);
      past = told.one ? await this.pastOf(told.one) : null;
    } catch (error) {
      place.replaceChildren(h("p.quiet", null, error.message));
      return;
    }
    const { one, others, note } = told;
    if (!one || !hasAny(one)) {
      place.replaceChildren(h("p.quiet", null, note || `There are no samples of it ${time.until === null ? "" : "of then "}any more.`));
      return;
    }
    const moments = [{ at: item.since, color: "pending", dash: [3, 3] }, { at: time.incident?.suspect_at ?? null, color: "suspect", dash: [] },
      { at: time.incident?.cleared_at ?? null, color: "clear", dash: [] }];
    const over = crossing(one);
    const label = `${item.metric} ${item.part}: ${item.reason}. ${over === null ? "Never outside of the peers' band in this time." : `Outside of the peers' band since ${clock(over)}.`} ${this.inWords(one).join(", ")}`;
    const first = one.times[0];
    const late = item.since < first ? `; first sign ${span(first - item.since)} before this time` : "";
    const step = one.times.length > 1 ? one.times.at(-1) - one.times.at(-2) : 30;
    const notes = [...this.inWords(one), ...(typeof past === "string" ? [`own past: ${past}`] : []),
      ...(note ? [note] : first > time.since + 2 * Math.max(told.every, step) ? [`nothing is kept of before ${clock(first, time.now)}`] : []),
      ...(told.every > step ? [`one point every ${span(told.every)}`] : [])];
    this.plots.push(draw(place, one, others, moments, label, late, notes, Array.isArray(past) ? past : null));
  }

  /** Series of a metric of this node over some time, none when there are none. */
  async seriesOf(metric, more, labels, { since, until }) {
    const query = new URLSearchParams({ node: this.node(), metric, scope: this.scope, since: String(Math.max(0, since)), ...(until === null ? {} : { until: String(until) }), ...more });
    for (const [key, value] of Object.entries(labels).slice(0, 10)) query.append("label", `${key}=${value}`);
    return get(`v1/series?${query}`);
  }

  /** The series that a piece of evidence tells of, with single peers, and the node's other parts that deviate as well. */
  async seriesFor(item, time) {
    const [first, ...rest] = item.parts.length ? item.parts : [item.part];
    let told = await this.seriesOf(item.metric, { part: first, peers: String(PEERS), limit: "4" }, item.labels, time);
    if (!told.series.length) told = await this.seriesOf(item.metric, { peers: String(PEERS), limit: "4" }, {}, time);
    const found = told.series;
    const one = bestOf(found, first, item.labels) ?? bestOf(found, "", item.labels) ?? found[0];
    const all = one && rest.length ? (await this.seriesOf(item.metric, { limit: "40" }, {}, time)).series : [];
    const others = rest.slice(0, 15).map((part) => bestOf(all, part, {})).filter(Boolean);
    return { one, others: others.map((other) => along(one.times, other)), note: told.note, every: told.every_s ?? 0 };
  }

  /** What the member was some hours earlier, at the times of its chart; read back anew only after a while. */
  async pastOf(one) {
    const { before } = this;
    if (!before) return null;
    const [first, last] = [one.times[0], one.times.at(-1)];
    const key = JSON.stringify([one.metric, one.part, one.labels, before, first]);
    const step = one.times.length > 1 ? last - one.times.at(-2) : 30;
    this.used.add(key);
    let known = this.pasts.get(key);
    if (!known || last > known.until) {
      const until = last + KEPT_STEPS * step;
      const time = { since: first - before, until: until - before };
      known = { until, found: null, why: "nothing is kept of then" };
      try {
        const answer = this.reading.then(() => this.seriesOf(one.metric, { part: one.part, limit: "10" }, one.labels, time)); // one past is read at a time
        this.reading = answer.catch(() => {});
        const told = await answer;
        known.found = bestOf(told.series, one.part, one.labels) ?? null;
        if (told.note) known.why = told.note;
      } catch (error) {
        if (!(error instanceof ApiError) || error.status === 429) throw error;
        known.why = error.message;
      }
      this.pasts.set(key, known);
    }
    if (!known.found) return known.why;
    const { value } = along(one.times, { times: known.found.times.map((time) => time + before), value: known.found.value });
    return value.some((item) => item !== null) ? value : known.why;
  }

  inWords(one) {
    const notes = [];
    if (isByHabitElsewhere(one)) notes.push(`by habit ${number(Math.abs(one.habit), 2)} robust deviations ${one.habit > 0 ? "above" : "below"} its peers`);
    const passed = passings(one);
    if (isPast(one)) notes.push("past its threshold all the time");
    if (passed.length) notes.push(`threshold passed ${passed.length > 3 ? `${passed.length} times, first` : ""} at ${passed.slice(0, passed.length > 3 ? 1 : 3).map((time) => clock(time, time)).join(", ")}`);
    if (this.scope === "slot") notes.push(one.scope === "slot" ? `the same slot of ${one.n_peers} other nodes` : "it has no slots: all peers");
    return notes;
  }
}

/** A line at the times of another one: at each the newest of its values that is younger than a step of either. */
function along(times, line) {
  const steps = (all) => (all.length > 2 ? all[1] - all[0] : 30);
  const reach = Math.max(steps(times), steps(line.times));
  let k = 0;
  const value = times.map((time) => {
    while (k + 1 < line.times.length && line.times[k + 1] <= time + 1) k += 1;
    const age = time + 1 - (line.times[k] ?? Infinity);
    return age >= 0 && age < reach ? line.value[k] : null;
  });
  return { ...line, value };
}
