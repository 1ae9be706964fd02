// The dashboard: numbers and plots of GET /v1/dashboard, and behind each number its runs. What is selected is in the address.

import { request, signOutButton } from "./api.js";
import { announce, byId, count, documentAddress, duration, el, hidden, icon, money, problem, themeButton } from "./ui.js";
import { STATUS } from "./words.js";

const STOP = {
  answered: "Answered",
  steps: "Step limit",
  dollars: "Dollar limit",
  seconds: "Time limit",
  no_progress: "No progress",
  context: "Context full",
  refused: "Model refused",
  truncated: "Cut off",
  empty: "Empty answer",
  cancelled: "Cancelled",
  model_error: "Model failed",
};
const CAPS = ["steps", "dollars", "seconds"];
const PRESETS = { "24h": "24 hours", "7d": "7 days", "30d": "30 days", "90d": "90 days", all: "All" };
const FILTERS = ["source", "mode", "model"];
const DEFAULT = "30d";
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const board = byId("board");
const drawer = byId("drawer");
let data = null;
let charts = [];
let redraw = [];
let asked = 0;

// Address --------------------------------------------------------------------------------------------------------------

const address = () => new URLSearchParams(location.search);
const midnight = (day) => new Date(`${day}T00:00`).getTime() / 1000;

/** Since and until, in seconds, of what the address selects. */
function range(query = address()) {
  const from = query.get("from");
  const to = query.get("to");
  if (from || to) {
    const found = {};
    if (from && Number.isFinite(midnight(from))) found.since = Math.max(0, midnight(from));
    if (to && Number.isFinite(midnight(to))) {
      const after = new Date(`${to}T00:00`);
      after.setDate(after.getDate() + 1);
      found.until = Math.max(0, after.getTime() / 1000);
    }
    return found;
  }
  const preset = query.get("range") ?? DEFAULT;
  if (preset === "all" || !(preset in PRESETS)) return {};
  const now = new Date();
  if (preset === "24h") return { since: Math.floor(now.getTime() / 1000) - 86400 };
  const first = new Date(now.getFullYear(), now.getMonth(), now.getDate() - Number.parseInt(preset, 10) + 1);
  return { since: first.getTime() / 1000 };
}

/** What the numbers are asked with. */
function selection(query = address()) {
  const chosen = range(query);
  for (const name of FILTERS) if (query.get(name)) chosen[name] = query.get(name);
  return chosen;
}

/** What the runs of a number are asked with: the page's selection, narrowed. */
function narrowed(query = address()) {
  const chosen = selection(query);
  for (const [name, value] of query) if (name.startsWith("of.")) chosen[name.slice(3)] = value;
  return chosen;
}

function go(change, { replace = false } = {}) {
  const query = address();
  for (const name of [...query.keys()]) if (name.startsWith("of.")) query.delete(name);
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history[replace ? "replaceState" : "pushState"](null, "", text ? `/dashboard?${text}` : "/dashboard");
}

/** A number that leads to its runs; `runs` is how many they are, where the number says that. */
function leads(text, of, about, { runs = null, ...props } = {}) {
  const query = address();
  for (const name of [...query.keys()]) if (name.startsWith("of.")) query.delete(name);
  for (const [name, value] of Object.entries(of)) query.set(`of.${name}`, value);
  query.set("of.", about);
  const link = el("a", { href: `/dashboard?${query}`, "data-runs": runs, ...props }, text);
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.pushState(null, "", link.getAttribute("href"));
    openDrawer();
  });
  return link;
}

function leadsTo(of, about) {
  leads("", of, about).click();
}

// Words and figures ------------------------------------------------------------------------------------------------------

const whole = (n) => n.toLocaleString("en");
const percent = (part, all) => {
  if (!all) return "–";
  const share = (100 * part) / all;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)} %`;
};
const mean = (sum, n) => (n ? (sum / n).toFixed(1) : "–");
const cost = (dollars) => (dollars === null ? "–" : dollars >= 1000 ? `$${whole(Math.round(dollars))}` : money(dollars));
const time = (seconds) => (seconds === null ? "–" : seconds < 1 ? `${Math.round(1000 * seconds)} ms` : duration(seconds));
const statusName = (name) => STATUS[name] ?? name;
const stopName = (name) => STOP[name] ?? name;

// Parts ------------------------------------------------------------------------------------------------------------------

const part = (title, about, ...children) => {
  const id = `part-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return el("section", { class: "part", "aria-labelledby": id }, el("h2", { id }, title), about && el("p", { class: "about" }, about), ...children);
};

