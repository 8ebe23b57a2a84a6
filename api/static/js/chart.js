// A suspect's line against its peers: median, quartiles, ordinary band, single peers, thresholds, first sign, verdict.

import { h } from "./dom.js";
import { clock, number } from "./words.js";

const css = (key) => getComputedStyle(document.documentElement).getPropertyValue(`--${key}`).trim();
const HEIGHT = 170;

const isOdd = (one, k) => one.value[k] !== null && one.low[k] !== null && (one.value[k] < one.low[k] || one.value[k] > one.high[k]);

const passes = (one, k) => one.value[k] !== null && ((one.above[k] !== null && one.value[k] > one.above[k]) || (one.below[k] !== null && one.value[k] < one.below[k]));

/** True when the signal by itself is past its threshold in the whole window. */
export const isPast = (one) => one.times.every((_, k) => one.value[k] === null || passes(one, k)) && one.value.some((value) => value !== null);

/** Times at which it passed it. */
export const passings = (one) => one.times.filter((_, k) => k > 0 && passes(one, k) && one.value[k - 1] !== null && !passes(one, k - 1));

/** Vertical lines for moments, dots where the line is outside of the band, triangles where it passes its threshold. */
function marking(one, moments) {
  return {
    hooks: {
      draw: (u) => {
        const c = u.ctx;
        const { left, top, width, height } = u.bbox;
        const ratio = window.devicePixelRatio || 1;
        c.save();
        c.beginPath();
        c.rect(left, top, width, height);
        c.clip();
        c.fillStyle = css("suspect");
        one.times.forEach((time, k) => {
          if (!isOdd(one, k)) return;
          c.beginPath();
          c.arc(u.valToPos(time, "x", true), u.valToPos(one.value[k], "y", true), 2.2 * ratio, 0, 7);
          c.fill();
        });
        c.fillStyle = css("text");
        for (const time of passings(one)) {
          const k = one.times.indexOf(time);
          const x = u.valToPos(time, "x", true);
          const y = u.valToPos(one.value[k], "y", true);
          const side = one.above[k] !== null && one.value[k] > one.above[k] ? 1 : -1;
          c.beginPath();
          c.moveTo(x - 5 * ratio, y + 9 * side * ratio);
          c.lineTo(x + 5 * ratio, y + 9 * side * ratio);
          c.lineTo(x, y);
          c.fill();
        }
        for (const { at, color, dash } of moments) {
          if (at === null || at < u.scales.x.min || at > u.scales.x.max) continue;
          const x = u.valToPos(at, "x", true);
          c.strokeStyle = css(color);
          c.lineWidth = 1.5 * ratio;
          c.setLineDash(dash.map((d) => d * ratio));
          c.beginPath();
          c.moveTo(x, top);
          c.lineTo(x, top + height);
          c.stroke();
        }
        c.restore();
      },
    },
  };
}

/** True when its usual place is not that of its peers. */
export const isByHabitElsewhere = (one) => one.habit !== null && Math.abs(one.habit) >= 1;

/** The first time from which on it was outside of the band, null when it never was. */
export function crossing(one) {
  const k = one.times.findIndex((_, i) => isOdd(one, i));
  return k < 0 ? null : one.times[k];
}

/**
 * Draw a chart into `place`.
 *
 * one: the strongest series of /v1/series; others: further parts of the same node; moments: vertical lines;
 * more: what else is said of it at rest; notes: sentences below it; past: the same member earlier, at the times of `one`.
 */
export function draw(place, one, others, moments, label, more, notes, past) {
  const readout = h("p.readout", null);
  const box = h("div.plot", { role: "img", "aria-label": label });
  place.replaceChildren(box, readout, ...(notes.length ? [h("p.quiet", null, notes.join(" · "))] : []));
  const axis = { stroke: css("soft"), grid: { stroke: css("line"), width: 1 }, ticks: { stroke: css("line"), width: 1 }, font: "11px system-ui, sans-serif" };
  const usual = isByHabitElsewhere(one) ? [one.usual] : [];
  const rest = () => {
    const k = one.times.length - 1;
    tell(readout, one, k);
    readout.append(more);
  };
  const options = {
    width: Math.max(220, place.clientWidth),
    height: HEIGHT,
    tzDate: (ts) => window.uPlot.tzDate(new Date(ts * 1000), "Etc/UTC"),
    legend: { show: false },
    cursor: { points: { show: false }, y: false, drag: { x: false, y: false } },
    scales: { x: { time: true } },
    axes: [
      { ...axis, size: 28, values: (u, ticks) => ticks.map((tick) => clock(tick, tick).slice(0, 5)), space: 60 },
      { ...axis, size: 58, values: (u, ticks) => ticks.map((tick) => number(tick, 3)) },
    ],
    series: [
      {},
      ...Array.from({ length: 4 }, () => ({ stroke: "transparent", width: 0, points: { show: false } })),
      ...one.peers.map(() => ({ stroke: css("faint"), width: 1, points: { show: false } })),
      ...[one.above, one.below].map(() => ({ stroke: css("soft"), width: 1, dash: [1, 3], auto: false, points: { show: false } })),
      ...usual.map(() => ({ stroke: css("sibling"), width: 1.5, dash: [2, 4], auto: false, points: { show: false } })),
      { stroke: css("peer"), width: 1.5, dash: [5, 4], points: { show: false } },
      ...(past ? [{ stroke: css("past"), width: 1.5, dash: [7, 3], points: { show: false } }] : []),
      ...others.map(() => ({ stroke: css("sibling"), width: 1, points: { show: false } })),
      { stroke: css("suspect"), width: 2, points: { show: false } },
    ],
    bands: [{ series: [2, 1], fill: css("band") }, { series: [4, 3], fill: css("band") }],
    plugins: [marking(one, moments)],
    hooks: { setCursor: [(u) => (u.cursor.idx === null || u.cursor.idx === undefined ? rest() : tell(readout, one, u.cursor.idx))] },
  };
  const plot = new window.uPlot(options, [one.times, one.low, one.high, one.lower_quartile, one.upper_quartile, ...one.peers.map((peer) => peer.value), one.above, one.below, ...usual, one.median, ...(past ? [past] : []),
    ...others.map((item) => item.value), one.value], box);
  rest();
  return plot;
}

function tell(readout, one, k) {
  if (k < 0) return;
  readout.textContent = `${clock(one.times[k], one.times[k])}  ${number(one.value[k])}; peers ${number(one.median[k])} (${number(one.low[k])} to ${number(one.high[k])})`;
}
