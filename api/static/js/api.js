// Talks to the REST interface: bearer token when one is asked for, errors as texts, events as they come.

import { $, h } from "./dom.js";

export const ROOT = document.documentElement.dataset.root;
export const SUBJECT = document.documentElement.dataset.subject;

const TOKEN = "oddnode-token";
const SILENT_MS = 30_000;
const POLL_MS = 15_000;
const RETRY_MS = 4000;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const kept = () => sessionStorage.getItem(TOKEN) ?? "";
const headers = (more = {}) => (kept() ? { ...more, Authorization: `Bearer ${kept()}` } : more);

let asking = null;

/** Ask for a token, once however many requests were refused. */
function askToken(why) {
  asking ??= new Promise((done) => {
    const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true, spellcheck: "false" });
    const dialog = h("dialog", { "aria-labelledby": "token-title" },
      h("form", { onsubmit: (event) => { event.preventDefault(); sessionStorage.setItem(TOKEN, field.value.trim()); dialog.close(); } },
        h("h2", { id: "token-title" }, "A token is needed"),
        h("p", null, why),
        h("label", { for: "token" }, "Token"), field,
        h("p.quiet", null, "It is kept in this tab only. Made by: oddnode token NAME --scope operate"),
        h("div.buttons", null, h("button.main", { type: "submit" }, "Use it"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => { dialog.remove(); asking = null; done(); });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}

async function refusal(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the service answered ${response.status}`;
  }
}

/** Send a request until it is not for want of a token that it fails. */
async function send(path, options) {
  for (;;) {
    const used = kept();
    const response = await fetch(ROOT + path, { ...options, headers: headers(options.headers) });
    if (response.status !== 401) return response;
    const why = await refusal(response);
    if (kept() === used) {
      if (used) sessionStorage.removeItem(TOKEN);
      await askToken(why);
    }
  }
}

const AS_OF = /^v1\/(suspects|incidents|nodes|groups|series|earlier|neighbours|fleet|explain)\b/;
const fromLink = Number(new URLSearchParams(location.search).get("at"));
let shownAt = Number.isFinite(fromLink) && fromLink > 0 ? fromLink : null;

/** The time of a recording that is shown, null for now. */
export const pinned = () => shownAt;

/** Show a recording as of a time; the address of the page and its links say so as well. */
export function pin(at) {
  shownAt = at;
  const query = new URLSearchParams(location.search);
  if (at === null) query.delete("at");
  else query.set("at", String(at));
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  links();
}

/** The links of the head lead to the same time. */
function links() {
  for (const link of document.querySelectorAll(".top a[href]")) link.search = shownAt === null ? "" : `?at=${shownAt}`;
}
links();

const asOf = (path) => (shownAt !== null && AS_OF.test(path) ? `${path}${path.includes("?") ? "&" : "?"}at=${shownAt}` : path);

/** GET as JSON, as of the time that is shown. While an evaluation is under way it asks again, a few times. */
export async function get(path, tries = 4) {
  return ask(asOf(path), tries);
}

/** Whether there is an answer as of now, whatever time is shown. */
export async function isThereNow(path) {
  try {
    return await ask(path, 4);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

async function ask(path, tries) {
  const response = await send(path, { headers: { Accept: "application/json" } });
  if (response.ok) return response.json();
  const why = await refusal(response);
  if (response.status === 503 && response.headers.get("retry-after") === "2" && tries > 1) {
    await pause(2000);
    return ask(path, tries - 1);
  }
  throw new ApiError(response.status, why);
}

/** A change: JSON, and the answer as JSON. */
export async function change(method, path, body) {
  const response = await send(path, {
    method,
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!response.ok) throw new ApiError(response.status, await refusal(response));
  return response.json();
}

/** A file that has to be made: sent for by POST when there is a body, and handed to the browser's downloads. */
export async function download(path, body) {
  const options = body === undefined ? { headers: {} } : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await send(body === undefined ? asOf(path) : path, options);
  if (!response.ok) throw new ApiError(response.status, await refusal(response));
  const name = /filename="([\w.-]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? "incident.tar";
  const link = h("a", { href: URL.createObjectURL(await response.blob()), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return name;
}

export const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

/** As a name goes into a path: the routes take slashes, and everything else is encoded. */
export const inPath = (text) => text.split("/").map(encodeURIComponent).join("/");

const asShown = () => (shownAt === null ? "" : `?at=${shownAt}`);
export const nodePage = (node) => `${ROOT}nodes/${encodeURIComponent(node)}${asShown()}`;
export const incidentPage = (id) => `${ROOT}incidents/${encodeURIComponent(id)}${asShown()}`;

function line(kind, text) {
  const place = $("line");
  place.className = `line ${kind}`;
  if (place.textContent !== text) place.textContent = text;
}

/** Make of a refresh one that never runs twice at once, and that tries again when it has failed. */
export function steady(changed) {
  let isRunning = false;
  let again = false;
  return async () => {
    again = true;
    if (isRunning) return;
    isRunning = true;
    while (again) {
      again = false;
      try {
        await changed();
      } catch (error) {
        if (error instanceof ApiError && error.status < 500 && error.status !== 429) continue;
        await pause(RETRY_MS);
        again = true;
      }
    }
    isRunning = false;
  };
}

/**
 * Call `refresh`, a steady one, whenever there is something new, for ever; a service that is gone is waited for.
 * A tab that is not looked at holds no line: browsers allow six of them for all tabs together.
 */
export async function follow(refresh, told = () => {}) {
  let wait = 500;
  for (;;) {
    if (document.hidden) {
      line("off", "paused");
      await new Promise((done) => { document.addEventListener("visibilitychange", done, { once: true }); });
      continue;
    }
    try {
      await stream(refresh, told);
      wait = 500;
    } catch (error) {
      if (error instanceof ApiError && error.status !== 404) {
        line("poor", "live line refused, asking every 15 s");
        refresh();
        await pause(POLL_MS);
      }
    }
    if (asking) {
      line("poor", "a token is needed");
      await asking;
      continue;
    }
    if (!document.hidden) line("lost", "no answer from the service, trying again");
    await pause(wait);
    wait = Math.min(wait * 2, 8000);
  }
}

async function stream(refresh, told) {
  const ends = new AbortController();
  const hidden = () => document.hidden && ends.abort();
  let watch = setTimeout(() => ends.abort(), SILENT_MS);
  document.addEventListener("visibilitychange", hidden);
  try {
    const response = await send("v1/events", { headers: { Accept: "text/event-stream" }, signal: ends.signal });
    if (!response.ok) throw new ApiError(response.status, await refusal(response));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let seen = null;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => ends.abort(), SILENT_MS);
      text += value;
      const pieces = text.split("\n\n");
      text = pieces.pop();
      for (const piece of pieces) {
        const data = piece.split("\n").find((row) => row.startsWith("data: "));
        if (!data) continue;
        const state = JSON.parse(data.slice(6));
        line(state.is_ready ? "live" : "poor", state.is_ready ? "live" : "live, not ready");
        told(state);
        if (state.change !== seen) {
          seen = state.change;
          refresh();
        }
      }
    }
  } finally {
    clearTimeout(watch);
    document.removeEventListener("visibilitychange", hidden);
    ends.abort();
  }
}
