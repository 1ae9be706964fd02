// The page where questions are asked: the thread, the history, the options, the document beside the answer.

import { ApiError, events, request, signOutButton } from "./api.js";
import { AnswerView, Steps, spoken } from "./run.js";
import { ago, announce, byId, count, duration, el, hidden, icon, money, problem, themeButton } from "./ui.js";
import { STATUS, markdown } from "./words.js";

const MODES = ["", "single", "hops", "agent", "research"];
const narrow = matchMedia("(max-width: 1099px)");

const thread = { turns: [], chat: null, queued: false, sending: false };
let known = [];
let oldest = null;

// A turn --------------------------------------------------------------------------------------------------------------

class Turn {
  constructor(runId, question) {
    this.run = runId;
    this.question = question;
    this.waits = false;
    this.stopped = new AbortController();
    const context = { run: runId, open: openDocument };
    this.steps = new Steps(context);
    this.answer = new AnswerView(context);
    this.clock = el("span", { class: "clock" });
    this.doing = el("span", { class: "doing" }, "Starting");
    this.cancel = el("button", { class: "button small", type: "button", onclick: () => this.stop() }, icon("stop"), "Stop");
    this.progress = el("div", { class: "progress", hidden: true }, el("span", { class: "pulse", "aria-hidden": "true" }), this.doing, this.clock, this.cancel);
    this.lost = el("p", { class: "lost", hidden: true });
    this.notes = el("div", { class: "turn-notes" });
    this.foot = el("footer", { class: "turn-foot", hidden: true });
    const title = `turn-${runId}`;
    this.title = el("h2", { id: title, class: "asked", tabindex: "-1", dir: "auto" }, question);
    this.meta = el("p", { class: "turn-meta" });
    this.element = el("article", { class: "turn", "aria-labelledby": title, "data-run": runId }, this.title, this.meta, this.progress, this.lost, this.notes, this.steps.element, this.answer.element, this.foot);
  }

  /** Follows a run from its first event to its answer. */
  async follow({ started = Date.now() / 1000 } = {}) {
    this.started = started;
    this.running = true;
    this.progress.hidden = false;
    arrange();
    this.element.setAttribute("aria-busy", "true");
    this.tick();
    const timer = setInterval(() => this.tick(), 500);
    try {
      const stream = events(this.run, {
        signal: this.stopped.signal,
        onlost: (seconds) => this.disconnected(seconds),
        onback: () => this.connected(),
      });
      for await (const event of stream) this.apply(event);
    } catch (error) {
      this.fail(error);
    } finally {
      clearInterval(timer);
      this.running = false;
      this.progress.hidden = true;
      this.element.removeAttribute("aria-busy");
      arrange();
      refreshHistory();
    }
  }

  apply(event) {
    if (event.type === "answer") {
      this.finish(event.answer);
      announce(spoken(event.answer));
      return;
    }
    if (event.type === "error") {
      this.fail(new ApiError(event.message));
      return;
    }
    const said = event.type === "waiting" ? this.wait(event.ahead) : this.steps.apply(event);
    this.answer.apply(event);
    if (event.type === "step_started" && event.agent === "main") this.doing.textContent = `Step ${event.step}`;
    if (event.type === "claim") this.doing.textContent = "Checking the claims";
    if (event.type === "run_started") this.meta.textContent = event.model === "offline" ? "offline, without a language model" : event.model;
    if (event.seconds !== undefined && event.type === "step_started") this.started = Math.min(this.started, Date.now() / 1000 - event.seconds);
    if (said) announce(said);
    this.tick();
  }

  /** Others go first, as the server has its hands full; null: it is this one's turn. Told once, then shown only. */
  wait(ahead) {
    const told = this.waits;
    this.waits = ahead !== null;
    this.doing.textContent = ahead === null ? "Starting" : `Waiting for its turn, ${ahead ? `${ahead} before it` : "next"}`;
    return this.waits === told ? null : this.doing.textContent;
  }

  tick() {
    const parts = [duration(Math.max(0, Date.now() / 1000 - this.started))];
    if (this.steps.spent.dollars !== undefined && this.steps.spent.seconds !== null) parts.push(money(this.steps.spent.dollars));
    this.clock.textContent = parts.join(" · ");
  }

