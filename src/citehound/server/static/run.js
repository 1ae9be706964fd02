// One question on the page: its steps as they happen, its claims with their marks, what is missing. Fetches nothing.

import { count, documentAddress, duration, el, hidden, icon, money } from "./ui.js";
import { CELL, KIND, STATUS, STATUS_MEANS, VERDICT, VERDICT_MEANS, caveats, place, reasons, shortId, toolName } from "./words.js";

const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
const KINDS = { read_document: "read", find_in_document: "inside", list_documents: "list" };

/** A link to a document of the corpus; `open` shows it beside the answer where the page can. */
export function documentLink(at, { run, open, className = "", label = null }) {
  const address = documentAddress(at.document, { ...at, run });
  return el(
    "a",
    {
      href: address,
      class: className,
      title: label === null && shortId(at.document) === at.document ? null : at.document,
      onclick: (event) => {
        if (!open || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        open({ ...at, address }, event.currentTarget);
      },
    },
    label ?? place({ ...at, document: shortId(at.document) }),
  );
}

/** The steps of a run. Events come in one by one, live or from the record. */
export class Steps {
  constructor({ run, open }) {
    this.context = { run, open };
    this.list = el("ol", { class: "step-list" });
    this.summary = el("summary", {}, "Steps");
    this.element = el("details", { class: "steps", open: true }, this.summary, this.list);
    this.steps = new Map();
    this.drafts = new Map();
    this.current = new Map();
    this.counts = { steps: 0, searches: 0, reads: 0 };
    this.spent = { seconds: null, dollars: null };
  }

  /** Returns what a listener should be told of the event, or null. */
  apply(event) {
    const handler = this[`on_${event.type}`];
    const said = handler ? handler.call(this, event) : null;
    if (handler) this.summarise();
    return said ?? null;
  }

  summarise(usage = null) {
    const { steps, searches, reads } = usage ?? this.counts;
    const parts = [count(steps, "step"), count(searches, "search", "searches"), count(reads, "read")];
    if (usage) parts.push(duration(usage.seconds), money(usage.dollars));
    this.summary.replaceChildren(usage ? "How it was found: " : "So far: ", el("span", { class: "figures" }, parts.join(" · ")));
  }

  /** No more events come: what calls without an event of their own gave stands in the answer. */
  close({ usage, calls }) {
    for (const step of this.steps.values()) {
      for (const call of step.pending) {
        call.node.classList.remove("waiting");
        const done = calls.find((c) => c.step === step.number && c.agent === step.agent && c.tool === call.tool && c.returned.length);
        if (done) this.found(call, done.returned, "place");
      }
    }
    this.settle("main", usage?.seconds, usage?.dollars);
    if (usage) this.summarise(usage);
  }

  /** An agent's step is over: how long it took, and what it cost where no other agent was at work. */
  settle(agent, seconds, dollars) {
    const step = this.current.get(agent);
    if (!step || (seconds ?? null) === null || step.seconds === null) return;
    const spent = agent === "main" && (dollars ?? null) !== null && step.dollars !== null ? dollars - step.dollars : 0;
    step.time.textContent = [duration(Math.max(0, seconds - step.seconds)), spent > 0 && money(spent)].filter(Boolean).join(" · ");
  }

  step(number, agent) {
    const key = `${agent} ${number}`;
    if (!this.steps.has(key)) {
      const time = el("span", { class: "step-time" });
      const calls = el("ul", { class: "calls" });
      const name = number ? `Step ${number}` : "Before the first step";
      const head = el("div", { class: "step-head" }, el("span", { class: "step-name" }, name), agent !== "main" && el("span", { class: "tag", dir: "auto" }, agent), time);
      const step = { number, agent, time, calls, pending: [], seconds: null, dollars: null };
      this.steps.set(key, step);
      this.list.append(el("li", { class: "step" }, head, calls));
    }
    return this.steps.get(key);
  }

  line(event, kind, ...parts) {
    const outcome = el("span", { class: "outcome" });
    const body = el("div", { class: "call-body" }, ...parts, " ", outcome);
    const node = el("li", { class: "call" }, icon(kind), body);
    this.step(event.step ?? 0, event.agent ?? "main").calls.append(node);
    return { node, outcome };
  }

  on_decision(event) {
    const what = { route: "Chose", skip: "Are documents needed?", sufficient: "Is it enough?", reformulate: "Search again for", follow_up: "Understood as" }[event.what] ?? event.what;
    this.line({ step: 0, agent: event.agent }, "decision", el("span", { class: "what" }, what), " ", el("span", { class: "value", dir: "auto" }, event.verdict), event.why && el("span", { class: "dim", dir: "auto" }, ` ${event.why}`));
    return event.what === "route" ? `Mode ${event.verdict}` : null;
  }

  on_step_started(event) {
    this.counts.steps = Math.max(this.counts.steps, event.step);
    this.settle(event.agent, event.seconds, event.dollars);
    const step = this.step(event.step, event.agent);
    step.seconds = event.seconds ?? null;
    step.dollars = event.dollars ?? null;
    this.current.set(event.agent, step);
    if (event.seconds !== undefined) this.spent = { seconds: event.seconds, dollars: event.dollars };
    return `Step ${event.step}`;
  }

  on_tool_called(event) {
    const { query, phrase, document, section, start, ...others } = event.arguments;
    const search = event.tool.startsWith("search_");
    const terms = query ?? phrase ?? null;
    const parts = [el("span", { class: "what" }, toolName(event.tool))];
    if (terms !== null) parts.push(" ", el("q", { class: "terms", dir: "auto" }, String(terms)));
    if (document !== undefined && document !== null) parts.push(" ", el("span", { class: "value" }, place({ document: String(document), section })));
    if (start) parts.push(el("span", { class: "dim from" }, ` from ${Number(start).toLocaleString("en")}`));
    for (const [name, value] of Object.entries(others)) {
      if (value === null || value === undefined || (!search && name === "question")) continue;
      parts.push(" ", el("span", { class: "tag", dir: "auto" }, `${name.replaceAll("_", " ")}: ${typeof value === "object" ? JSON.stringify(value) : value}`));
    }
    const { node, outcome } = this.line(event, search ? "search" : (KINDS[event.tool] ?? "tool"), ...parts);
    node.classList.add("waiting");
    this.step(event.step, event.agent).pending.push({ tool: event.tool, node, outcome, query: terms, document });
    if (search) this.counts.searches += 1;
    return terms === null ? `${toolName(event.tool)} ${document ?? ""}` : `${toolName(event.tool)}: ${terms}`;
  }

  /** The call that a result belongs to; where code searched by itself there is none, and a line is made. */
  claimed(event, fits, make) {
    const { pending } = this.step(event.step, event.agent);
    const at = pending.findIndex(fits);
    const call = at >= 0 ? pending.splice(at, 1)[0] : make();
    call.node.classList.remove("waiting");
    return call;
  }

  on_hits(event) {
    const call = this.claimed(
      event,
      (c) => c.tool === `search_${event.source}` && (c.query === event.query || c.query === null),
      () => {
        this.counts.searches += 1;
        const tags = Object.entries(event.filters).flatMap(([name, value]) => [" ", el("span", { class: "tag", dir: "auto" }, `${name}: ${value}`)]);
        return this.line(event, "search", el("span", { class: "what" }, `Search ${event.source}`), " ", el("q", { class: "terms", dir: "auto" }, event.query), ...tags);
      },
    );
    const found = event.returned.length;
    if (found) this.found(call, event.returned, "hit");
    else call.outcome.replaceChildren(el("span", { class: "none" }, "no hits"));
    if (event.hidden_superseded) call.node.querySelector(".call-body").append(" ", el("span", { class: "dim" }, `${event.hidden_superseded} not current, hidden`));
    return `${event.source}: ${count(found, "hit")}`;
  }

  found(call, places, word) {
    const list = el("ul", { class: "hits" }, places.map((hit) => el("li", {}, documentLink(hit, this.context))));
    call.outcome.replaceWith(el("details", { class: "outcome" }, el("summary", {}, count(places.length, word)), list));
  }

  on_read(event) {
    this.counts.reads += 1;
    const call = this.claimed(
      event,
      (c) => (c.tool === "read_document" || c.tool === "find_in_document") && (same(c.document, event.document) || event.document.endsWith(`/${c.document}`)),
      () => this.line(event, "read", el("span", { class: "what" }, "Read")),
    );
    const value = call.node.querySelector(".value");
    const link = documentLink({ document: event.document, section: event.section }, { ...this.context, className: "value" });
    if (value && value.tagName !== "A") value.replaceWith(link);
    else if (!value) call.outcome.before(link, " ");
    call.node.querySelector(".from")?.remove();
    call.outcome.textContent = `${(event.end - event.start).toLocaleString("en")} characters`;
    return `Read ${event.document}`;
  }

  on_tool_failed(event) {
    const call = this.claimed(event, (c) => c.tool === event.tool, () => this.line(event, "tool", el("span", { class: "what" }, toolName(event.tool))));
    call.node.classList.add("failed");
    call.outcome.replaceChildren(el("span", { class: "bad", dir: "auto" }, event.error));
    return `${toolName(event.tool)} failed`;
  }

  on_retry(event) {
    this.line(event, "warning", el("span", { class: "bad", dir: "auto" }, `The model's provider failed (${event.reason}); trying again in ${duration(event.wait)}`));
    return "The model's provider failed; trying again";
  }

  on_compacted(event) {
    this.line(event, "list", el("span", { class: "dim" }, `The model's window is nearly full: ${count(event.results, "old search result")} shortened`));
  }

  on_progress(event) {
    this.progress ??= this.line({ step: 0 }, "list", el("span", { class: "what" }, "Building the index"));
    this.progress.outcome.textContent = `${event.done.toLocaleString("en")} of ${event.total.toLocaleString("en")} ${event.what}`;
  }

  on_claim(event) {
    const key = `${event.agent} ${event.step} ${event.draft}`;
    const draft = this.drafts.get(key) ?? { ...this.line(event, "list", el("span", { class: "what" }, event.draft > 1 ? `Draft ${event.draft}` : "Draft")), claims: 0 };
    draft.claims += 1;
    this.drafts.set(key, draft);
    draft.outcome.textContent = `${count(draft.claims, "claim")}, then checked against what was read`;
  }
}

function badge(status) {
  return el("span", { class: `badge badge-${status}`, title: VERDICT_MEANS[status] }, icon(status), VERDICT[status]);
}

function chip(citation, context) {
  const at = { document: citation.document, section: citation.section, start: citation.start, end: citation.end, page: citation.page, quote: citation.quote };
  const ok = citation.status === "verified";
  const label = [
    icon(ok ? "read" : "unverified"),
    el("span", {}, shortId(citation.document)),
    citation.section && el("span", { class: "chip-section" }, `§${citation.section}`),
    citation.page && el("span", { class: "chip-section" }, `p. ${citation.page}`),
    hidden(ok ? " verified citation, open the document" : " citation not verified, open the document"),
  ].filter(Boolean);
  const link = documentLink({ ...at, citation }, { ...context, className: `chip${ok ? "" : " chip-bad"}`, label: el("span", { class: "chip-inside" }, label) });
  return el("span", { class: "cite" }, link, (citation.labels ?? []).map((text) => el("span", { class: "tag tag-warn", dir: "auto" }, text)));
}

const letters = (text) => text.replace(/[\s\u00ad]+/g, " ").trim().toLowerCase();

/** A claim as the page shows it. `context` has `run`, `open` and `jump(number)`. */
export function claimItem(claim, number, context) {
  const status = claim.status;
  const said = letters(claim.text);
  const quotes = claim.citations.filter((c) => c.quote && !said.includes(letters(c.quote)));
  const why = status === "verified" ? [] : reasons(claim);
  const item = el(
    "li",
    { class: `claim claim-${status}`, id: `claim-${context.run}-${number}`, tabindex: "-1", value: number },
    el("div", { class: "claim-line" }, el("span", { class: "claim-number", "aria-hidden": "true" }, String(number)), el("p", { class: "claim-text", dir: "auto" }, claim.text)),
    quotes.map((c) => el("blockquote", { class: "quote", dir: "auto" }, c.quote)),
    el(
      "div",
      { class: "claim-foot" },
      badge(status),
      KIND[claim.kind] && el("span", { class: "kind" }, KIND[claim.kind]),
      claim.premises.length > 0 &&
        el(
          "span",
          { class: "dim" },
          "from ",
          claim.premises.flatMap((n, at) => [at ? ", " : "", el("button", { class: "jump", type: "button", "aria-label": `claim ${n}`, onclick: () => context.jump(n) }, String(n))]),
        ),
      claim.kind === "absence" && claim.terms?.length > 0 && el("span", { class: "dim", dir: "auto" }, `looked for ${claim.terms.map((t) => `“${t}”`).join(", ")}`),
      claim.citations.map((citation) => chip(citation, context)),
    ),
    why.length > 0 && el("p", { class: "why bad", dir: "auto" }, why.join("; ")),
    claim.warnings.some((w) => w.startsWith("clipped")) && el("p", { class: "why warn" }, "Clipped: the quoted sentence goes on with a negation or condition. Open the citation and read it whole."),
    claim.support && claim.support !== "supported" && el("p", { class: "why warn" }, `A model that was asked whether the quote supports the claim says: ${claim.support}.`),
  );
  return item;
}

function draftItem(event) {
  return el(
    "li",
    { class: "claim claim-pending", value: event.number },
    el("div", { class: "claim-line" }, el("span", { class: "claim-number", "aria-hidden": "true" }, String(event.number)), el("p", { class: "claim-text", dir: "auto" }, event.text)),
    el("div", { class: "claim-foot" }, badge("pending"), event.documents.map((d) => el("span", { class: "chip chip-pending" }, d))),
  );
}

function gapItem(gap) {
  const checked = gap.status === "checked";
  return el(
    "li",
    { class: `gap gap-${gap.status}` },
    el("p", { class: "gap-what", dir: "auto" }, gap.what),
    el(
      "div",
      { class: "claim-foot" },
      el("span", { class: `badge badge-${checked ? "checked" : "unchecked"}` }, icon(checked ? "search" : "unverified"), checked ? "Searched, not found" : "Not searched"),
      gap.sources.length > 0 && el("span", { class: "dim" }, `in ${gap.sources.join(", ")}`),
      gap.queries.map((q) => el("q", { class: "terms", dir: "auto" }, q)),
    ),
    gap.reason && el("details", { class: "gap-why" }, el("summary", {}, "Why"), el("p", { class: "dim", dir: "auto" }, gap.reason)),
  );
}

function survey(rows, context) {
  const columns = rows[0].cells.map((cell) => cell.column);
  const head = el("tr", {}, el("th", { scope: "col" }, "Document"), columns.map((c) => el("th", { scope: "col", dir: "auto" }, c)));
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, documentLink({ document: row.document }, { ...context, label: row.title || row.document }), el("div", { class: "dim small" }, row.document)),
      row.cells.map((cell) =>
        el(
          "td",
          { class: `cell cell-${cell.status}` },
          el("span", { class: `badge badge-${{ found: "verified", unverified: "unverified", not_found: "checked", not_reached: "unchecked" }[cell.status]}` }, icon({ found: "verified", unverified: "unverified", not_found: "search", not_reached: "uncited" }[cell.status]), CELL[cell.status]),
          cell.text && el("p", { dir: "auto" }, cell.text),
          cell.citations.map((citation) => chip(citation, context)),
          cell.queries.length > 0 && cell.status !== "found" && el("p", { class: "dim small", dir: "auto" }, `looked for ${cell.queries.map((q) => `“${q}”`).join(", ")}`),
          cell.reason && el("p", { class: "dim small", dir: "auto" }, cell.reason),
        ),
      ),
    ),
  );
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "One row per document" }, el("table", { class: "survey" }, el("thead", {}, head), el("tbody", {}, body)));
}

