// The source browser: per source its documents, their state and what reading them gave, and the files left out.

import { request, signOutButton } from "./api.js";
import { ago, announce, byId, count, documentAddress, el, icon, problem, themeButton } from "./ui.js";

const PAGE = 200;
const shown = [];

const path = (name) => `/v1/sources/${encodeURIComponent(name)}`;

function status(row) {
  const text = row.status ?? "";
  const labels = row.labels.filter((label) => label !== text);
  const tags = [text, ...labels].filter(Boolean).map((label) => el("span", { class: `tag${row.current && !/^amended/.test(label) ? "" : " tag-warn"}`, dir: "auto" }, label));
  if (!row.current && !tags.length) tags.push(el("span", { class: "tag tag-warn" }, "not current"));
  return el("td", {}, tags.length ? el("span", { class: "tags" }, tags) : "");
}

function line(row) {
  const words = [row.document, row.title, ...row.labels, ...Object.values(row.metadata), row.current ? "current" : "not current"].join(" ").toLowerCase();
  const node = el(
    "tr",
    { class: row.current ? null : "not-current" },
    el(
      "th",
      { scope: "row" },
      el("a", { href: documentAddress(row.document), dir: "auto" }, row.title || row.document),
      el("div", { class: "dim small" }, [row.document, row.format, row.pages > 0 && count(row.pages, "page")].filter(Boolean).join(" · ")),
      row.warnings?.length > 0 && el("ul", { class: "warnings" }, row.warnings.map((text) => el("li", { dir: "auto" }, icon("warning"), " ", text))),
    ),
    status(row),
    el("td", { class: "version", dir: "auto" }, row.version ?? ""),
    el("td", { dir: "auto" }, row.metadata.effective ?? row.metadata.date ?? row.metadata.signed ?? ""),
    el("td", { class: "number" }, String(row.sections)),
  );
  return { node, words };
}

class Source {
  constructor(info) {
    this.info = info;
    this.lines = [];
    this.next = 0;
    this.total = 0;
    this.body = el("tbody");
    this.none = el("p", { class: "dim center", hidden: true }, "No document fits the filter.");
    this.more = el("button", { class: "button small", type: "button", hidden: true, onclick: () => this.load() }, "More documents");
    this.notes = el("div");
    this.figures = el("p", { class: "dim small" });
    const id = `source-${info.name}`;
    const head = ["Document", "Status", "Version", "In force", "Sections"].map((text) => el("th", { scope: "col", class: text === "Sections" ? "number" : null }, text));
    this.table = el("div", { class: "wide" }, el("table", { class: "documents", "aria-labelledby": id }, el("thead", {}, el("tr", {}, head)), this.body), this.none);
    this.element = el(
      "section",
      { class: "source", id: info.name, "aria-labelledby": id },
      el("div", { class: "source-head" }, el("h2", { id }, info.name), el("p", { dir: "auto" }, info.description), this.figures),
      this.table,
      el("p", { class: "center" }, this.more),
      this.notes,
    );
    this.describe();
  }

  describe() {
    const { info } = this;
    const parts = [count(info.documents, "document"), info.kind, info.private === false ? "public" : "private"];
    if (info.synced) parts.push(`last read ${ago(info.synced)}`);
    if (info.trust) parts.push(info.trust === "open" ? "many can write here" : "reviewed");
    for (const [name, values] of Object.entries(info.filters ?? {})) parts.push(`filter ${name} (${count(values.length, "value")})`);
    this.figures.textContent = parts.join(" · ");
  }

  /** All of its documents, so that a filter does not miss those that were not shown yet. */
  async loadAll() {
    while (this.next < this.total) {
      const before = this.next;
      await this.load();
      if (this.next === before) return; // something went wrong, and it is said
    }
  }

  async load() {
    this.more.disabled = true;
    try {
      const found = await request(`${path(this.info.name)}/documents?all_versions=true&start=${this.next}&limit=${PAGE}`);
      this.total = found.total;
      this.next += found.documents.length;
      for (const row of found.documents) {
        const made = line(row);
        this.lines.push(made);
        this.body.append(made.node);
      }
      if (!this.total) this.table.replaceChildren(el("p", { class: "dim center" }, "Nothing was read from here yet. Run citehound index."));
      this.more.hidden = this.next >= this.total || !found.documents.length;
      this.more.disabled = false;
      filter();
    } catch (error) {
      this.table.replaceChildren(problem(error, { retry: () => location.reload() }));
    }
  }

  async report() {
    let found;
    try {
      found = await request(`${path(this.info.name)}/report`);
    } catch (error) {
      this.notes.replaceChildren(problem(error));
      return;
    }
    const of = (state) => found.files.filter((file) => file.status === state);
    const parts = [];
    for (const [state, title] of [["failed", "could not be read"], ["skipped", "left out"]]) {
      const files = of(state);
      if (!files.length) continue;
      const items = files.map((file) => el("li", {}, el("strong", { dir: "auto" }, file.path), el("div", { class: state === "failed" ? "bad" : "dim", dir: "auto" }, file.reason ?? "")));
      parts.push(el("details", { class: `problems problems-${state}`, open: state === "failed" }, el("summary", {}, `${count(files.length, "file")} ${title}`), el("ul", {}, items)));
    }
    this.notes.replaceChildren(...parts);
  }
}

function filter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let fitting = 0;
  const found = new Map();
  for (const source of shown) {
    let some = 0;
    for (const { node, words: text } of source.lines) {
      node.hidden = !words.every((word) => text.includes(word));
      if (!node.hidden) some += 1;
    }
    source.none.hidden = some > 0 || !source.lines.length;
    found.set(source, some);
    fitting += some;
  }
  for (const [source, some] of found) source.element.hidden = words.length > 0 && fitting > 0 && !some;
  return fitting;
}

async function load() {
  const list = byId("list");
  let sources;
  try {
    ({ sources } = await request("/v1/sources"));
  } catch (error) {
    list.replaceChildren(problem(error, { retry: load }));
    return;
  }
  shown.splice(0, shown.length, ...sources.map((info) => new Source(info)));
  list.replaceChildren(...(shown.length ? shown.map((source) => source.element) : [el("p", {}, "There is no source yet. Name one in citehound.toml, then run citehound index.")]));
  await Promise.all(shown.flatMap((source) => [source.load(), source.report()]));
  const named = shown.find((source) => `#${encodeURIComponent(source.info.name)}` === location.hash);
  named?.element.scrollIntoView();
}

themeButton();
signOutButton();
let timer = null;
byId("filter").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (byId("filter").value.trim()) await Promise.all(shown.map((source) => source.loadAll()));
    announce(count(filter(), "document"));
  }, 120);
});
load();