  disconnected(seconds) {
    const text = `The connection is lost; trying again${seconds >= 1 ? ` in ${Math.round(seconds)} s` : ""}. The question goes on meanwhile.`;
    if (this.lost.hidden) announce(text);
    this.lost.textContent = text;
    this.lost.hidden = false;
  }

  connected() {
    if (!this.lost.hidden) announce("Connected again");
    this.lost.hidden = true;
  }

  async stop() {
    this.cancel.disabled = true;
    this.doing.textContent = "Stopping";
    try {
      await request(`/v1/runs/${encodeURIComponent(this.run)}/cancel`, { method: "POST", body: {} });
    } catch (error) {
      this.cancel.disabled = false;
      this.notes.replaceChildren(problem(error));
    }
  }

  fail(error) {
    this.notes.replaceChildren(problem(error));
    this.lost.hidden = true;
  }

  /** Shows a run from its record. */
  load(record, past) {
    for (const event of past) {
      if (event.type === "answer") continue;
      this.steps.apply(event);
    }
    this.finish(record.answer, record);
  }

  finish(answer, record = null) {
    this.record = answer;
    this.lost.hidden = true;
    this.progress.hidden = true;
    this.steps.close(answer);
    if (!this.steps.list.childElementCount) this.steps.element.hidden = true;
    if (!this.steps.element.contains(document.activeElement)) this.steps.element.open = false;
    this.answer.finish(answer);
    thread.chat = answer.chat_id ?? thread.chat;
    arrange();
    const about = [answer.requested_mode === answer.mode ? answer.mode : `${answer.mode}, chosen by ${answer.requested_mode}`, answer.model === "offline" ? "offline, without a language model" : answer.model];
    if (record?.summary?.created) about.push(ago(record.summary.created));
    this.meta.textContent = about.join(" · ");
    if (answer.rewritten && answer.rewritten !== answer.question) this.meta.after(el("p", { class: "turn-meta", dir: "auto" }, `Understood as: ${answer.rewritten}`));
    this.actions(answer, record?.feedback ?? null);
  }

  actions(answer, feedback) {
    const copy = el("button", { class: "button small", type: "button" }, icon("copy"), "Copy as Markdown");
    copy.addEventListener("click", () => this.copy(copy));
    const report = el("a", { class: "button small", href: `/v1/runs/${encodeURIComponent(this.run)}/report`, target: "_blank", rel: "noopener" }, icon("print"), "Report", hidden(" (opens in a new tab)"));
    const permalink = el("a", { class: "button small", href: `#/runs/${encodeURIComponent(this.run)}` }, icon("link"), "Link");
    this.foot.replaceChildren(el("div", { class: "actions" }, copy, report, permalink), this.opinion(feedback));
    this.foot.hidden = false;
  }

  async copy(button) {
    const text = markdown(this.record);
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = el("textarea", { class: "sr-only", "aria-hidden": "true", readonly: true, tabindex: "-1" });
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.lastChild.textContent = "Copied";
    announce("Copied as Markdown with references");
    setTimeout(() => (button.lastChild.textContent = "Copy as Markdown"), 2000);
  }

  opinion(feedback) {
    const note = el("span", { class: "dim", role: "status" });
    const reason = el("input", { type: "text", maxlength: "2000", id: `reason-${this.run}`, placeholder: "What was good or wrong? (optional)" });
    const form = el("form", { class: "reason", hidden: true }, el("label", { class: "sr-only", for: `reason-${this.run}` }, "Reason"), reason, el("button", { class: "button small", type: "submit" }, "Send"));
    const buttons = [true, false].map((good) =>
      el("button", { class: "button small square", type: "button", "aria-pressed": "false", onclick: () => give(good) }, icon(good ? "up" : "down"), hidden(good ? "Good answer" : "Bad answer")),
    );
    let chosen = null;
    const show = (good) => {
      chosen = good;
      buttons[0].setAttribute("aria-pressed", String(good === true));
      buttons[1].setAttribute("aria-pressed", String(good === false));
    };
    const save = async (good, text) => {
      try {
        await request(`/v1/runs/${encodeURIComponent(this.run)}/feedback`, { method: "POST", body: { good, reason: text } });
        show(good);
        return true;
      } catch (error) {
        note.textContent = error.message;
        return false;
      }
    };
    const give = async (good) => {
      if (await save(good, reason.value)) {
        note.textContent = "Thank you.";
        form.hidden = false;
        reason.focus();
      }
    };
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (await save(chosen, reason.value)) {
        form.hidden = true;
        note.textContent = "Thank you, it is noted.";
        buttons[chosen ? 0 : 1].focus();
      }
    });
    if (feedback) {
      show(feedback.good);
      reason.value = feedback.reason ?? "";
      if (feedback.reason) note.textContent = `“${feedback.reason}”`;
    }
    return el("div", { class: "opinion", role: "group", "aria-label": "Was this answer good?" }, buttons, note, form);
  }

  leave() {
    this.stopped.abort();
    this.element.remove();
  }
}

