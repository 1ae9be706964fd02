// What every page uses: elements from text, icons, figures in words, the theme, announcements. No page's own state.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  verified: ["M12 3l7 3v5c0 4.6-2.9 8.3-7 10-4.1-1.7-7-5.4-7-10V6z", "M8.7 12.2l2.3 2.3 4.4-4.8"],
  unverified: ["M12 3.5l9.5 16.5h-19z", "M12 10v4.5", "M12 17.4v.1"],
  uncited: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z", "M9.6 9.4a2.5 2.5 0 1 1 3.6 2.4c-.8.4-1.2 1-1.2 1.9", "M12 16.9v.1"],
  pending: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z", "M12 7.5V12l3 2"],
  search: ["M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M15.4 15.4L20 20"],
  read: ["M5 4.5h9.5L19 9v10.5H5z", "M14 4.5V9.5h5", "M8 13h8", "M8 16.2h5"],
  inside: ["M5 4.5h14v15H5z", "M11 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z", "M13.3 14.3l2.7 2.7"],
  list: ["M8.5 6.5H20", "M8.5 12H20", "M8.5 17.5H20", "M4.5 6.5v.1", "M4.5 12v.1", "M4.5 17.5v.1"],
  tool: ["M4 12h4l2.5-6 3.5 12 2.5-6H20"],
  decision: ["M12 4v6", "M12 10L6 16v4", "M12 10l6 6v4"],
  warning: ["M12 3.5l9.5 16.5h-19z", "M12 10v4.5", "M12 17.4v.1"],
  missing: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z", "M5.7 5.7l12.6 12.6"],
  up: ["M7 10.5v9H4v-9z", "M7 11l4-7.5c1.6 0 2.4 1.2 2 2.8L12.3 9.5H18.5c1.2 0 2 1 1.7 2.2l-1.5 6.3c-.2.9-.9 1.5-1.8 1.5H7"],
  down: ["M17 13.5v-9h3v9z", "M17 13l-4 7.5c-1.6 0-2.4-1.2-2-2.8l.7-3.2H5.5c-1.2 0-2-1-1.7-2.2L5.3 6c.2-.9.9-1.5 1.8-1.5H17"],
  copy: ["M8.5 8.5h11v11h-11z", "M15.5 8.5v-4h-11v11h4"],
  print: ["M7 9V4h10v5", "M7 17H4V9h16v8h-3", "M7 14h10v6H7z"],
  link: ["M10 14a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7l-1 1", "M14 10a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1-1"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  stop: ["M7 7h10v10H7z"],
  send: ["M12 19.5V5", "M5.5 11.5L12 5l6.5 6.5"],
  history: ["M4 12a8 8 0 1 0 2.5-5.8", "M4 4.5v4h4", "M12 8v4.5l3 1.8"],
  plus: ["M12 5v14", "M5 12h14"],
  out: ["M13 5h6v6", "M19 5l-9 9", "M11 6H5v13h13v-6"],
  sun: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2.5v2.5", "M12 19v2.5", "M2.5 12H5", "M19 12h2.5", "M5.3 5.3L7 7", "M17 17l1.7 1.7", "M5.3 18.7L7 17", "M17 7l1.7-1.7"],
  moon: ["M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z"],
  options: ["M4 8h9", "M17 8h3", "M15 6v4", "M4 16h3", "M11 16h9", "M9 14v4"],
};

/** A small drawing for the eye only; what it means also stands in words. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("focusable", "false");
  for (const d of ICONS[name]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

const LOCAL = /^(?:#|\/(?![/\\]))/;

/**
 * An element. `props` are attributes, `onclick` and the like are listeners; null and false leave one out. Children are
 * nodes or text, and text stays text: nothing here ever parses markup. An address must be one of this server.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if ((name === "href" || name === "src") && !LOCAL.test(value)) throw new Error(`not an address of this server: ${value}`);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);
export const hidden = (text) => el("span", { class: "sr-only" }, text);

/** "1 search", "3 searches". */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes} min ${Math.round(seconds - 60 * minutes)} s`;
}

/** null is a price that nobody knows. */
export function money(dollars) {
  if (dollars === null || dollars === undefined) return "price unknown";
  if (dollars === 0) return "$0";
  return dollars < 0.1 ? `$${dollars.toFixed(4)}` : `$${dollars.toFixed(2)}`;
}

export function ago(seconds) {
  const past = Date.now() / 1000 - seconds;
  if (past < 60) return "just now";
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return new Date(seconds * 1000).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

/** What joins the parts of a quote that leaves something out. */
export const ELLIPSIS = /\s*(?:\[(?:…|\.{3})\]|…|\.{3,})\s*/u;

/** The page's own address of a document, at a citation or a section. */
export function documentAddress(document_, { section, start, end, quote, page, run } = {}) {
  const path = document_.split("/").map(encodeURIComponent).join("/");
  const query = new URLSearchParams();
  if (section) query.set("section", section);
  if (start !== null && start !== undefined && end !== null && end !== undefined) {
    query.set("start", start);
    query.set("end", end);
  }
  if (page) query.set("page", page);
  if (quote && ELLIPSIS.test(quote)) query.set("quote", quote);
  if (run) query.set("run", run);
  const text = query.toString();
  return `/doc/${path}${text ? `?${text}` : ""}`;
}

let said = 0;
/** Tells people who listen instead of looking. */
export function announce(text) {
  const live = byId("live");
  if (!live) return;
  said += 1;
  live.textContent = said % 2 ? text : `${text}\u00a0`; // the same words twice are said twice
}

const dark = matchMedia("(prefers-color-scheme: dark)");
export const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

/** Wires the button with the id `theme`, which each page has in its header. */
export function themeButton() {
  const button = byId("theme");
  const show = () => {
    button.replaceChildren(icon(isDark() ? "sun" : "moon"), hidden(isDark() ? "Light theme" : "Dark theme"));
  };
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("citehound-theme", next);
    } catch {
      // it holds for this page
    }
    show();
    dispatchEvent(new Event("citehound-theme"));
  });
  dark.addEventListener("change", show);
  show();
}

/** A box for what went wrong, with what to do next. */
export function problem(error, { retry, label = "Try again" } = {}) {
  return el(
    "div",
    { class: "banner banner-bad", role: "alert" },
    icon("warning"),
    el("div", {}, el("p", {}, error.message), retry && el("button", { class: "button small", type: "button", onclick: retry }, label)),
  );
}
