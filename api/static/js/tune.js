// Other settings tried on the last hours: the form, how far it is, and the alarms before and after.

import { change, follow, get, nodePage, pause, pinned, steady } from "./api.js";
import { $, fill, h, name, problem, say, table } from "./dom.js";
import { clock, number, span } from "./words.js";

const POLL_MS = 1000;
const SHOWN = 100;
const SIGNS = { gained: "+", lost: "−", earlier: "◀", later: "▶", longer: "↦", shorter: "↤", same: "=" };
const refresh = steady(show);

let inEffect = {};
let told = "";
let isPolling = false;
let isLost = false;

function field(item) {
  const id = `k-${item.name}`;
  const input = h("input", {
    type: "number", id, name: item.name, min: String(item.least), max: String(item.most), step: item.is_whole ? "1" : "any",
    value: String(item.value), required: true, "aria-describedby": `${id}-text`,
    oninput: () => { mark(input); if (isRight(input)) complain(input); },
  });
  return h("div.knob", null, h("label", { for: id }, h("code", null, item.name)),
    h("span.pair", null, input, h("span.quiet", null, item.unit)),
    h("span.quiet", { id: `${id}-text` }, h("span", { id: `${id}-now` }, `in effect: ${number(item.value, 6)}; `), item.text),
    h("span.wrong", { "data-for": id, role: "alert" }));
}

/** What is wrong with a value, in words; empty when nothing is, or when it stays as it is. */
function wrong(input) {
  const { validity, min, max } = input;
  if (validity.valueMissing || validity.badInput) return "a number is needed";
  if (!isChanged(input) && input.id !== "hours") return ""; // what stays may lie outside of what can be tried
  if (validity.rangeUnderflow || validity.rangeOverflow) return `must be from ${number(Number(min), 6)} to ${number(Number(max), 6)}`;
  if (validity.stepMismatch) return "must be a whole number";
  return "";
}

const isRight = (input) => wrong(input) === "";

/** Say at the field what is wrong with it; only when it is tried, as what moves under the pointer loses its click. */
function complain(input) {
  const text = wrong(input);
  document.querySelector(`[data-for="${input.id}"]`).textContent = text;
  if (text) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
}

const isChanged = (input) => input.value !== "" && Number(input.value) !== inEffect[input.name];
const inputs = () => [...$("knobs").querySelectorAll("input[name]")];

function mark(input) {
  input.closest(".knob").classList.toggle("changed", isChanged(input));
}

function form(answer) {
  const before = inEffect;
  inEffect = Object.fromEntries(answer.settings.map((item) => [item.name, item.value]));
  const known = inputs();
  if (known.length) {
    // what was not touched follows the settings in effect
    for (const input of known) {
      if (Number(input.value) === before[input.name]) input.value = String(inEffect[input.name]);
      $(`${input.id}-now`).textContent = `in effect: ${number(inEffect[input.name], 6)}; `;
      mark(input);
    }
    return;
  }
  const hours = h("input", { type: "number", id: "hours", min: "0.01", max: String(answer.max_hours), step: "any", value: String(Math.min(1, answer.max_hours)), required: true,
    oninput: () => { if (isRight(hours)) complain(hours); } });
  $("knobs").replaceChildren(
    h("div.knob-list", null, answer.settings.map(field)),
    h("div.buttons", null, h("span.pair", null, h("label", { for: "hours" }, "Last hours"), hours, h("span.quiet", null, `at most ${number(answer.max_hours)}`), h("span.wrong", { "data-for": "hours", role: "alert" })),
      h("button.main", { type: "submit", id: "try", disabled: !answer.is_on }, "Try it"),
      h("button", { type: "button", id: "reset", onclick: reset }, "Values in effect"),
      answer.is_on ? null : h("span.quiet", null, "switched off: what_if.enabled")));
  $("knobs").addEventListener("submit", (event) => { event.preventDefault(); begin(); });
}

function reset() {
  for (const input of inputs()) {
    input.value = String(inEffect[input.name]);
    mark(input);
    complain(input);
  }
  problem("");
  $("try").focus();
}

async function begin() {
  const refused = [...inputs(), $("hours")].filter((input) => !isRight(input));
  refused.forEach(complain);
  if (refused.length) {
    problem(`Not tried: ${refused.map((input) => `${input.name || "hours"} ${wrong(input)}`).join("; ")}.`);
    refused[0].focus();
    return;
  }
  const changes = Object.fromEntries(inputs().filter(isChanged).map((input) => [input.name, Number(input.value)]));
  if (!Object.keys(changes).length) {
    problem("Nothing is changed yet: change a value first.");
    return;
  }
  try {
    problem("");
    await change("POST", "v1/what-if", { changes, hours: Number($("hours").value) });
    say("The try has begun");
  } catch (error) {
    problem(error.message);
    return;
  }
  refresh();
}

async function cancel() {
  try {
    await change("DELETE", "v1/what-if");
  } catch (error) {
    problem(error.message);
  }
  refresh();
}

const tried = (run) => Object.entries(run.changes).map(([key, value]) => [h("code", null, name(key)), ` ${number(inEffect[key], 6)} → ${number(value, 6)} `]);

function underWay(run) {
  const is = run?.state === "running";
  $("s-run").hidden = !is;
  const button = $("try");
  if (button && is) button.disabled = true;
  if (!is) return;
  fill("run", h("p", null, "tried by ", name(run.by), ": ", tried(run)),
    h("div.buttons", null, h("progress", { max: "1", value: String(run.progress), "aria-label": "Share that is done" }),
      h("span", null, `${Math.round(run.progress * 100)} %, ${span(run.took_s)} so far`),
      h("button", { type: "button", "data-key": "cancel", onclick: cancel }, "Cancel")));
}