// The thread ----------------------------------------------------------------------------------------------------------

function show(turn) {
  thread.turns.push(turn);
  byId("thread").append(turn.element);
  arrange();
}

function arrange() {
  const some = thread.turns.length > 0;
  document.body.classList.toggle("has-thread", some);
  byId("corpus").hidden = some;
  const busy = thread.turns.some((turn) => turn.running);
  const goesOn = some && (thread.chat !== null || busy);
  byId("queued").hidden = !thread.queued;
  if (thread.queued && !busy) {
    thread.queued = false;
    byId("ask").requestSubmit();
  }
  byId("question").placeholder = busy ? "Being answered; a follow-up question comes after" : goesOn ? "Ask a follow-up question" : some ? "Ask another question" : "Ask a question";
  byId("question-label").textContent = goesOn ? "Your follow-up question" : "Your question";
  byId("sources-field").disabled = goesOn; // they were chosen when the conversation began
}

function clear() {
  for (const turn of thread.turns) turn.leave();
  thread.turns = [];
  thread.chat = null;
  thread.queued = false;
  byId("thread").replaceChildren();
  closeDocument({ focus: false });
  arrange();
}

const runPath = (id) => `/v1/runs/${encodeURIComponent(id)}`;

/** When a run began, in seconds: its id starts with the milliseconds, in Crockford's base 32. */
function begun(id) {
  const digits = "0123456789abcdefghjkmnpqrstvwxyz";
  const milliseconds = Array.from(id.slice(0, 9)).reduce((sum, c) => 32 * sum + digits.indexOf(c), 0);
  const now = Date.now() / 1000;
  const since = now - milliseconds / 1000;
  return since > 0 && since < 86400 ? now - since : now;
}

/** Opens a run that the address names, with the turns of its chat before it. */
async function openRun(id) {
  clear();
  byId("thread").replaceChildren(el("p", { class: "dim loading" }, "Loading …"));
  let record;
  try {
    record = await request(runPath(id));
  } catch (error) {
    byId("thread").replaceChildren(problem(error, { retry: error.status === 404 ? null : () => openRun(id) }));
    document.body.classList.add("has-thread");
    return;
  }
  if (wanted() !== id) return;
  byId("thread").replaceChildren();
  const chat = record.answer?.chat_id ?? chatOf(id);
  const before = chat && record.answer?.turn !== 1 ? await earlier(chat, id) : [];
  if (wanted() !== id) return;
  thread.chat = chat;
  for (const summary of before) {
    const turn = new Turn(summary.run_id, summary.question);
    show(turn);
    await fill(turn, await request(runPath(summary.run_id)));
  }
  const turn = new Turn(record.run_id, record.question);
  show(turn);
  document.title = `${turn.question} · Citehound`;
  await fill(turn, record);
  if (before.length) turn.title.scrollIntoView({ block: "start" });
}

async function fill(turn, record) {
  if (record.running) turn.follow({ started: begun(turn.run) });
  else {
    try {
      turn.load(record, await request(`${runPath(turn.run)}/events`));
    } catch (error) {
      turn.finish(record.answer, record);
      turn.fail(error);
    }
  }
}

/** The runs of a chat before one of them, oldest first. */
async function earlier(chat, id) {
  const runs = [];
  let before = id;
  for (let pages = 0; pages < 10 && before && runs.at(-1)?.turn !== 1; pages += 1) {
    const found = await request(`/v1/runs?limit=200&before=${encodeURIComponent(before)}`);
    runs.push(...found.runs.filter((run) => run.chat_id === chat));
    before = found.next_before;
  }
  return runs.reverse();
}

