"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const modes = data.evaluation.modes;
const names = Object.keys(modes);
const byId = (id) => document.getElementById(id);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (className) element.className = className;
  return element;
}
function figure(value, metric) {
  if (value === null || value === undefined) return "–";
  if (metric.name === "dollars") return value.toFixed(4);
  if (metric.share) return value.toFixed(2);
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

byId("title").textContent = data.title;
document.title = data.title;
const repeats = data.evaluation.repeat > 1 ? `, each asked ${data.evaluation.repeat} times` : "";
byId("lead").textContent = `${data.evaluation.cases.length} cases${repeats}; ${names.map((n) => `${n} (${modes[n].model})`).join(", ")}`;

function metricsTable() {
  const table = byId("metrics");
  const head = table.createTHead().insertRow();
  head.append(make("th", "metric"));
  for (const name of names) { const cell = make("th", name); cell.scope = "col"; head.append(cell); }
  const body = table.createTBody();
  for (const metric of data.metrics) {
    if (names.every((n) => modes[n].metrics[metric.name] === null)) continue;
    const row = body.insertRow();
    const label = make("th", metric.label);
    label.scope = "row"; label.title = metric.meaning; row.append(label);
    for (const name of names) {
      const cell = make("td", figure(modes[name].metrics[metric.name], metric));
      const interval = modes[name].intervals[metric.name];
      if (interval && interval[1] > interval[0]) {
        cell.append(make("small", `${figure(interval[0], metric)} to ${figure(interval[1], metric)}`));
      }
      row.append(cell);
    }
  }
  byId("comparison").textContent = data.comparison.join("\n");
  byId("comparison").hidden = data.comparison.length === 0;
}

const palette = ["#1f5fae", "#c2571a", "#2c7d4f", "#7b4bb3", "#a8324a", "#5b6472"];
const shapes = ["circle", "rect", "triangle", "rectRot", "star", "crossRot"];
function plots() {
  const style = getComputedStyle(document.documentElement);
  Chart.defaults.color = style.getPropertyValue("--ink");
  Chart.defaults.borderColor = style.getPropertyValue("--line");
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  const whole = { beginAtZero: true, ticks: { precision: 0 } };
  const counts = names.map((n) => {
    const found = new Map();
    for (const c of modes[n].cases) { const s = Math.round(c.metrics.searches ?? 0); found.set(s, (found.get(s) ?? 0) + 1); }
    return found;
  });
  const most = Math.max(0, ...counts.flatMap((c) => [...c.keys()]));
  new Chart(byId("plot-searches"), {
    type: "bar",
    data: { labels: Array.from({ length: most + 1 }, (_, i) => String(i)),
      datasets: names.map((n, i) => ({ label: n, backgroundColor: palette[i % 6], data: Array.from({ length: most + 1 }, (_, s) => counts[i].get(s) ?? 0) })) },
    options: { scales: { x: { title: { display: true, text: "searches" } }, y: { ...whole, title: { display: true, text: "questions" } } } },
  });
  new Chart(byId("plot-cost"), {
    type: "scatter",
    data: { datasets: names.map((n, i) => ({ label: n, backgroundColor: palette[i % 6], pointStyle: shapes[i % 6], pointRadius: 8, borderColor: palette[i % 6],
      data: [{ x: modes[n].metrics.dollars > 0 ? modes[n].metrics.dollars : modes[n].metrics.input_tokens, y: modes[n].metrics.must_read_recall }] })) },
    options: { scales: { x: { beginAtZero: true, title: { display: true, text: names.some((n) => modes[n].metrics.dollars > 0) ? "dollars per question" : "input tokens per question" } },
      y: { min: 0, max: 1, title: { display: true, text: "must-read recall" } } } },
  });
  if (names.some((n) => modes[n].metrics.dollars > 0)) document.querySelectorAll("figcaption")[1].textContent = "Dollars against must-read recall";
  const reasons = [...new Set(names.flatMap((n) => Object.keys(modes[n].stop_reasons)))].sort();
  new Chart(byId("plot-stops"), {
    type: "bar",
    data: { labels: reasons, datasets: names.map((n, i) => ({ label: n, backgroundColor: palette[i % 6], data: reasons.map((r) => modes[n].stop_reasons[r] ?? 0) })) },
    options: { indexAxis: "y", scales: { x: whole } },
  });
}

const columns = ["must_read_recall", "evidence_recall", "read_precision", "answer_points", "citations_valid", "gap_recall", "false_gaps", "searches", "reads", "steps", "input_tokens", "dollars"];
let order = { key: "id", up: true };
function value(row, key) { return key === "id" || key === "status" ? row[key] : row.metrics[key]; }
function flawed(row) {
  return ["must_read_recall", "evidence_recall", "answer_points", "citations_valid", "gap_recall"].some((k) => row.metrics[k] !== null && row.metrics[k] < 1) || row.metrics.false_gaps > 0;
}
function casesTable() {
  const mode = byId("mode").value;
  const table = byId("cases");
  table.replaceChildren();
  const metrics = columns.map((n) => data.metrics.find((m) => m.name === n)).filter((m) => names.some((n) => modes[n].metrics[m.name] !== null));
  const head = table.createTHead().insertRow();
  for (const [key, label] of [["id", "case"], ["status", "status"], ...metrics.map((m) => [m.name, m.label])]) {
    const cell = make("th"); cell.scope = "col";
    const button = make("button", label + (order.key === key ? (order.up ? " ▲" : " ▼") : ""));
    cell.setAttribute("aria-sort", order.key === key ? (order.up ? "ascending" : "descending") : "none");
    button.addEventListener("click", () => { order = { key, up: order.key === key ? !order.up : true }; casesTable(); });
    cell.append(button); head.append(cell);
  }
  const rows = modes[mode].cases.filter((r) => !byId("flawed").checked || flawed(r));
  rows.sort((a, b) => {
    const x = value(a, order.key), y = value(b, order.key);
    if (x === y) return a.id < b.id ? -1 : 1;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * (order.up ? 1 : -1);
  });
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    const first = make("td");
    const link = make("a", row.id); link.href = "#trace";
    link.addEventListener("click", (event) => { event.preventDefault(); trace(mode, row); });
    first.append(link); line.append(first, make("td", row.status));
    for (const metric of metrics) {
      const v = row.metrics[metric.name];
      const poor = v !== null && v !== undefined && metric.share && metric.better > 0 && v < 1 && metric.name !== "read_precision";
      line.append(make("td", figure(v, metric), poor ? "bad" : ""));
    }
  }
}

