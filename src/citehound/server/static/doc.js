// The page of one document: what stands in its address, shown whole, at the section or the quote that is named there.

import { request, signOutButton } from "./api.js";
import { DocumentView } from "./document.js";
import { announce, byId, el, problem, themeButton } from "./ui.js";

const number = (text) => (text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null);

function wanted() {
  const query = new URLSearchParams(location.search);
  return {
    document: decodeURIComponent(location.pathname.replace(/^\/doc\//, "")),
    section: query.get("section"),
    start: number(query.get("start")),
    end: number(query.get("end")),
    page: number(query.get("page")),
    quote: query.get("quote"),
    run: query.get("run"),
  };
}

/** What the run's answer found out about the quote, so that a failed one never looks like a verified one. */
async function cited(at) {
  if (!at.run || !/^[0-9a-z]+$/.test(at.run)) return null;
  try {
    const { answer } = await request(`/v1/runs/${at.run}`);
    return answer?.claims.flatMap((claim) => claim.citations).find((c) => c.document === at.document && c.start === at.start && c.end === at.end) ?? null;
  } catch {
    return null;
  }
}

async function show() {
  const main = byId("main");
  const viewer = new DocumentView(main, { heading: "h1" });
  let at = { document: location.pathname };
  try {
    at = wanted();
    at.citation = await cited(at);
    const shown = await viewer.show(at);
    if (!shown) return;
    document.title = `${shown.title} · Citehound`;
    if (at.run && /^[0-9a-z]+$/.test(at.run)) main.prepend(el("p", {}, el("a", { href: `/#/runs/${at.run}` }, "Back to the answer")));
    const target = viewer.settle();
    target?.focus({ preventScroll: true });
    announce(`${shown.title}. ${viewer.marked ? "The quoted words are marked." : ""}`);
  } catch (error) {
    main.replaceChildren(el("h1", {}, at.document), problem(error, { retry: error.status === 404 ? null : show }));
  }
}

themeButton();
signOutButton();
show();