/** The chat of a run that is not over yet stands nowhere but here, so that a reload finds its turns. */
function chatOf(run) {
  try {
    return JSON.parse(sessionStorage.getItem("citehound-chats") ?? "{}")[run] ?? null;
  } catch {
    return null;
  }
}

function keepChat(run, chat) {
  try {
    const kept = Object.entries(JSON.parse(sessionStorage.getItem("citehound-chats") ?? "{}"));
    sessionStorage.setItem("citehound-chats", JSON.stringify(Object.fromEntries([...kept.slice(-20), [run, chat]])));
  } catch {
    // a reload shows this run alone until its answer is there
  }
}

const wanted = () => /^#\/runs\/([^/?]+)$/.exec(location.hash)?.[1] ?? null;

function route() {
  const id = wanted();
  if (!id) {
    if (/^#\/?$/.test(location.hash) || !location.hash) {
      if (thread.turns.length) clear();
      document.title = "Ask · Citehound";
      byId("thread").replaceChildren();
      byId("question").focus();
    }
    markHistory();
    return;
  }
  closeHistory();
  markHistory();
  if (!thread.turns.some((turn) => turn.run === id)) openRun(decodeURIComponent(id));
  else thread.turns.find((turn) => turn.run === id).title.scrollIntoView({ block: "start" });
}

// Asking --------------------------------------------------------------------------------------------------------------

function chosenSources() {
  const boxes = [...document.querySelectorAll("#sources input")];
  const on = boxes.filter((box) => box.checked).map((box) => box.value);
  return on.length === boxes.length ? null : on;
}

function body(question) {
  const asked = { question };
  const mode = byId("mode").value;
  if (mode) asked.mode = mode;
  const sources = chosenSources();
  if (sources) asked.sources = sources;
  if (byId("max-steps").value) asked.max_steps = Number(byId("max-steps").value);
  if (byId("max-dollars").value) asked.max_dollars = Number(byId("max-dollars").value);
  if (thread.chat) delete asked.sources; // they were chosen when the conversation began
  return { ...asked, chat_id: thread.chat ?? "new" };
}

async function ask(event) {
  event.preventDefault();
  const field = byId("question");
  const question = field.value.trim();
  const wrong = byId("ask").querySelector(".banner");
  wrong?.remove();
  if (!question || thread.sending) return;
  if (thread.turns.some((turn) => turn.running)) {
    thread.queued = true; // one question of a conversation at a time
    announce(byId("queued").textContent);
    arrange();
    return;
  }
  if (chosenSources()?.length === 0) {
    byId("options").open = true;
    byId("ask").prepend(problem(new Error("No source is chosen; choose at least one.")));
    return;
  }
  thread.sending = true;
  try {
    const started = await request("/v1/runs", { method: "POST", body: body(question) });
    field.value = "";
    grow();
    byId("options").open = false;
    if (thread.chat) keepChat(started.run_id, thread.chat);
    const turn = new Turn(started.run_id, question);
    show(turn);
    history.pushState(null, "", `#/runs/${encodeURIComponent(started.run_id)}`);
    document.title = `${question} · Citehound`;
    announce("The question is being worked on");
    turn.title.scrollIntoView({ block: "start" });
    turn.title.focus({ preventScroll: true });
    turn.follow();
    refreshHistory();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 404 && thread.chat) {
      const anew = () => {
        thread.chat = null;
        thread.sending = false;
        arrange();
        byId("ask").requestSubmit();
      };
      const gone = new Error("This conversation is no longer known to the server, so a follow-up cannot lean on it.");
      byId("ask").prepend(problem(gone, { retry: anew, label: "Ask it as a new question" }));
      return;
    }
    const wait = error.after ? new ApiError(`${error.message} (again in ${Math.ceil(error.after)} s)`) : error;
    byId("ask").prepend(problem(wait));
  } finally {
    thread.sending = false;
    arrange();
  }
}