function banner(answer) {
  const kind = { complete: "good", direct: "note", clarification: "note", partial: "warn", not_found: "warn", failed: "bad" }[answer.status] ?? "warn";
  const lines = answer.status === "partial" || answer.status === "failed" || answer.status === "not_found" ? caveats(answer) : [];
  const means = answer.status === "partial" && lines.length ? null : STATUS_MEANS[answer.status];
  return el(
    "div",
    { class: `banner banner-${kind}`, "data-status": answer.status },
    icon({ good: "verified", note: "uncited", warn: "unverified", bad: "unverified" }[kind]),
    el("div", {}, el("p", { class: "banner-title" }, STATUS[answer.status] ?? answer.status), means && el("p", {}, means), lines.length === 1 ? el("p", {}, lines[0]) : lines.length > 1 && el("ul", {}, lines.map((text) => el("li", {}, text)))),
  );
}

/** The answer of a run: claims as they are drafted, then with verdicts, then all of it from the record. */
export class AnswerView {
  constructor({ run, open }) {
    this.context = {
      run,
      open,
      jump: (number) => {
        const target = document.getElementById(`claim-${run}-${number}`);
        target?.scrollIntoView({ block: "center" });
        target?.focus({ preventScroll: true });
      },
    };
    this.claims = el("ol", { class: "claims" });
    this.gaps = el("ul", { class: "gaps" });
    this.element = el("section", { class: "answer", "aria-label": "Answer", hidden: true }, this.claims);
    this.draft = null;
  }

