// The server as functions: JSON requests, the event stream of a run, and the token where the server wants one.

import { byId, el } from "./ui.js";

export class ApiError extends Error {
  constructor(message, { status = 0, type = "", after = null } = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.after = after;
  }
}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

async function failure(response) {
  let said = {};
  try {
    said = (await response.json()).error ?? {};
  } catch {
    // not JSON: a proxy in between
  }
  const message = said.message ?? `the server answered ${response.status}; try again, or ask who runs it`;
  const after = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  return new ApiError(message, { status: response.status, type: said.type ?? "", after: Number.isFinite(after) ? after : null });
}

async function send(path, { method = "GET", body, signal, headers = {} } = {}) {
  const wanted = { Accept: "application/json", ...headers };
  if (body !== undefined) wanted["Content-Type"] = "application/json";
  for (;;) {
    let response;
    try {
      response = await fetch(path, {
        method,
        headers: wanted,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        credentials: "same-origin",
        cache: "no-store",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError("the server cannot be reached; check that it runs, then try again", { type: "connection" });
    }
    if (response.ok) return response;
    const error = await failure(response);
    if (error.status !== 401) throw error;
    await login();
  }
}

/** The JSON of a request. Asks for the token when the server wants one, then goes on. Throws ApiError. */
export async function request(path, options = {}) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

export const idPath = (id) => id.split("/").map(encodeURIComponent).join("/");

let asking = null;

/** Asks for the token until the server takes it. One dialog, however many requests wait for it. */
function login() {
  asking ??= new Promise((resolve) => {
    const field = el("input", { id: "token-field", type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
    const note = el("p", { class: "dim", id: "token-note" }, "This server wants a token. Who runs it can give you one; it stays in this browser until you sign out.");
    const wrong = el("p", { class: "bad", role: "alert" });
    const form = el(
      "form",
      { method: "dialog" },
      el("h2", { id: "token-title" }, "Sign in"),
      note,
      el("label", { for: "token-field" }, "Token"),
      field,
      wrong,
      el("button", { class: "button primary", type: "submit" }, "Sign in"),
    );
    const dialog = el("dialog", { class: "dialog", "aria-labelledby": "token-title", "aria-describedby": "token-note" }, form);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      wrong.textContent = "";
      let response;
      try {
        response = await fetch("/v1/session", {
          method: "POST",
          headers: { "Content-Type": "application/json", Accept: "application/json" },
          body: JSON.stringify({ token: field.value.trim() }),
          credentials: "same-origin",
        });
      } catch {
        wrong.textContent = "the server cannot be reached; try again";
        return;
      }
      if (!response.ok) {
        wrong.textContent = (await failure(response)).message;
        field.select();
        return;
      }
      dialog.close();
      dialog.remove();
      asking = null;
      signedIn();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
  return asking;
}

/** Shows the sign-out button; a page calls it when its session is known. */
function signedIn() {
  try {
    localStorage.setItem("citehound-session", "1"); // that there is one, for the button; the cookie is out of reach
  } catch {
    // the button stays hidden
  }
  signOutButton();
}

export function signOutButton() {
  const button = byId("sign-out");
  let open = false;
  try {
    open = localStorage.getItem("citehound-session") === "1";
  } catch {
    // no storage
  }
  if (!button || !open || !button.hidden) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await fetch("/v1/session", { method: "DELETE", credentials: "same-origin" }).catch(() => null);
    sessionStorage.clear();
    localStorage.removeItem("citehound-session");
    location.assign("/");
  });
}

function parsed(block) {
  let id = null;
  const data = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at === 0 || !line) continue;
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "id") id = value;
    if (name === "data") data.push(value);
  }
  return data.length ? { id, event: JSON.parse(data.join("\n")) } : null;
}

/**
 * The events of a run, from its first; ends when the run is over and recorded. A lost connection is made anew and goes on after the last
 * event that arrived; `onlost(seconds)` and `onback()` tell of it. Throws ApiError when the run is gone.
 */
export async function* events(runId, { signal, onlost = () => {}, onback = () => {} } = {}) {
  let last = null;
  let tries = 0;
  let over = false;
  while (!signal?.aborted) {
    try {
      const headers = { Accept: "text/event-stream" };
      if (last !== null) headers["Last-Event-ID"] = last;
      const response = await send(`/v1/runs/${encodeURIComponent(runId)}/events`, { headers, signal });
      if (tries) onback();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      let carry = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        tries = 0;
        const text = carry + value;
        carry = text.endsWith("\r") ? "\r" : ""; // half of a line end, perhaps
        rest += text.slice(0, text.length - carry.length).replace(/\r\n?/g, "\n");
        for (let at = rest.indexOf("\n\n"); at >= 0; at = rest.indexOf("\n\n")) {
          const found = parsed(rest.slice(0, at));
          rest = rest.slice(at + 2);
          if (!found) continue;
          if (found.id !== null) last = found.id;
          over ||= found.event.type === "answer" || found.event.type === "error";
          yield found.event;
        }
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof ApiError && error.status && error.status !== 429 && error.status < 500) throw error;
    }
    if (over) return;
    tries += 1;
    const wait = Math.min(15, 0.5 * 2 ** Math.min(tries - 1, 5));
    onlost(wait);
    await pause(wait * 1000, signal);
  }
}