function grow() {
  const field = byId("question");
  thread.queued = false; // what is being changed is not to be sent
  byId("queued").hidden = true;
  try {
    sessionStorage.setItem("citehound-draft", field.value); // a reload keeps what was begun to be written
  } catch {
    // it is lost then
  }
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, 240)}px`;
}

function optionsChanged() {
  const parts = [];
  const sources = chosenSources();
  parts.push(sources ? count(sources.length, "source") : "all sources");
  parts.push(byId("mode").value || "auto");
  if (byId("max-steps").value) parts.push(`${byId("max-steps").value} steps`);
  if (byId("max-dollars").value) parts.push(`$${byId("max-dollars").value}`);
  byId("options-summary").textContent = `Options: ${parts.join(", ")}`;
  try {
    sessionStorage.setItem("citehound-options", JSON.stringify({ mode: byId("mode").value, steps: byId("max-steps").value, dollars: byId("max-dollars").value, sources }));
  } catch {
    // they hold for this page
  }
}

function restoreOptions() {
  let kept = {};
  try {
    byId("question").value ||= sessionStorage.getItem("citehound-draft") ?? "";
    kept = JSON.parse(sessionStorage.getItem("citehound-options") ?? "{}");
  } catch {
    // none
  }
  if (MODES.includes(kept.mode)) byId("mode").value = kept.mode;
  byId("max-steps").value = kept.steps ?? "";
  byId("max-dollars").value = kept.dollars ?? "";
  return kept.sources ?? null;
}

async function loadSources() {
  const kept = restoreOptions();
  let sources;
  try {
    ({ sources } = await request("/v1/sources"));
  } catch (error) {
    byId("corpus").replaceChildren(problem(error, { retry: loadSources }));
    return;
  }
  byId("sources").replaceChildren(
    ...sources.map((source) => {
      const id = `source-${source.name}`;
      const box = el("input", { type: "checkbox", id, value: source.name });
      box.checked = !kept || kept.includes(source.name);
      return el("label", { class: "pick", for: id }, box, el("span", {}, source.name));
    }),
  );
  byId("sources-field").hidden = sources.length < 2;
  const cards = sources.map((source) =>
    el(
      "li",
      { class: "card" },
      el("p", { class: "card-title" }, el("a", { href: `/sources#${encodeURIComponent(source.name)}` }, source.name)),
      el("p", { dir: "auto" }, source.description),
      el("p", { class: "dim small" }, [source.documents ? count(source.documents, "document") : source.kind, source.trust === "open" ? "many can write here" : null].filter(Boolean).join(" · ")),
    ),
  );
  byId("corpus").replaceChildren(
    sources.length ? el("h2", {}, "What is searched") : "",
    sources.length ? el("ul", { class: "cards" }, cards) : el("p", {}, "There is no source yet. Name one in citehound.toml, then run citehound index."),
  );
  optionsChanged();
}

// History -------------------------------------------------------------------------------------------------------------

const MARKS = { complete: "verified", partial: "unverified", not_found: "missing", failed: "unverified", direct: "uncited", clarification: "uncited" };

async function refreshHistory() {
  try {
    const found = await request("/v1/runs?limit=40");
    known = [...(await Promise.all(found.running.map(ongoing))).filter(Boolean), ...found.runs];
    oldest = found.next_before;
  } catch (error) {
    byId("runs").replaceChildren(problem(error, { retry: refreshHistory }));
    return;
  }
  drawHistory();
}

/** A run that goes on, as a line of the history; null for one that ended meanwhile. */
async function ongoing({ run_id }) {
  try {
    const { running, waiting, question } = await request(runPath(run_id));
    return running ? { run_id, question, running, waiting, created: begun(run_id) } : null;
  } catch {
    return null;
  }
}

async function olderHistory(event) {
  event.currentTarget.disabled = true;
  const found = await request(`/v1/runs?limit=40&before=${encodeURIComponent(oldest)}`);
  const kept = byId("runs").querySelectorAll("a").length;
  known = known.concat(found.runs);
  oldest = found.next_before;
  drawHistory();
  byId("runs").querySelectorAll("a")[kept]?.focus();
}