/** Two bars on one scale of time: a suspect's first sign is thin, from when it is named it is thick. */
function bars(item, found) {
  const place = (at) => 100 * Math.min(1, Math.max(0, (at - found.start) / (found.end - found.start)));
  const bar = (kind, alarm) => {
    const track = h("span.track");
    if (!alarm) return track;
    const end = alarm.cleared_at ?? found.end;
    for (const [part, from, to] of [["first", alarm.first_sign_at, alarm.named_at], [kind, alarm.named_at, end]]) {
      const piece = h("i", { class: `piece ${part}` });
      piece.style.left = `${place(from)}%`;
      piece.style.width = `${Math.max(part === "first" ? 0 : 0.8, place(to) - place(from))}%`;
      track.append(piece);
    }
    return track;
  };
  return h("span.bars", { "aria-hidden": "true" }, bar("before", item.before), bar("after", item.after));
}

const subject = (alarm) => (alarm.what === "suspect" ? h("a", { href: nodePage(alarm.name) }, name(alarm.name)) : ["group event in ", name(alarm.name || "–")]);

function summary(found) {
  const counts = {};
  for (const item of found.differences) counts[item.kind] = (counts[item.kind] ?? 0) + 1;
  const parts = Object.keys(SIGNS).filter((kind) => kind !== "same" && counts[kind]).map((kind) => `${counts[kind]} ${kind}`);
  return `${parts.length ? parts.join(", ") : "No alarm differs"}${counts.same ? `; ${counts.same} the same` : ""}`;
}

const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const side = (label, item) => h("div.fact", null, h("span.quiet", null, label),
  h("b", null, `${many(item.n_suspects, "suspect")}, ${many(item.n_group_events, "group event")}`),
  h("span.quiet", null, `${many(item.undetermined, "verdict")} undetermined`));

function compared(run, answer) {
  const found = run.comparison;
  const more = found.differences.length - SHOWN + found.n_left_out;
  return [
    h("p.lead", null, summary(found)),
    h("div.strip", null, side("settings in effect", found.before), side("settings tried", found.after),
      h("div.fact", null, h("span.quiet", null, "judged"), h("b", null, `${clock(found.start)} to ${clock(found.end, found.start)}`),
        h("span.quiet", null, `${many(found.n_evaluations, "evaluation")}, ${many(found.n_nodes, "node")}, ${found.n_series} series, ${span(run.took_s)}`)),
      h("div.fact", null, h("span.quiet", null, "the service itself named then"), h("b", null, String(answer.n_named ?? "–")), h("span.quiet", null, "it knows more of the past"))),
    found.notes.map((text) => h("p.note", null, name(text))),
    found.differences.length ? [
      h("p.legend", { "aria-hidden": "true" }, h("span.key", null, h("i.piece.before.swatch"), "in effect"), h("span.key", null, h("i.piece.after.swatch"), "tried"), h("span.key", null, h("i.piece.first.swatch"), "first sign")),
      table("Alarms under both settings", ["difference", "who", "part", "when", "in words"], found.differences.slice(0, SHOWN).map((item) => {
        const alarm = item.before ?? item.after;
        return [h("b", { class: `kind ${item.kind}` }, h("span", { "aria-hidden": "true" }, `${SIGNS[item.kind]} `), item.kind), subject(alarm), name(alarm.part || "–"), bars(item, found), name(item.text)];
      })),
      more > 0 ? h("p.quiet", null, `and ${more} more`) : null] : h("p.good", null, "● No alarm under either of them."),
    h("h3", null, "To keep it"),
    h("p", null, "Write into the settings file of the service; it is read again by itself. A variable such as ", h("code", null, "ODDNODE_DETECTION__Z_THRESHOLD"), " wins over the file."),
    h("pre", { tabindex: "0", "aria-label": "Lines of the settings file" }, run.advice.join("\n")),
    "budget.false_alarms_per_month" in run.changes ? h("p", null, "Then learn thresholds for the budget: ", h("code", null, "oddnode calibrate --hours 336"), ".") : null,
  ];
}

function result(run, answer) {
  const key = run ? `${run.number} ${run.state}` : "";
  $("s-result").hidden = !run || run.state === "running";
  if (!run || run.state === "running" || told === key) return;
  const isFresh = told !== "";
  told = key;
  const head = h("p.quiet", null, "tried by ", name(run.by), ": ", tried(run), `on ${clock(run.start)} to ${clock(run.end, run.start)}`);
  if (run.state === "done") fill("result", head, compared(run, answer));
  else fill("result", head, h("p.warn", null, run.state === "failed" ? name(run.problem) : "It was called off."));
  if (isFresh) say(run.state === "done" ? `The try is done: ${summary(run.comparison)}` : `The try has ${run.state}`);
}

async function poll() {
  if (isPolling) return;
  isPolling = true;
  await pause(POLL_MS);
  isPolling = false;
  refresh();
}

/** What is tried ends now, whatever time the other pages show. */
function ends() {
  const at = pinned();
  $("ends").textContent = at === null ? "" : `The hours end at the newest evaluation, not at ${clock(at)}, to which the other pages are turned back.`;
  $("ends").hidden = at === null;
}

async function show() {
  try {
    const answer = await get("v1/what-if");
    if (isLost) problem("");
    isLost = false;
    form(answer);
    const run = answer.run;
    $("try").disabled = !answer.is_on || run?.state === "running";
    underWay(run);
    result(run, answer);
    if (run?.state === "running") {
      told ||= "begun";
      poll();
    }
  } catch (error) {
    isLost = true;
    problem(error.message);
    throw error;
  }
}

ends();
follow(refresh);
