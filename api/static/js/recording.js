// A recording that is played: a slider over its time turns the page back, with a mark where each node was named.

import { follow as followLive, get, pin, pinned, steady } from "./api.js";
import { $, h, name } from "./dom.js";
import { clock, natural } from "./words.js";

const TURN_MS = 400;
const MOST_TURNS = 240;
const MARKS = 40;

/**
 * Call `refresh`, a steady one, whenever there is something new to show: live, or as the slider moves.
 * Of a live service there is no slider, and what is shown is always now.
 */
export function follow(refresh, told = () => {}) {
  const track = new Track(refresh);
  const look = steady(() => track.look());
  return followLive(() => {
    look();
    if (pinned() === null) refresh();
  }, told);
}

class Track {
  constructor(refresh) {
    this.refresh = refresh;
    this.isLive = false;
    this.isFirst = true;
    this.turning = 0;
    this.play = h("button", { type: "button", id: "rec-play", onclick: () => this.toggle() });
    this.slider = h("input", { type: "range", id: "rec-time", "aria-label": "Time of the recording", oninput: () => this.show(Number(this.slider.value)) });
    this.marks = h("div.rec-marks", { role: "group", "aria-label": "When somebody was named" });
    this.text = h("span.rec-at", { role: "status" });
    this.newest = h("button", { type: "button", onclick: () => this.show(null) }, "Newest");
    this.title = h("b", null);
  }

  /** Ask what there is to show; a service that is live is asked once. */
  async look() {
    if (this.isLive) return;
    const { recording } = await get("v1/recording");
    if (recording === null || recording.last_at === null) {
      this.isLive = recording === null;
      if (pinned() !== null) this.show(null);
      return;
    }
    this.known = recording;
    if (this.isFirst) {
      this.isFirst = false;
      this.title.replaceChildren(name(recording.name));
      $("recording").replaceChildren(h("p.rec-head", null, "Recording ", this.title, this.text), h("div.rec-row", null, this.play,
        h("div.rec-track", null, this.marks, this.slider), this.newest));
      $("recording").hidden = false;
      if (pinned() !== null) this.refresh();
    }
    if (pinned() !== null && (pinned() > recording.last_at || pinned() < recording.first_at)) this.show(pinned() < recording.first_at ? recording.first_at : null);
    this.draw();
  }

  draw() {
    const { start, end, step_s: step, last_at: last, marks } = this.known;
    const at = pinned() ?? last;
    for (const [key, value] of [["min", Math.ceil(start / step) * step], ["max", Math.max(end, last)], ["step", step]]) if (this.slider[key] !== String(value)) this.slider[key] = value;
    this.slider.value = at;
    this.slider.setAttribute("aria-valuetext", clock(at));
    this.play.textContent = (pinned() === null && !this.isOver()) || this.turning ? "Pause" : "Play";
    this.newest.disabled = pinned() === null;
    this.text.textContent = pinned() === null ? `newest evaluation ${clock(last)}` : `as of ${clock(at)}, newest ${clock(last, at)}`;
    this.text.className = pinned() === null ? "rec-at" : "rec-at back";
    const named = marks.filter((mark) => mark.state === "suspect").slice(-MARKS).sort((a, b) => a.at - b.at || natural(a.node, b.node));
    const key = named.map((mark) => mark.incident_id).join(" ");
    if (key !== this.drawn) {
      this.drawn = key;
      this.marks.replaceChildren(...named.map((mark) => {
        const says = `${mark.node} named ${clock(mark.at)}`;
        const button = h("button.rec-mark", { type: "button", title: says, "aria-label": says, onclick: () => this.show(mark.at) }, h("span", { "aria-hidden": "true" }, "▼"));
        button.style.left = `${(100 * (mark.at - start)) / Math.max(1, Math.max(end, last) - start)}%`;
        return button;
      }));
    }
  }

  /** Show a time, or with null what is newest, as it goes on. */
  show(at) {
    const last = this.known?.last_at ?? null;
    pin(at === null || last === null || at >= last ? null : Math.max(at, this.known.first_at));
    if (pinned() === null) this.stop();
    if (this.known) this.draw();
    this.refresh();
  }

  toggle() {
    if (pinned() === null && !this.isOver()) {
      pin(this.known.last_at);
      this.refresh();
    } else if (this.turning) this.stop();
    else {
      if (pinned() === null) this.show(this.known.first_at);
      const turn = Math.max(1, Math.round(this.known.n_evaluations / MOST_TURNS)) * this.known.step_s;
      this.turning = setInterval(() => this.show(pinned() + turn), TURN_MS);
    }
    this.draw();
  }

  /** What has been played to its end is played again from its beginning. */
  isOver() {
    return this.known.last_at + this.known.step_s > this.known.end;
  }

  stop() {
    clearInterval(this.turning);
    this.turning = 0;
  }
}