function drawHistory() {
  if (!known.length) {
    byId("runs").replaceChildren(el("p", { class: "dim empty" }, "Questions that were asked stand here."));
    return;
  }
  const chats = new Set();
  const lines = [];
  for (const run of known) {
    if (run.chat_id && chats.has(run.chat_id)) continue;
    if (run.chat_id) chats.add(run.chat_id);
    const first = run.chat_id ? (known.filter((r) => r.chat_id === run.chat_id).sort((a, b) => a.turn - b.turn)[0] ?? run) : run;
    const { running } = run;
    const state = running ? ((run.waiting ?? null) === null ? "Running" : "Waiting") : (STATUS[run.status] ?? run.status);
    const turns = run.turn > 1 ? count(run.turn, "question") : null;
    lines.push(
      el(
        "li",
        {},
        el(
          "a",
          { href: `#/runs/${encodeURIComponent(run.run_id)}`, class: `run run-${running ? "running" : run.status}`, "data-run": run.run_id, "data-chat": run.chat_id ?? null },
          el("span", { class: "run-question", dir: "auto" }, first.question),
          el("span", { class: "run-meta" }, icon(running ? "pending" : (MARKS[run.status] ?? "uncited")), [state, turns, ago(run.created)].filter(Boolean).join(" · ")),
        ),
      ),
    );
  }
  const more = oldest === null ? "" : el("button", { class: "button small", type: "button", onclick: olderHistory }, "Older");
  byId("runs").replaceChildren(el("ul", { class: "runs" }, lines), more);
  markHistory();
}

function markHistory() {
  const id = wanted();
  for (const link of document.querySelectorAll("#runs a")) {
    const here = id !== null && (link.dataset.run === id || (link.dataset.chat && link.dataset.chat === thread.chat));
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function toggleHistory() {
  const open = document.body.classList.toggle("history-open");
  byId("history-button").setAttribute("aria-expanded", String(open));
  if (open) (byId("history").querySelector("a, button") ?? byId("history")).focus();
}

function closeHistory() {
  document.body.classList.remove("history-open");
  byId("history-button").setAttribute("aria-expanded", "false");
}

// The document beside the answer --------------------------------------------------------------------------------------

let viewer = null;
let opener = null;

async function openDocument(at, from = null) {
  const panel = byId("panel");
  if (!panel.contains(from)) opener = from;
  panel.hidden = false;
  document.body.classList.add("has-panel");
  if (narrow.matches) byId("main").inert = true;
  byId("panel-out").setAttribute("href", at.address);
  byId("panel-body").replaceChildren(el("p", { class: "dim loading", id: "panel-title" }, "Loading …"));
  byId("panel-close").focus();
  try {
    if (!viewer) {
      const { DocumentView } = await import("./document.js"); // not before it is needed
      viewer = new DocumentView(byId("panel-body"), { prefix: "panel-", open: openDocument });
    }
    const shown = await viewer.show(at);
    if (!shown) return;
    const target = viewer.settle();
    (target ?? byId("panel-title")).focus({ preventScroll: true });
    announce(`${shown.title}. ${viewer.marked ? "The quoted words are marked." : ""}`);
  } catch (error) {
    byId("panel-body").replaceChildren(el("h2", { id: "panel-title", tabindex: "-1" }, at.document), problem(error));
    byId("panel-title").focus();
  }
}

function closeDocument({ focus = true } = {}) {
  const panel = byId("panel");
  if (panel.hidden) return;
  panel.hidden = true;
  byId("main").inert = false;
  document.body.classList.remove("has-panel");
  byId("panel-body").replaceChildren();
  if (focus && opener?.isConnected) opener.focus();
  opener = null;
}

// Wiring --------------------------------------------------------------------------------------------------------------

byId("send").replaceChildren(icon("send"), hidden("Ask"));
byId("history-button").prepend(icon("history"));
byId("new").prepend(icon("plus"));
byId("panel-close").prepend(icon("close"));
byId("panel-out").prepend(icon("out"));
themeButton();
signOutButton();
byId("ask").addEventListener("submit", ask);
byId("question").addEventListener("input", grow);
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  byId("ask").requestSubmit();
});
byId("options").addEventListener("input", optionsChanged);
byId("history-button").addEventListener("click", toggleHistory);
byId("panel-close").addEventListener("click", () => closeDocument());
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("question").focus();
});
byId("new").addEventListener("click", (event) => {
  event.preventDefault();
  history.pushState(null, "", "/");
  closeHistory();
  route();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (!byId("panel").hidden) closeDocument();
  else if (document.body.classList.contains("history-open")) {
    closeHistory();
    byId("history-button").focus();
  }
});
narrow.addEventListener("change", () => (byId("main").inert = narrow.matches && !byId("panel").hidden));
addEventListener("hashchange", route);
addEventListener("popstate", route);
arrange();
loadSources();
refreshHistory();
if (wanted()) route();
