// Elements from plain values: text is only ever set as text, so no label of a machine becomes markup.

/** Make an element: h("a.big", {href: "x", onclick: f}, child, [children]); null children are left out. */
export function h(what, props, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (id) => document.getElementById(id);

let pressed = null;
const waiting = new Map();

// what is pressed must still be there when it is let go, or the click is lost
addEventListener("pointerdown", (event) => { pressed = event.button === 0 ? event.target : null; }, true);
for (const kind of ["pointerup", "pointercancel"]) {
  addEventListener(kind, () => setTimeout(() => {
    pressed = null;
    const late = [...waiting];
    waiting.clear();
    for (const [id, children] of late) fill(id, ...children);
  }), true);
}

/** Put children in place of those that are there; the focus stays where it was, by data-key. */
export function fill(id, ...children) {
  const parent = $(id);
  if (pressed && parent.contains(pressed)) {
    waiting.set(id, children);
    return;
  }
  waiting.delete(id);
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const open = new Set([...parent.querySelectorAll("details[open]")].map((item) => item.dataset.key));
  parent.replaceChildren(...children.flat(9).filter(Boolean));
  for (const item of parent.querySelectorAll("details")) if (open.has(item.dataset.key)) item.open = true;
  if (key !== undefined) {
    [...parent.querySelectorAll("[data-key]")].find((item) => item.dataset.key === key)?.focus({ preventScroll: true });
  }
}

/** A name from outside: isolated, so that its writing direction leaves its surroundings alone. */
export const name = (text) => h("bdi", null, text);

export function table(caption, heads, rows) {
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption },
    h("table", null,
      h("caption.unseen", null, caption),
      h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, k) => h("td", { "data-head": heads[k] }, cell)))))));
}

export function say(text) {
  $("said").textContent = text;
}

export function problem(text) {
  $("problem").replaceChildren(...(text ? [h("p.warn", null, text)] : []));
}