function table(columns, rows, { caption = null } = {}) {
  const head = el("tr", {}, columns.map((c, at) => el("th", { scope: "col", class: at ? "number" : null }, c)));
  const body = rows.map((row) => el("tr", {}, row.map((cell, at) => el(at ? "td" : "th", { class: at ? "number" : null, scope: at ? null : "row" }, cell))));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption ?? columns.join(", ") }, el("table", {}, caption && el("caption", { class: "sr-only" }, caption), el("thead", {}, head), el("tbody", {}, body)));
}

/** A plot with its numbers; `chart(colors)` gives what Chart.js draws. */
function plot({ title, note, columns, rows, chart, label }) {
  const canvas = el("canvas", { role: "img", "aria-label": label });
  const numbers = el("details", {}, el("summary", {}, "Numbers"), table(columns, rows, { caption: title }));
  redraw.push((colors) => {
    if (!globalThis.Chart) return null;
    return new globalThis.Chart(canvas, chart(colors));
  });
  return el("figure", { class: "plot" }, el("figcaption", {}, title, note && el("span", {}, note)), el("div", { class: "canvas" }, canvas), numbers);
}

const nothing = (text) => el("p", { class: "nothing" }, text);
const box = (title, aside, ...children) => el("section", { class: "box" }, el("h3", {}, title, aside && el("span", { class: "dim" }, aside)), ...children);

function colorsOf() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), dim: of("--dim"), line: of("--line"), accent: of("--accent"), warn: of("--warn-line"), bad: of("--bad"), good: of("--good"), surface: of("--surface"), font: style.getPropertyValue("--sans") };
}

function drawAll() {
  for (const chart of charts) chart.destroy();
  charts = [];
  if (!globalThis.Chart) return;
  const colors = colorsOf();
  const defaults = globalThis.Chart.defaults;
  defaults.color = colors.dim;
  defaults.borderColor = colors.line;
  defaults.animation = false;
  defaults.maintainAspectRatio = false;
  defaults.font.family = colors.font;
  defaults.plugins.legend.labels.boxWidth = 12;
  defaults.plugins.legend.labels.boxHeight = 12;
  for (const draw of redraw) {
    const made = draw(colors);
    if (made) charts.push(made);
  }
}

const numberAxis = (title, more = {}) => ({ beginAtZero: true, ticks: { precision: 0 }, title: { display: Boolean(title), text: title }, border: { display: false }, ...more });
const nameAxis = (title) => ({ grid: { display: false }, title: { display: Boolean(title), text: title }, ticks: { maxRotation: 0, autoSkipPadding: 12 } });
const clicks = (pick) => ({
  onClick: (event, elements) => elements.length && pick(elements[0].index, elements[0].datasetIndex),
  onHover: (event, elements) => (event.native.target.className = elements.length ? "clickable" : ""),
});