function list(parent, title, items) {
  if (!items.length) return;
  parent.append(make("h3", title));
  const ul = make("ul");
  for (const item of items) ul.append(typeof item === "string" ? make("li", item) : item);
  parent.append(ul);
}
function trace(mode, row) {
  const found = data.traces[mode][row.id];
  const body = byId("trace-body");
  body.replaceChildren();
  byId("h-trace").textContent = `${row.id} in ${mode}`;
  byId("trace").hidden = false;
  if (found.lost) { body.append(make("p", found.lost)); return; }
  body.append(make("p", found.question), make("p", `${found.status}, stopped: ${found.stop_reason}; ${found.mode}, ${found.route}`, "note"));
  list(body, "Should be read", found.needs.map((n) => make("li", `${n.name}: ${n.read ? "read" : "NOT read"}`, n.read ? "good" : "bad")));
  body.append(make("h3", "What it did"));
  const steps = make("ol", null, "steps");
  for (const call of found.calls) {
    const item = make("li");
    item.append(make("span", `step ${call.step}${call.agent === "main" ? "" : ` (${call.agent})`} ${call.tool} `), make("span", call.arguments, "terms"));
    item.append(make("div", call.error ?? call.returned.join("; ") ?? "", call.error ? "bad" : "hits"));
    steps.append(item);
  }
  body.append(steps);
  body.append(make("h3", "Answer"));
  for (const claim of found.claims) {
    const line = make("p");
    line.append(make("span", `${claim.status} `, claim.status === "verified" ? "good" : "bad"), make("span", claim.text));
    body.append(line);
    for (const warning of claim.warnings) body.append(make("p", warning, "note"));
    for (const c of claim.citations) {
      const quote = make("blockquote", c.quote);
      quote.append(make("div", `${c.document}${c.section ? ` §${c.section}` : ""} ${c.status === "verified" ? "" : `(${c.reason ?? c.status})`}`, c.status === "verified" ? "note" : "bad"));
      body.append(quote);
    }
  }
  if (!found.claims.length) body.append(make("p", "no claims", "note"));
  if (found.missing.length) {
    const box = make("div", null, "gap");
    box.append(make("strong", "Missing"));
    const ul = make("ul");
    for (const gap of found.missing) ul.append(make("li", `${gap.what} (${gap.status}${gap.queries.length ? `, searched: ${gap.queries.join("; ")}` : ""})`));
    box.append(ul); body.append(box);
  }
  list(body, "The case wants said", found.answer_points);
  list(body, "The case has missing", found.case_missing);
  list(body, "Warnings", found.warnings);
  byId("trace").scrollIntoView(); byId("trace").focus({ preventScroll: true });
}

for (const name of names) { const option = make("option", name); option.value = name; byId("mode").append(option); }
byId("mode").value = names[names.length - 1] ?? "";
byId("mode").addEventListener("change", casesTable);
byId("flawed").addEventListener("change", casesTable);
metricsTable();
if (names.length) { plots(); casesTable(); }
