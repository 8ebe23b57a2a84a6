// The fleet at a glance: nodes in columns by pool, monitored targets in rows, colour by score.

import { nodePage } from "./api.js";
import { $, h, name } from "./dom.js";
import { natural, number, SIGNS } from "./words.js";

const BINS = [[0, "heat-0"], [1, "heat-1"], [2, "heat-2"], [3, "heat-3"], [Infinity, "heat-4"]];
const SPARE = new Set(["", "idle", "spares"]);
const RANK = { suspect: 0, pending: 1, undetermined: 2, clear: 3 };

const css = (key) => getComputedStyle(document.documentElement).getPropertyValue(`--${key}`).trim();
const bin = (value) => BINS[value <= 0 ? 0 : value < 1 ? 1 : value < 2 ? 2 : value < 3 ? 3 : 4][1];
export const isSpare = (node) => SPARE.has(node.pool);

function ordered(nodes) {
  const size = new Map();
  for (const node of nodes) size.set(node.pool, (size.get(node.pool) ?? 0) + 1);
  return [...nodes].sort((a, b) => isSpare(a) - isSpare(b) || size.get(b.pool) - size.get(a.pool) || natural(a.pool, b.pool) || natural(a.node, b.node));
}

/** A heat map in a canvas, with a line of text for what is pointed at, by mouse or by arrow keys. */
export class Heat {
  constructor(parent) {
    this.readout = h("p.readout", { id: "heat-text", "aria-live": "polite" });
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-describedby": "heat-text heat-help", id: "heat" });
    this.note = h("p.quiet", null);
    this.all = h("details", { "data-key": "all-nodes" }, h("summary", null, "Nodes as a list"), h("div", { id: "heat-list" }));
    parent.replaceChildren(legend(), this.readout, this.canvas, this.note,
      h("p.quiet", { id: "heat-help" }, "Click a column to open its node; with the keyboard: arrow keys and Enter."), this.all);
    this.at = null;
    this.places = [];
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    this.canvas.addEventListener("click", (event) => { this.point(event); this.open(); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => { this.at ??= { n: 0, t: -1 }; this.draw(); });
    this.canvas.addEventListener("blur", () => { this.at = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(parent);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(fleet) {
    this.nodes = ordered(fleet.nodes);
    this.targets = fleet.targets.map((target, k) => ({ ...target, k })).filter((target) => target.n_seen > 0);
    const unseen = fleet.targets.filter((target) => target.n_seen === 0).map((target) => target.target);
    this.note.textContent = unseen.length ? `Without any sample, so not shown: ${unseen.join(", ")}.` : "";
    this.list();
    this.draw();
  }

  list() {
    const shown = this.nodes.filter((node) => node.status !== "clear").sort((a, b) => RANK[a.status] - RANK[b.status] || b.score - a.score || natural(a.node, b.node));
    const clear = this.nodes.filter((node) => node.status === "clear");
    $("heat-list").replaceChildren(
      h("ul.plain", null, shown.slice(0, 300).map((node) => h("li", null,
        h("span", { class: `state ${node.status}` }, `${SIGNS[node.status]} ${node.status}`), " ",
        h("a", { href: nodePage(node.node) }, name(node.node)), ` ${number(node.score, 3)}`, node.pool ? [", pool ", name(node.pool)] : ", in no pool", node.is_muted ? ", muted" : ""))),
      h("p", null, `${clear.length} clear: `, clear.slice(0, 1000).flatMap((node, k) => [k ? ", " : "", h("a", { href: nodePage(node.node) }, name(node.node))])));
  }

  measure() {
    const width = Math.max(240, this.canvas.parentElement.clientWidth);
    const narrow = width < 560;
    const label = narrow ? 74 : 104;
    const n = Math.max(1, this.nodes.length);
    const w = Math.max(narrow ? 6 : 8, Math.min(22, Math.floor((width - label - 8) / (n + 4))));
    const perBand = Math.max(8, Math.floor((width - label - 8) / w));
    const rows = this.targets.length + 1;
    const cell = Math.max(11, Math.min(16, w));
    const head = 30;
    this.size = { width, label, w, cell, head, rows, band: head + rows * cell + 12 };
    this.places = [];
    this.pools = [];
    let column = 0;
    let band = 0;
    let pool = null;
    for (const node of this.nodes) {
      if (pool !== null && node.pool !== pool) column += 1;
      if (column >= perBand) { column = 0; band += 1; }
      if (node.pool !== pool || column === 0) this.pools.push({ pool: node.pool, band, column, first: node.node });
      this.pools.at(-1).last = node.node;
      pool = node.pool;
      this.places.push({ band, column });
      column += 1;
    }
    this.size.height = (band + 1) * this.size.band;
    this.size.n_bands = band + 1;
  }

  draw() {
    if (!this.nodes) return;
    this.measure();
    const { width, height, label, w, cell, head, band } = this.size;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const c = this.canvas.getContext("2d");
    c.scale(ratio, ratio);
    const color = Object.fromEntries(["heat-0", "heat-1", "heat-2", "heat-3", "heat-4", "text", "soft", "line", "suspect", "focus", "pending"].map((key) => [key, css(key)]));
    c.textBaseline = "middle";
    c.font = `${Math.min(12, cell - 0.5)}px system-ui, sans-serif`;
    for (let b = 0; b < this.size.n_bands; b += 1) {
      c.fillStyle = color.soft;
      c.textAlign = "right";
      ["score", ...this.targets.map((target) => target.target)].forEach((text, t) => {
        c.fillText(text, label - 6, b * band + head + t * cell + cell / 2 + 1, label - 8);
      });
    }
    c.textAlign = "left";
    c.fillStyle = color.soft;
    c.font = "11px system-ui, sans-serif";
    const shown = this.pools.map((item) => ({ ...item, x: label + item.column * w, y: item.band * band + 8 }));
    shown.forEach((item, k) => {
      const next = shown[k + 1];
      const room = (next && next.band === item.band ? next.x : width) - item.x - 6;
      if (room > 20) c.fillText(fit(c, told(item), room), item.x, item.y);
    });
    this.nodes.forEach((node, n) => {
      const { band: b, column } = this.places[n];
      const x = label + column * w;
      const y = b * band + head;
      [node.score, ...this.targets.map((target) => node.cells[target.k])].forEach((value, t) => {
        const top = y + t * cell;
        if (node.status === "undetermined") {
          hatch(c, x, top, w - 1, cell - 1, color.soft);
        } else if (value === null) {
          c.fillStyle = color.line;
          c.fillRect(x + w / 2 - 1, top + cell / 2 - 1, 2, 2);
        } else {
          c.fillStyle = color[bin(value)];
          if (isSpare(node) && value === 0) {
            c.strokeStyle = color.line;
            c.strokeRect(x + 0.5, top + 0.5, w - 2, cell - 2);
          } else {
            c.fillRect(x, top, w - 1, cell - 1);
          }
        }
      });
      if (node.status === "suspect" || node.status === "pending") {
        c.fillStyle = color[node.status];
        triangle(c, x + (w - 1) / 2, y - 3, node.status === "suspect" ? 5 : 3);
      }
      if (node.status === "suspect") {
        c.strokeStyle = color.suspect;
        c.lineWidth = 1.5;
        c.strokeRect(x - 1, y - 1, w + 1, this.size.rows * cell + 1);
        c.lineWidth = 1;
      }
      if (this.at?.n === n) {
        c.strokeStyle = color.focus;
        c.lineWidth = 2;
        c.strokeRect(x - 1, y + (this.at.t + 1) * cell - 1, w + 1, cell + 1);
        c.lineWidth = 1;
      }
    });
    const count = (status) => this.nodes.filter((node) => node.status === status).length;
    this.canvas.setAttribute("aria-label", `Heat map of ${this.nodes.length} nodes: ${count("suspect")} suspect, ${count("pending")} pending, ${count("undetermined")} undetermined.`);
    this.tell();
  }

  tell() {
    if (this.at === null || !this.nodes[this.at.n]) {
      const worst = this.nodes.filter((node) => node.status === "suspect").map((node) => node.node);
      this.readout.replaceChildren(worst.length ? `Suspect: ` : "No suspect", ...worst.slice(0, 8).flatMap((text, k) => [k ? ", " : "", name(text)]), worst.length > 8 ? " …" : "");
      return;
    }
    const node = this.nodes[this.at.n];
    const target = this.targets[this.at.t];
    const value = target ? node.cells[target.k] : node.score;
    this.readout.replaceChildren(h("b", null, name(node.node)), `, ${node.pool ? "pool " : "in no pool"}`, name(node.pool), `: ${SIGNS[node.status]} ${node.status}${node.is_muted ? ", muted" : ""}; ${target ? target.target : "score"} ${value === null ? "without data" : number(value, 3)}`);
  }

  point(event) {
    if (!this.nodes) return;
    const { label, w, cell, head, band, rows } = this.size;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - label;
    const y = event.clientY - box.top;
    const b = Math.floor(y / band);
    const column = Math.floor(x / w);
    const n = this.places.findIndex((place) => place.band === b && place.column === column);
    const row = Math.max(0, Math.min(rows - 1, Math.floor((y - b * band - head) / cell)));
    const found = n < 0 ? null : { n, t: row - 1 };
    if (found?.n === this.at?.n && found?.t === this.at?.t) return;
    this.at = found;
    this.canvas.style.cursor = found ? "pointer" : "default";
    this.draw();
  }

  key(event) {
    if (!this.nodes?.length) return;
    const at = this.at ?? { n: 0, t: -1 };
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Enter") this.open();
    else if (event.key === "Home") this.at = { ...at, n: 0 };
    else if (event.key === "End") this.at = { ...at, n: this.nodes.length - 1 };
    else if (moves[event.key]) {
      const [dn, dt] = moves[event.key];
      this.at = {
        n: Math.max(0, Math.min(this.nodes.length - 1, at.n + dn)),
        t: Math.max(-1, Math.min(this.targets.length - 1, at.t + dt)),
      };
    } else return;
    event.preventDefault();
    this.draw();
  }

  open() {
    if (this.at && this.nodes[this.at.n]) location.href = nodePage(this.nodes[this.at.n].node);
  }
}

/** "main: gpu002 to gpu134": which nodes stand there; names are isolated, as elsewhere. */
function told({ pool, first, last }) {
  const [of, from, to] = [pool || "no pool", first, last].map((text) => `\u2068${text.slice(0, 60)}\u2069`);
  return `${of}: ${first === last ? from : `${from} to ${to}`}`;
}

function fit(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let n = Math.min(text.length, 200);
  while (n > 1 && c.measureText(`${text.slice(0, n)}…`).width > room) n -= 1;
  return `${text.slice(0, n)}…`;
}

function triangle(c, x, y, size) {
  c.beginPath();
  c.moveTo(x - size, y - size * 1.7);
  c.lineTo(x + size, y - size * 1.7);
  c.lineTo(x, y);
  c.fill();
}

function hatch(c, x, y, w, hgt, color) {
  c.strokeStyle = color;
  c.beginPath();
  c.moveTo(x, y + hgt);
  c.lineTo(x + w, y);
  c.stroke();
}

function legend() {
  const swatch = (kind, text) => h("span.key", null, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), text);
  return h("p.legend", null, swatch("heat-0", "0"), swatch("heat-1", "under 1"), swatch("heat-2", "1 to 2"), swatch("heat-3", "2 to 3"), swatch("heat-4", "3 and more"),
    swatch("none", "no data"), swatch("hatched", "undetermined"), swatch("spare", "spare or idle"),
    h("span.key", null, h("span", { class: "state suspect" }, "▼ suspect")), h("span.key", null, h("span", { class: "state pending" }, "▼ pending")));
}