function tiles() {
  const failing = data.citations ? data.failed / data.citations : 0;
  const list = [
    ["Questions", whole(data.runs), data.unreadable ? `${count(data.unreadable, "record")} cannot be read` : `${count(data.steps, "step")} in all`, {}, "in all", "", data.runs],
    ["Searches per question", mean(data.searches, data.runs), `${count(data.searches, "search", "searches")} in all`, {}, "in all", "", data.runs],
    ["Hit a cap", percent(data.capped, data.runs), count(data.capped, "question"), { capped: true }, "that hit a cap", data.capped ? "tile-warn" : "", data.capped],
    ["Citations that failed", percent(data.failed, data.citations), `${whole(data.failed)} of ${whole(data.citations)}, in ${count(data.runs_failed, "question")}`, { failed: true }, "with a citation that failed", failing > data.alert.threshold ? "tile-bad" : "", data.runs_failed],
    ["Claims not verified", percent(data.unverified, data.claims), `${whole(data.unverified)} of ${whole(data.claims)}, in ${count(data.runs_unverified, "question")}`, { unverified: true }, "with a claim that is not verified", "", data.runs_unverified],
    ["Time, median", time(data.seconds.p50), `95 % within ${time(data.seconds.p95)}`, data.seconds.p95 === null ? null : { min_seconds: data.seconds.p50 }, `that took ${time(data.seconds.p50)} or longer`, ""],
    ["Spent", cost(data.dollars.values ? data.dollars.total : null), data.unpriced ? `${count(data.unpriced, "question")} without a price` : `${cost(data.dollars.p50)} per question, median`, { min_dollars: 0 }, "with a known price", "", data.dollars.values],
    ["Read from cache", percent(data.cached_tokens, data.input_tokens), `of ${whole(data.input_tokens)} input tokens`, null, "", ""],
  ];
  return el("div", { class: "tiles" }, list.map(([label, value, note, of, about, kind, runs]) => {
    const inside = [el("span", { class: "tile-label" }, label), el("span", { class: "tile-value" }, value), el("span", { class: "tile-note" }, note)];
    return of ? leads(inside, of, about, { runs, class: `tile ${kind}` }) : el("div", { class: "tile" }, inside);
  }));
}

const perPeriod = { hour: "hour", day: "day", week: "week", month: "month", year: "year" };
const inPeriod = (p) => ({ since: p.start, until: p.until });
const periodName = (p) => (data.bucket === "week" ? `week of ${p.label}` : data.bucket === "month" ? p.label.slice(0, 7) : data.bucket === "year" ? p.label.slice(0, 4) : p.label);
const short = (p) => (data.bucket === "hour" ? p.label.slice(11) : data.bucket === "month" ? p.label.slice(0, 7) : data.bucket === "year" ? p.label.slice(0, 4) : p.label.slice(5));

function searches() {
  const most = Math.max(...data.distribution.map((d) => d.searches));
  const steps = most <= 40 ? Array.from({ length: most + 1 }, (_, n) => n) : data.distribution.map((d) => d.searches);
  const runs = new Map(data.distribution.map((d) => [d.searches, d.runs]));
  const about = (n) => `with ${count(n, "search", "searches")}`;
  return part(
    "Searches per question",
    null,
    el(
      "div",
      { class: "plots" },
      plot({
        title: "Distribution",
        label: `How many questions made how many searches: ${data.distribution.map((d) => `${count(d.runs, "question")} ${about(d.searches)}`).slice(0, 12).join(", ")}`,
        columns: ["Searches", "Questions"],
        rows: data.distribution.map((d) => [whole(d.searches), leads(whole(d.runs), { searches: d.searches }, about(d.searches), { runs: d.runs })]),
        chart: (c) => ({
          type: "bar",
          data: { labels: steps.map(String), datasets: [{ label: "questions", data: steps.map((n) => runs.get(n) ?? 0), backgroundColor: c.accent, maxBarThickness: 44, borderRadius: 3 }] },
          options: { plugins: { legend: { display: false } }, scales: { x: nameAxis("searches"), y: numberAxis("questions") }, ...clicks((at) => leadsTo({ searches: steps[at] }, about(steps[at]))) },
        }),
      }),
      plot({
        title: "Trend",
        note: `Searches per question and questions, by ${perPeriod[data.bucket]}`,
        label: `Searches per question by ${perPeriod[data.bucket]}`,
        columns: [perPeriod[data.bucket], "Questions", "Searches", "Per question", "Hit a cap"],
        rows: data.trend.filter((p) => p.runs).map((p) => [periodName(p), leads(whole(p.runs), inPeriod(p), `of ${periodName(p)}`, { runs: p.runs }), whole(p.searches), mean(p.searches, p.runs), p.capped ? leads(whole(p.capped), { ...inPeriod(p), capped: true }, `that hit a cap, ${periodName(p)}`, { runs: p.capped }) : "0"]),
        chart: (c) => ({
          data: {
            labels: data.trend.map(short),
            datasets: [
              { type: "line", label: "searches per question", data: data.trend.map((p) => (p.runs ? p.searches / p.runs : null)), borderColor: c.warn, backgroundColor: c.warn, spanGaps: true, pointRadius: data.trend.length > 45 ? 0 : 3, tension: 0.25, yAxisID: "y" },
              { type: "bar", label: "questions", data: data.trend.map((p) => p.runs), backgroundColor: c.accent, maxBarThickness: 28, borderRadius: 2, yAxisID: "right" },
            ],
          },
          options: { scales: { x: nameAxis(), y: numberAxis("searches per question", { ticks: {} }), right: numberAxis("questions", { position: "right", grid: { display: false } }) }, ...clicks((at) => leadsTo(inPeriod(data.trend[at]), `of ${periodName(data.trend[at])}`)) },
        }),
      }),
    ),
  );
}

