// What operators do: each button asks what it needs in a dialog, sends it, and says what came of it.

import { change, download, inPath, pinned } from "./api.js";
import { h, problem, say } from "./dom.js";

const NAME = "oddnode-by";

const LENGTHS = [["30 min", 1800], ["2 h", 7200], ["8 h", 28800], ["1 day", 86400], ["7 days", 604800]];

function field(label, input) {
  const id = `field-${label.replaceAll(/\W+/g, "-")}`;
  input.id = id;
  return [h("label", { for: id }, label), input];
}

const text = (props) => h("input", { type: "text", autocomplete: "off", ...props });

/** Show a dialog; `send` gets the values of its fields and its refusal is shown in it. */
function ask(title, hint, fields, button, send) {
  const by = text({ maxlength: "64", value: sessionStorage.getItem(NAME) ?? "", placeholder: "with tokens: the token's name" });
  const refused = h("p.warn", { role: "alert", hidden: true });
  const submit = h("button.main", { type: "submit" }, button);
  const dialog = h("dialog", { "aria-labelledby": "ask-title" },
    h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        sessionStorage.setItem(NAME, by.value.trim());
        try {
          say(await send(by.value.trim()));
          dialog.close();
        } catch (error) {
          refused.textContent = error.message;
          refused.hidden = false;
        }
        submit.disabled = false;
      },
    },
    h("h2", { id: "ask-title" }, title),
    h("p.quiet", null, hint),
    fields, field("Who", by), refused,
    h("div.buttons", null, submit, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  const before = document.activeElement?.dataset?.key;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before) [...document.querySelectorAll("[data-key]")].find((item) => item.dataset.key === before)?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** Buttons for one incident of a node, as far as they make sense for it, and then `files`; `after`, a steady refresh, follows each change. */
export function buttons({ node, incident, acknowledged, dismissed, muted, isOpen, after, files = [] }) {
  const done = (told) => {
    after();
    return told;
  };
  const button = (label, onclick) => h("button", { type: "button", "data-key": `${label} ${node}`, onclick }, label);
  if (pinned() !== null) {
    return [h("p.quiet", null, "Shown as it was: what operators do is done at the newest evaluation."), files.length ? h("div.buttons", null, files) : null];
  }
  const found = [];
  if (incident && !acknowledged) {
    found.push(button(dismissed ? "Take back" : "Acknowledge", () => {
      const note = text({ maxlength: "500", placeholder: "optional: ticket, plan" });
      ask(`${dismissed ? "Take the dismissal back" : "Acknowledge"}: ${node}`, "A fault that somebody looks after. It stays in the list.", field("Note", note),
        "Acknowledge", async (by) => {
          await change("POST", `v1/incidents/${inPath(incident)}/acknowledge`, { by, note: note.value.trim() });
          return done(`${node} acknowledged`);
        });
    }));
  }
  if (incident && !dismissed) {
    found.push(button("Dismiss", () => {
      const reason = text({ maxlength: "500", required: true });
      ask(`Dismiss: ${node}`, "A false alarm. It leaves the list until there is evidence of another kind, and is kept as a label.",
        field("Reason", reason), "Dismiss", async (by) => {
          await change("POST", `v1/incidents/${inPath(incident)}/dismiss`, { by, reason: reason.value.trim() });
          return done(`${node} dismissed`);
        });
    }));
  }
  if (!muted) {
    found.push(button("Mute", () => {
      const length = h("select", null, LENGTHS.map(([label, value]) => h("option", { value: String(value), selected: value === 7200 }, label)));
      const reason = text({ maxlength: "500", required: true });
      ask(`Mute: ${node}`, "It stays in the list and calls nobody until then.", [field("For", length), field("Reason", reason)],
        "Mute", async (by) => {
          await change("POST", "v1/mutes", { node, for_s: Number(length.value), reason: reason.value.trim(), by });
          return done(`${node} muted`);
        });
    }));
  } else if (muted.id) {
    found.push(button("Unmute", () => {
      ask(`Unmute: ${node}`, `Muted by ${muted.by}: ${muted.reason}`, [], "Unmute", async (by) => {
        await change("DELETE", `v1/mutes/${encodeURIComponent(muted.id)}?by=${encodeURIComponent(by)}`);
        return done(`${node} not muted any more`);
      });
    }));
  }
  if (isOpen) {
    found.push(button("Repaired", () => {
      const note = text({ maxlength: "500", placeholder: "what was done" });
      ask(`Repaired: ${node}`, "Clears the incident and judges the node afresh. What is still faulty is named again.", field("Note", note),
        "Repaired", async (by) => {
          await change("POST", `v1/nodes/${inPath(node)}/repaired`, { by, note: note.value.trim() });
          return done(`${node} set healthy`);
        });
    }));
  }
  return h("div.buttons", null, found, files);
}

const making = new Set();

/** One click for a file that takes a while to make. The head that holds the button is drawn anew meanwhile. */
function fileButton(kind, incident, title, fetched) {
  const key = `${kind} ${incident}`;
  const label = () => (making.has(key) ? `${kind} …` : kind);
  return h("button", { type: "button", "data-key": key, disabled: making.has(key), title,
    onclick: async () => {
      const shown = () => {
        for (const one of document.querySelectorAll("[data-key]")) {
          if (one.dataset.key === key) Object.assign(one, { disabled: making.has(key), textContent: label() });
        }
      };
      making.add(key);
      shown();
      try {
        say(`${await fetched()} downloaded`);
        problem("");
      } catch (error) {
        say(`not made: ${error.message}`);
        problem(`${kind}: ${error.message}`);
      }
      making.delete(key);
      shown();
    } }, label());
}

/** The case of an incident; by the name that was last given. */
export const exportButton = (incident) => fileButton("Export", incident, "Telemetry and labels as a recorded incident, for oddnode replay",
  () => download(`v1/incidents/${inPath(incident)}/export`, { by: sessionStorage.getItem(NAME) ?? "" }));

/** Its story with charts as one file. */
export const reportButton = (incident) => fileButton("Report", incident, "Its story with charts as one HTML file, for the vendor or the post-mortem",
  () => download(`v1/incidents/${inPath(incident)}/report`));
