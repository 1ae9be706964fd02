// A document as people read it: its text with sections, a quote marked by its offsets, its state, its original pages.

import { idPath, request } from "./api.js";
import { ELLIPSIS, documentAddress, el, icon } from "./ui.js";

const PAGE = 40000; // characters of one request
const WHOLE = 200000; // a document up to this size is shown whole at once

/** Text of the server with its offsets, which count code points, where JavaScript counts UTF-16 units. */
class Text {
  constructor(text, start) {
    this.start = start;
    this.points = Array.from(text);
    this.end = start + this.points.length;
  }

  slice(from, to) {
    return this.points.slice(Math.max(0, from - this.start), Math.max(0, to - this.start)).join("");
  }
}

const bare = (text) => text.normalize("NFKC").toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");

/** Does the quote still stand at its place? Only letters and digits count, so that this is never stricter than the check. */
function stands(text, { start, end, quote }) {
  const here = bare(text.slice(start, end));
  let at = 0;
  for (const part of quote.split(ELLIPSIS).map(bare)) {
    const found = here.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return true;
}

/** Where the parts of a quote stand between `start` and `end`: a quote with … has several. */
function spans(text, { start, end, quote }) {
  const whole = [{ start, end }];
  if (!quote || !ELLIPSIS.test(quote)) return whole;
  const found = [];
  let at = 0;
  const inside = Array.from(text.slice(start, end));
  const flat = inside.join("");
  for (const part of quote.split(ELLIPSIS).filter(Boolean)) {
    const unit = flat.indexOf(part, at);
    if (unit < 0) return whole;
    const begin = start + Array.from(flat.slice(0, unit)).length;
    found.push({ start: begin, end: begin + Array.from(part).length });
    at = unit + part.length;
  }
  return found.length ? found : whole;
}

function blocks(text, sections) {
  const cuts = new Set([text.start, text.end]);
  for (let i = 0; i + 1 < text.points.length; i += 1) {
    if (text.points[i] === "\n" && text.points[i + 1] === "\n") cuts.add(text.start + i + 2);
  }
  for (const section of sections) if (section.start > text.start && section.start < text.end) cuts.add(section.start);
  const places = [...cuts].sort((a, b) => a - b);
  return places.slice(0, -1).map((from, i) => ({ from, to: places[i + 1] }));
}

function pieces(text, from, to, marks, count) {
  const out = [];
  let at = from;
  for (const mark of marks) {
    if (mark.end <= at || mark.start >= to) continue;
    const begin = Math.max(mark.start, at);
    const end = Math.min(mark.end, to);
    if (begin > at) out.push(text.slice(at, begin));
    out.push(el("mark", { class: "quoted", id: count.marks === 0 ? `${count.prefix}quote` : null, tabindex: count.marks === 0 ? "-1" : null }, text.slice(begin, end)));
    count.marks += 1;
    at = end;
  }
  if (at < to) out.push(text.slice(at, to));
  return out;
}

/** A block of lines with cells. What joins the cells stays in the text, so that a quote across cells stays one. */
function tableBlock(text, block, marks, count) {
  const rows = [];
  let line = block.from;
  const points = text.slice(block.from, block.to);
  for (const content of points.split("\n")) {
    const length = Array.from(content).length;
    if (content.trim()) {
      const cells = [];
      let at = line;
      const parts = content.split(" | ");
      parts.forEach((part, i) => {
        const size = Array.from(part).length;
        cells.push(el("span", { class: size > 160 ? "doc-cell long" : "doc-cell" }, pieces(text, at, at + size, marks, count)));
        at += size;
        if (i + 1 < parts.length) {
          cells.push(el("span", { class: "doc-bar" }, pieces(text, at, at + 3, marks, count)));
          at += 3;
        }
      });
      rows.push(el("span", { class: "doc-row" }, cells));
    }
    line += length + 1;
  }
  return el("div", { class: "doc-table", dir: "auto" }, el("div", { class: "doc-rows" }, rows));
}

function isTable(content) {
  const lines = content.split("\n").filter((l) => l.trim());
  return lines.length > 1 && lines.every((l) => l.includes(" | "));
}

function label(text) {
  const bad = /superseded|withdrawn|draft|unreleased|not current|expired|not yet/i.test(text);
  return el("span", { class: `tag ${bad ? "tag-warn" : ""}`, dir: "auto" }, text);
}

/**
 * Loads and shows a document. `at` has `document`, and where there is one `section`, `start`, `end`, `quote`, `page`,
 * `citation`. Returns {title, ready}: `ready` when it stands on the page.
 */
export class DocumentView {
  constructor(root, { prefix = "", open = null, heading = "h2" } = {}) {
    this.root = root;
    this.prefix = prefix;
    this.open = open;
    this.heading = heading;
    this.turn = 0;
  }

  async show(at) {
    const turn = ++this.turn;
    this.root.setAttribute("aria-busy", "true");
    try {
      const about = await this.page(at.document, null, 0, 1); // one character: what is known of it, and its outline
      const section = at.section && (at.start ?? null) === null ? await this.page(at.document, at.section, 0, 1) : null;
      const from = at.start ?? section?.start ?? 0;
      const whole = about.total_chars <= WHOLE;
      const passages = [];
      let next = whole ? 0 : Math.max(0, from - PAGE / 4);
      while (next !== null) {
        const passage = await this.page(at.document, null, next);
        if (turn !== this.turn) return null;
        passages.push(passage);
        next = passage.next_start;
        if (!whole && passage.end > from + PAGE / 2) break;
      }
      this.at = at;
      this.sectionPage = section?.page ?? null;
      this.section = section ? (about.outline.find((s) => s.start === section.start) ?? null) : null;
      this.text = new Text(passages.map((p) => p.text).join(""), passages[0].start);
      this.info = about;
      this.sections = about.outline.slice().sort((a, b) => a.start - b.start);
      this.draw();
      return { title: this.title, document: this.info.document };
    } finally {
      if (turn === this.turn) this.root.removeAttribute("aria-busy");
    }
  }

  page(document_, section, start, limit = PAGE) {
    const query = new URLSearchParams({ start, limit });
    if (section) query.set("section", section);
    return request(`/v1/documents/${idPath(document_)}?${query}`);
  }

  get title() {
    return this.info.metadata.title ?? this.info.title.split(" > ")[0] ?? this.info.document;
  }

  draw() {
    const count = { marks: 0, prefix: this.prefix };
    const { citation } = this.at;
    const quote = citation?.quote ?? this.at.quote ?? null;
    const cited = { start: this.at.start ?? null, end: this.at.end ?? null, quote };
    const known = cited.start !== null && cited.end !== null && cited.end > cited.start;
    this.changed = known && quote !== null && !stands(this.text, cited);
    const marks = known && !this.changed ? spans(this.text, cited) : [];
    const starts = new Map();
    for (const section of this.sections) if (!starts.has(section.start)) starts.set(section.start, section);
    const body = el("div", { class: "doc-text", dir: "auto" });
    if (this.text.start > 0) body.append(this.more("Show what comes before", () => this.before()));
    for (const block of blocks(this.text, this.sections)) {
      const content = this.text.slice(block.from, block.to);
      if (!content.trim()) continue;
      const section = starts.get(block.from);
      const trimmed = content.replace(/\s+$/u, "");
      const to = block.from + Array.from(trimmed).length;
      const isHeading = section && !trimmed.includes("\n") && Array.from(trimmed).length <= 120 && !/[.;:。]$/u.test(trimmed);
      const node = isTable(trimmed)
        ? tableBlock(this.text, { from: block.from, to }, marks, count)
        : el(isHeading ? "h4" : "p", { class: isHeading ? `doc-heading level-${Math.min(section.level, 4)}` : null, dir: "auto" }, pieces(this.text, block.from, to, marks, count));
      if (section) {
        node.id = `${this.prefix}section-${section.section}`;
        node.setAttribute("tabindex", "-1");
      }
      body.append(node);
    }
    if (this.text.end < this.info.total_chars) body.append(this.more("Show more", () => this.after()));
    this.root.replaceChildren(this.head(count), this.outline(), this.pictures(), body);
    for (const table of body.querySelectorAll(".doc-table")) {
      if (table.scrollWidth <= table.clientWidth) continue; // what scrolls is to be reached with the keyboard
      for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "Wide table"]]) table.setAttribute(name, value);
    }
    this.marked = count.marks > 0;
  }

  more(text, action) {
    return el("p", {}, el("button", { class: "button small", type: "button", onclick: (event) => ((event.currentTarget.disabled = true), action()) }, text));
  }

  async after() {
    const passage = await this.page(this.at.document, null, this.text.end);
    this.text = new Text(this.text.points.join("") + passage.text, this.text.start);
    this.draw();
  }

  async before() {
    let next = Math.max(0, this.text.start - PAGE);
    let text = "";
    const start = next;
    while (next !== null && next < this.text.start) {
      const passage = await this.page(this.at.document, null, next);
      text += passage.text;
      next = passage.next_start;
    }
    const kept = new Text(text, start);
    this.text = new Text(kept.slice(start, this.text.start) + this.text.points.join(""), start);
    this.draw();
  }

  head(count) {
    const { metadata, labels, current, document } = this.info;
    const facts = [];
    const status = metadata.status;
    if (status) facts.push(label(status));
    for (const text of labels ?? []) if (text !== status) facts.push(this.linked(text));
    if (!current && !(labels ?? []).length) facts.push(label("not current"));
    for (const key of ["version", "effective", "supplier", "date", "owner"]) if (metadata[key]) facts.push(el("span", { class: "tag", dir: "auto" }, `${key} ${metadata[key]}`));
    const where = [this.at.section && `§${this.at.section}`, this.at.page && `page ${this.at.page}`].filter(Boolean).join(", ");
    const { citation } = this.at;
    let note = null;
    if (count.marks) {
      const bad = citation && citation.status !== "verified";
      note = el("p", { class: `doc-note${bad ? " bad" : ""}`, dir: "auto" }, icon(bad ? "unverified" : "verified"), bad ? `Not verified: ${citation.reason ?? "a check failed"}` : `The quoted words are marked${where ? `, ${where}` : ""}.`);
    } else if (this.changed) {
      note = el("p", { class: "doc-note bad" }, icon("unverified"), "The document has changed since: the quoted words no longer stand where they stood.");
    } else if (citation && citation.status !== "verified") {
      note = el("p", { class: "doc-note bad", dir: "auto" }, icon("unverified"), `Not verified: ${citation.reason ?? "the quote was not found"}`);
    }
    return el(
      "header",
      { class: "doc-head" },
      el(this.heading, { id: `${this.prefix}title`, tabindex: "-1", dir: "auto" }, this.title),
      el("p", { class: "doc-id" }, document),
      facts.length > 0 && el("p", { class: "tags" }, facts),
      !current && el("p", { class: "banner banner-warn slim" }, icon("warning"), el("span", {}, "This text is not current.")),
      note,
    );
  }

  /** "superseded by policies/x-v4" leads there. */
  linked(text) {
    const found = /^(superseded by|amended by|supersedes|amends) ([^\s,]+\/[^\s,]+)$/.exec(text);
    if (!found) return label(text);
    const address = documentAddress(found[2]);
    const follow = (event) => {
      if (!this.open) return;
      event.preventDefault();
      this.open({ document: found[2], address }, event.currentTarget);
    };
    return el("span", { class: "tag tag-warn" }, `${found[1]} `, el("a", { href: address, onclick: follow }, found[2]));
  }

  outline() {
    if (this.sections.length < 2) return "";
    const least = Math.min(...this.sections.map((s) => s.level));
    const items = this.sections.map((s, at) => {
      const before = this.sections.slice(0, at).findLast((other) => other.level <= s.level); // what it should follow
      const gap = before !== undefined && before.level === s.level && before.end < s.start - 2;
      const go = (event) => {
        event.preventDefault();
        this.goTo(s);
      };
      const name = s.title && !s.title.startsWith(s.section) && /^[\d.]+$/.test(s.section) ? `${s.section} ${s.title}` : s.title || s.section;
      return el("li", { class: `level-${Math.min(s.level - least, 3)}${gap ? " after-gap" : ""}` }, el("a", { href: `#${this.prefix}section-${encodeURIComponent(s.section)}`, onclick: go, dir: "auto" }, name));
    });
    const some = items.some((item) => item.classList.contains("after-gap"));
    const about = some ? `Outline, ${items.length} of many sections` : `Outline, ${items.length} sections`;
    const find = items.length > 25 && el("input", { type: "search", placeholder: "Find a section", "aria-label": "Find a section", oninput: (event) => narrow(event.target.value) });
    const none = el("p", { class: "dim", role: "status", hidden: true }, some ? "None of these; the others are in the text below." : "No section is called so.");
    const narrow = (text) => {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      for (const item of items) item.hidden = !words.every((word) => item.textContent.toLowerCase().includes(word));
      none.hidden = items.some((item) => !item.hidden);
    };
    return el("details", { class: "outline" }, el("summary", {}, about), el("nav", { "aria-label": "Outline" }, find, el("ol", {}, items), none));
  }

  async goTo(section) {
    const id = `${this.prefix}section-${section.section}`;
    if (!document.getElementById(id)) {
      if (await this.show({ document: this.info.document, section: section.section })) this.settle()?.focus({ preventScroll: true });
      return;
    }
    const target = document.getElementById(id);
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  }

  pictures() {
    const page = this.at.page ?? this.sectionPage;
    if (page === null) return "";
    const image = el("img", { alt: `Page ${page} of the original of ${this.title}`, src: `/v1/pages/${idPath(this.info.document)}?page=${page}` });
    const box = el("details", { class: "original", hidden: true }, el("summary", {}, `Picture of page ${page}, as the original has it`), el("figure", { class: "page-image" }, image));
    image.addEventListener("load", () => (box.hidden = false));
    return box;
  }

  /** Brings the quote, or the section that was asked for, into view. */
  settle() {
    const quote = document.getElementById(`${this.prefix}quote`);
    const section = this.section ? document.getElementById(`${this.prefix}section-${this.section.section}`) : null;
    const target = quote ?? section;
    if (!target) return null;
    const { top, bottom } = target.getBoundingClientRect();
    const seen = this.root.scrollHeight > this.root.clientHeight ? this.root.getBoundingClientRect().bottom : innerHeight;
    if (!quote || top < 0 || bottom > seen - 40) target.scrollIntoView({ block: quote ? "center" : "start" });
    return target;
  }
}