function shares({ title, rows, name, field, about, color }) {
  return plot({
    title,
    label: `${title}: ${rows.map((r) => `${name(r.name)} ${whole(r.runs)}`).join(", ")}`,
    columns: [title, "Questions", "Share"],
    rows: rows.map((r) => [name(r.name), leads(whole(r.runs), { [field]: r.name }, about(r.name), { runs: r.runs }), percent(r.runs, data.runs)]),
    chart: (c) => ({
      type: "bar",
      data: { labels: rows.map((r) => name(r.name)), datasets: [{ label: "questions", data: rows.map((r) => r.runs), backgroundColor: rows.map((r) => color(c, r.name)), maxBarThickness: 26, borderRadius: 3 }] },
      options: { indexAxis: "y", plugins: { legend: { display: false } }, scales: { x: numberAxis("questions"), y: { grid: { display: false }, border: { display: false } } }, ...clicks((at) => leadsTo({ [field]: rows[at].name }, about(rows[at].name))) },
    }),
  });
}

function endings() {
  const stopColor = (c, name) => (name === "answered" ? c.accent : CAPS.includes(name) ? c.warn : c.bad);
  const statusColor = (c, name) => ({ complete: c.good, direct: c.accent, failed: c.bad })[name] ?? c.warn;
  const caps = data.caps.map((cap) => `${stopName(cap.name).toLowerCase()} ${whole(cap.runs)}`).join(", ");
  return part(
    "How questions ended",
    data.capped ? `${count(data.capped, "question")} hit a cap (${caps}). A cap that is hit often is too low, or the questions are too big for it.` : "No question hit a cap.",
    el(
      "div",
      { class: "plots" },
      shares({ title: "Stop reason", rows: data.stop_reasons, name: stopName, field: "stop_reason", about: (n) => `that stopped: ${stopName(n).toLowerCase()}`, color: stopColor }),
      shares({ title: "Status", rows: data.statuses, name: statusName, field: "status", about: (n) => `with the status “${statusName(n).toLowerCase()}”`, color: statusColor }),
    ),
  );
}

function citations() {
  if (!data.citations) return part("Citations", null, nothing("No answer has cited anything."));
  return part(
    "Citations",
    `${whole(data.failed)} of ${whole(data.citations)} citations failed their check, in ${count(data.runs_failed, "question")}. An alert is raised above ${percent(data.alert.threshold, 1)} within ${data.alert.hours} hours.`,
    el(
      "div",
      { class: "plots" },
      plot({
        title: "Citations that failed",
        note: `Share by ${perPeriod[data.bucket]}`,
        label: `Share of citations that failed by ${perPeriod[data.bucket]}`,
        columns: [perPeriod[data.bucket], "Failed", "Citations", "Share"],
        rows: data.trend.filter((p) => p.citations).map((p) => [periodName(p), p.failed ? leads(whole(p.failed), { ...inPeriod(p), failed: true }, `with a citation that failed, ${periodName(p)}`) : "0", whole(p.citations), percent(p.failed, p.citations)]),
        chart: (c) => ({
          data: {
            labels: data.trend.map(short),
            datasets: [
              { type: "line", label: "alert above", data: data.trend.map(() => 100 * data.alert.threshold), borderColor: c.dim, borderDash: [5, 4], borderWidth: 1, pointRadius: 0 },
              { type: "bar", label: "failed", data: data.trend.map((p) => (p.citations ? (100 * p.failed) / p.citations : null)), backgroundColor: c.bad, maxBarThickness: 28, borderRadius: 2 },
            ],
          },
          options: { scales: { x: nameAxis(), y: numberAxis("% of citations", { ticks: {}, suggestedMax: 200 * data.alert.threshold }) }, ...clicks((at) => leadsTo({ ...inPeriod(data.trend[at]), failed: true }, `with a citation that failed, ${periodName(data.trend[at])}`)) },
        }),
      }),
    ),
  );
}