  apply(event) {
    if (event.type === "claim" && event.agent === "main") {
      if (this.draft !== event.draft) this.claims.replaceChildren();
      this.draft = event.draft;
      this.claims.append(draftItem(event));
      this.element.hidden = false;
    } else if (event.type === "verdict") {
      if (this.draft !== "checked") this.claims.replaceChildren();
      this.draft = "checked";
      this.claims.append(claimItem(event.claim, event.number, this.context));
      this.element.hidden = false;
    } else if (event.type === "gap") {
      this.gaps.append(gapItem(event.gap));
      this.showGaps();
    }
  }

  showGaps() {
    if (this.gaps.isConnected) return;
    const id = `missing-${this.context.run}`;
    this.element.append(el("section", { class: "missing", "aria-labelledby": id }, el("h3", { id }, icon("missing"), "Missing"), this.gaps));
    this.element.hidden = false;
  }

  /** Shows the answer as the record has it, whatever came before. */
  finish(answer) {
    const parts = [banner(answer)];
    if (answer.clarification) parts.push(el("p", { class: "said", dir: "auto" }, answer.clarification));
    else if (!answer.claims.length && !answer.missing.length) parts.push(...answer.text.split(/\n+/).filter(Boolean).map((line) => el("p", { class: "said", dir: "auto" }, line)));
    if (answer.rows?.length) parts.push(survey(answer.rows, this.context));
    this.claims.replaceChildren(...answer.claims.map((claim, at) => claimItem(claim, at + 1, this.context)));
    if (answer.claims.length && answer.rows?.length) parts.push(el("details", { class: "all-claims" }, el("summary", {}, `All ${count(answer.claims.length, "claim")} of the table, with their checks`), this.claims));
    else if (answer.claims.length) parts.push(this.claims);
    this.gaps.replaceChildren(...answer.missing.map(gapItem));
    this.gaps.remove();
    this.element.classList.add("finished");
    this.element.replaceChildren(...parts);
    if (answer.missing.length) this.showGaps();
    const notes = answer.warnings;
    if (notes.length) this.element.append(el("ul", { class: "notes", "aria-label": "Notes" }, notes.map((text) => el("li", { dir: "auto" }, text))));
    this.element.hidden = false;
  }
}

/** One sentence for people who listen. */
export function spoken(answer) {
  const verified = answer.claims.filter((c) => c.status === "verified").length;
  const parts = [STATUS[answer.status] ?? answer.status];
  if (answer.claims.length) parts.push(`${verified} of ${count(answer.claims.length, "claim")} verified`);
  if (answer.missing.length) parts.push(`${answer.missing.length} missing`);
  return `${parts.join(", ")}. ${caveats(answer).join(" ")}`.trim();
}