function spending() {
  const rows = ["p50", "p90", "p95", "p99", "most"].map((name) => {
    const title = name === "most" ? "Longest, dearest" : name === "p50" ? "Median" : `${name.slice(1)} % within`;
    const s = data.seconds[name];
    const d = data.dollars[name];
    return [title, s === null ? "–" : leads(time(s), { min_seconds: s }, `that took ${time(s)} or longer`), d === null ? "–" : leads(cost(d), { min_dollars: d }, `that cost ${cost(d)} or more`)];
  });
  return part(
    "Time and cost",
    data.unpriced ? `The price of ${count(data.unpriced, "question")} is unknown; dollars leave them out.` : null,
    el(
      "div",
      { class: "plots" },
      box("Percentiles", `${count(data.seconds.values, "question")}`, table(["", "Time", "Cost"], rows, { caption: "Percentiles of time and cost" })),
      plot({
        title: "Spent",
        note: `Dollars by ${perPeriod[data.bucket]}`,
        label: `Dollars by ${perPeriod[data.bucket]}, ${cost(data.dollars.total)} in all`,
        columns: [perPeriod[data.bucket], "Dollars", "Time per question"],
        rows: data.trend.filter((p) => p.runs).map((p) => [periodName(p), leads(cost(p.dollars), inPeriod(p), `of ${periodName(p)}`, { runs: p.runs }), time(p.seconds / p.runs)]),
        chart: (c) => ({
          type: "bar",
          data: { labels: data.trend.map(short), datasets: [{ label: "dollars", data: data.trend.map((p) => p.dollars), backgroundColor: c.accent, maxBarThickness: 28, borderRadius: 2 }] },
          options: { plugins: { legend: { display: false } }, scales: { x: nameAxis(), y: numberAxis("dollars", { ticks: {} }) }, ...clicks((at) => leadsTo(inPeriod(data.trend[at]), `of ${periodName(data.trend[at])}`)) },
        }),
      }),
      plot({
        title: "Time per question",
        note: `Mean seconds by ${perPeriod[data.bucket]}`,
        label: `Mean seconds per question by ${perPeriod[data.bucket]}`,
        columns: [perPeriod[data.bucket], "Questions", "Time per question"],
        rows: data.trend.filter((p) => p.runs).map((p) => [periodName(p), leads(whole(p.runs), inPeriod(p), `of ${periodName(p)}`, { runs: p.runs }), time(p.seconds / p.runs)]),
        chart: (c) => ({
          type: "line",
          data: { labels: data.trend.map(short), datasets: [{ label: "seconds", data: data.trend.map((p) => (p.runs ? p.seconds / p.runs : null)), borderColor: c.accent, backgroundColor: c.accent, spanGaps: true, pointRadius: data.trend.length > 45 ? 0 : 3, tension: 0.25 }] },
          options: { plugins: { legend: { display: false } }, scales: { x: nameAxis(), y: numberAxis("seconds", { ticks: {} }) }, ...clicks((at) => leadsTo(inPeriod(data.trend[at]), `of ${periodName(data.trend[at])}`)) },
        }),
      }),
    ),
  );
}

function groups() {
  const of = (title, field, list, about) =>
    box(
      title,
      null,
      list.length
        ? table(
            [field, "Questions", "Complete", "Searches each", "Hit a cap", "Citations failed", "From cache", "Median time", "95 % within", "Median cost", "Spent"],
            list.map((g) => [
              g.name,
              leads(whole(g.runs), { [field]: g.name }, about(g.name), { runs: g.runs }),
              g.complete ? leads(percent(g.complete, g.runs), { [field]: g.name, status: "complete" }, `${about(g.name)}, complete`, { runs: g.complete }) : percent(0, g.runs),
              mean(g.searches, g.runs),
              g.capped ? leads(percent(g.capped, g.runs), { [field]: g.name, capped: true }, `${about(g.name)}, that hit a cap`, { runs: g.capped }) : "0 %",
              g.failed ? leads(percent(g.failed, g.citations), { [field]: g.name, failed: true }, `${about(g.name)}, with a citation that failed`) : g.citations ? "0 %" : "–",
              percent(g.cached_tokens, g.input_tokens),
              time(g.seconds.p50),
              g.seconds.p95 === null ? "–" : leads(time(g.seconds.p95), { [field]: g.name, min_seconds: g.seconds.p95 }, `${about(g.name)}, that took ${time(g.seconds.p95)} or longer`),
              cost(g.dollars.p50),
              cost(g.dollars.values ? g.dollars.total : null),
            ]),
            { caption: title },
          )
        : nothing("None was used."),
    );
  return part(
    "By source, mode and model",
    "A question counts for every source that it searched or read.",
    el("div", { class: "stack" }, of("By source", "source", data.by_source, (n) => `that used ${n}`), of("By mode", "mode", data.by_mode, (n) => `in the mode ${n}`), of("By model", "model", data.by_model, (n) => `with ${n}`)),
  );
}

function gaps() {
  const most = Math.max(1, ...data.gap_groups.map((g) => g.runs));
  const list = data.gap_groups.map((g) =>
    el(
      "li",
      {},
      el("span", { class: "what", dir: "auto" }, g.what),
      el("span", { class: "how-many" }, leads(count(g.runs, "question"), { gap: g.topic }, `in which this was missing: ${g.what}`, { runs: g.runs })),
      el("meter", { min: 0, max: most, value: g.runs, "aria-hidden": "true" }),
      (g.wordings.length || g.unchecked) && el("span", { class: "more", dir: "auto" }, [g.wordings.length ? `also: ${g.wordings.join("; ")}` : "", g.unchecked ? `not searched for in ${whole(g.unchecked)}` : ""].filter(Boolean).join(" · ")),
    ),
  );
  return part(
    "What the knowledge base lacks",
    data.gap_groups.length ? `Gaps that answers declared, in ${count(data.runs_with_gaps, "question")}. Alike wordings stand together.` : null,
    data.gap_groups.length ? el("div", { class: "box" }, el("ol", { class: "ranked" }, list)) : nothing("No answer has declared a gap."),
  );
}

function documents() {
  const most = Math.max(1, ...data.documents.map((d) => d.runs));
  const read = data.documents.map((d) =>
    el(
      "li",
      {},
      el("a", { class: "what", href: documentAddress(d.document) }, d.document),
      el("span", { class: "how-many" }, leads(count(d.runs, "question"), { document: d.document }, `that read ${d.document}`, { runs: d.runs })),
      el("meter", { min: 0, max: most, value: d.runs, "aria-hidden": "true" }),
      el("span", { class: "more" }, d.cited ? `cited in ${whole(d.cited)}` : "never cited"),
    ),
  );
  const seen = data.coverage;
  const never = seen?.names.map((d) => el("li", {}, el("a", { class: "what", href: documentAddress(d.document) }, d.title || d.document), d.title && el("span", { class: "more" }, d.document))) ?? [];
  return part(
    "Documents",
    seen ? `${whole(seen.read)} of ${count(seen.documents, "document")} in the index ${seen.read === 1 ? "was" : "were"} read. Superseded versions and drafts are not counted, as searches do not find them.` : "The index is not open yet.",
    el(
      "div",
      { class: "pair" },
      box("Most read", null, read.length ? el("ol", { class: "ranked tall", tabindex: "0" }, read) : nothing("Nothing was read.")),
      seen &&
        box(
          "Never read",
          `${whole(seen.never_read)} of ${whole(seen.documents)}`,
          never.length ? el("ul", { class: "ranked tall", tabindex: "0" }, never) : nothing(seen.documents ? "Every document was read." : "The index is empty."),
          seen.never_read > never.length && el("p", { class: "box-foot" }, `and ${whole(seen.never_read - never.length)} more`),
        ),
    ),
  );
}

function feedback() {
  if (!data.good && !data.bad) return part("Feedback", null, nothing("Nobody has said what they think of an answer."));
  const said = data.opinions.map((o) => el("li", {}, el("a", { class: "what", href: `/#/runs/${encodeURIComponent(o.run_id)}`, dir: "auto" }, o.question), o.reason && el("span", { class: "more", dir: "auto" }, o.reason)));
  return part(
    "Feedback",
    null,
    el(
      "div",
      { class: "pair" },
      el(
        "div",
        { class: "tiles" },
        leads([el("span", { class: "tile-label" }, "Good"), el("span", { class: "tile-value" }, whole(data.good))], { good: true }, "that somebody found good", { runs: data.good, class: "tile" }),
        leads([el("span", { class: "tile-label" }, "Bad"), el("span", { class: "tile-value" }, whole(data.bad))], { good: false }, "that somebody found bad", { runs: data.bad, class: `tile ${data.bad ? "tile-warn" : ""}` }),
      ),
      box("Found bad, the latest", null, said.length ? el("ul", { class: "ranked" }, said) : nothing("None.")),
    ),
  );
}

// The page ---------------------------------------------------------------------------------------------------------------

function showAlert() {
  const place = byId("alert");
  if (!data.alert.raised) {
    place.replaceChildren();
    return;
  }
  const link = leads("Show them", { failed: true, since: data.alert.since }, "with a citation that failed", { class: "button small" });
  place.replaceChildren(el("div", { class: "banner banner-bad alert-box", role: "alert" }, icon("warning"), el("div", {}, el("p", {}, el("strong", {}, "Citations fail. "), `${data.alert.message}.`), link)));
}

function show() {
  redraw = [];
  const range = data.trend.length ? `${data.trend[0].label} to ${data.trend[data.trend.length - 1].label}` : "no time yet";
  byId("lead").textContent = `${count(data.runs, "question")} · ${range} · ${data.zone}`;
  document.title = "Dashboard · Citehound";
  showAlert();
  const anything = data.modes.length > 0;
  if (!data.runs) {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    board.replaceChildren(
      el(
        "div",
        { class: "first" },
        el("h2", {}, anything ? "No question here" : "No questions yet"),
        el("p", {}, anything ? "Nothing was asked in this time with these filters." : "Numbers, plots and gaps appear with the first question."),
        anything ? el("button", { class: "button", type: "button", onclick: everything }, "Show everything") : el("a", { class: "button primary", href: "/" }, "Ask a question"),
      ),
      ...(data.coverage && anything ? [documents()] : []),
    );
    return;
  }
  board.replaceChildren(el("div", { class: "board" }, tiles(), searches(), endings(), citations(), gaps(), documents(), spending(), groups(), feedback()));
  drawAll();
}

function everything() {
  go({ range: "all", from: null, to: null, source: null, mode: null, model: null });
  load();
}

function showFilters() {
  const query = address();
  const dated = query.get("from") || query.get("to");
  const current = dated ? null : (query.get("range") ?? DEFAULT);
  for (const button of byId("presets").children) button.setAttribute("aria-pressed", String(button.dataset.range === current));
  byId("from").value = query.get("from") ?? "";
  byId("to").value = query.get("to") ?? "";
  for (const name of FILTERS) {
    const select = byId(name);
    const chosen = query.get(name) ?? "";
    const options = [...new Set([...(data?.[`${name}s`] ?? []), ...(chosen ? [chosen] : [])])];
    select.replaceChildren(el("option", { value: "" }, "All"), ...options.map((o) => el("option", { value: o, selected: o === chosen }, o)));
    select.value = chosen;
  }
}

const text = (chosen) => new URLSearchParams(Object.entries(chosen).map(([k, v]) => [k, String(v)])).toString();

async function load() {
  asked += 1;
  const mine = asked;
  showFilters();
  board.setAttribute("aria-busy", "true");
  try {
    const found = await request(`/v1/dashboard?${text({ ...selection(), zone: ZONE })}`);
    if (mine !== asked) return;
    data = found;
    show();
    showFilters();
    announce(count(data.runs, "question"));
  } catch (error) {
    if (mine !== asked) return;
    board.replaceChildren(problem(error, { retry: load }));
    byId("lead").textContent = "";
  } finally {
    if (mine === asked) board.removeAttribute("aria-busy");
  }
  if (mine === asked && isNarrowed()) openDrawer();
}

const isNarrowed = () => [...address().keys()].some((name) => name.startsWith("of."));

// The runs of a number ---------------------------------------------------------------------------------------------------

function found(run) {
  const capped = CAPS.includes(run.stop_reason);
  return el(
    "a",
    { class: "found", href: `/#/runs/${encodeURIComponent(run.run_id)}`, "data-run": run.run_id },
    el("span", { class: "found-question", dir: "auto" }, run.question),
    el(
      "span",
      { class: "found-meta" },
      el("span", { class: `tag${run.status === "complete" || run.status === "direct" ? "" : " tag-warn"}` }, statusName(run.status)),
      run.stop_reason !== "answered" && el("span", { class: capped ? "warn" : "bad" }, stopName(run.stop_reason)),
      el("span", {}, new Date(run.created * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })),
      el("span", {}, `${run.mode}, ${run.model}`),
      el("span", {}, count(run.searches, "search", "searches")),
      el("span", {}, time(run.seconds)),
      el("span", {}, money(run.dollars)),
      run.unverified > 0 && el("span", { class: "warn" }, `${count(run.unverified, "claim")} not verified`),
    ),
  );
}

let opened = 0;
async function openDrawer() {
  opened += 1;
  const mine = opened;
  const query = address();
  const chosen = narrowed(query);
  const about = chosen[""] ?? "";
  delete chosen[""];
  const title = byId("drawer-title");
  const body = byId("drawer-body");
  title.textContent = "Questions";
  body.replaceChildren(el("p", { class: "dim" }, "Loading…"));
  if (!drawer.open) drawer.showModal();
  title.focus();
  const more = async (before) => {
    const page = await request(`/v1/dashboard/runs?${text({ ...chosen, limit: 50, ...(before ? { before } : {}) })}`);
    if (mine !== opened) return;
    if (!before) {
      title.textContent = `${count(page.total, "question")}${about === "in all" ? "" : ` ${about}`}`;
      body.replaceChildren();
      announce(title.textContent);
    } else body.lastElementChild?.remove();
    body.append(...page.runs.map(found));
    if (!page.total) body.append(nothing("None."));
    const shown = body.querySelectorAll(".found").length;
    if (page.runs.length && shown < page.total) {
      const last = page.runs[page.runs.length - 1].run_id;
      body.append(el("button", { class: "button", type: "button", onclick: () => more(last).catch(failed) }, `Show more (${whole(page.total - shown)} left)`));
    }
  };
  const failed = (error) => {
    if (mine === opened) body.append(problem(error, { retry: openDrawer }));
  };
  try {
    await more(null);
  } catch (error) {
    body.replaceChildren();
    failed(error);
  }
}

drawer.addEventListener("close", () => {
  opened += 1;
  if (isNarrowed()) go({});
});
drawer.addEventListener("click", (event) => {
  if (event.target === drawer) drawer.close();
});
byId("drawer-close").prepend(icon("close"));
byId("drawer-close").addEventListener("click", () => drawer.close());

// Start ------------------------------------------------------------------------------------------------------------------

for (const [name, label] of Object.entries(PRESETS)) {
  const choose = () => {
    go({ range: name === DEFAULT ? null : name, from: null, to: null });
    load();
  };
  byId("presets").append(el("button", { type: "button", "data-range": name, "aria-pressed": "false", onclick: choose }, name === "all" ? hidden("Time: ") : hidden("Last "), label));
}
byId("filters").addEventListener("submit", (event) => event.preventDefault());
for (const name of ["from", "to", ...FILTERS])
  byId(name).addEventListener("change", (event) => {
    go({ [name]: event.target.value, ...(name === "from" || name === "to" ? { range: null } : {}) });
    load();
  });
addEventListener("popstate", () => {
  if (isNarrowed() && data) openDrawer();
  else {
    if (drawer.open) drawer.close();
    load();
  }
});
addEventListener("citehound-theme", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
themeButton();
signOutButton();
load();
