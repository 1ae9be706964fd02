// What states and reasons are called on the page, and the Markdown of an answer. No elements.

export const STATUS = {
  complete: "Complete",
  partial: "Partial answer",
  not_found: "Not found",
  direct: "Answered without documents",
  failed: "No answer",
  clarification: "What do you mean?",
};

export const STATUS_MEANS = {
  complete: "Every claim is verified, and every gap was searched for.",
  partial: "Read the marks, and what is missing.",
  not_found: "The documents do not answer this. What was searched stands below.",
  direct: "No document was used, so nothing here is cited.",
  failed: "There is nothing to show.",
  clarification: "Nothing was searched yet.",
};

export const STOPPED = {
  steps: "The step limit was reached before the search was done.",
  dollars: "The dollar limit was reached before the search was done.",
  seconds: "The time limit was reached before the search was done.",
  no_progress: "The same calls came again and again, so the search was ended.",
  context: "The model's context was full before the search was done.",
  refused: "The model refused to answer.",
  truncated: "The model's answer was cut off.",
  empty: "The model gave no answer.",
  cancelled: "It was stopped before it was done.",
  model_error: "The model could not be reached, or failed.",
};

export const VERDICT = { verified: "Verified", unverified: "Not verified", uncited: "No citation", pending: "Being checked" };

export const VERDICT_MEANS = {
  verified: "The quoted words stand in a document that was read, and the numbers agree.",
  unverified: "A check failed. Do not rely on this claim.",
  uncited: "Nothing that was read is cited for this claim. Do not rely on it.",
  pending: "The check is not done.",
};

export const KIND = { quoted: "", conclusion: "Conclusion", absence: "Absence" };

export const CELL = { found: "found", not_found: "nothing found", unverified: "not verified", not_reached: "not reached" };

/** "Searching contracts" and the like, for a call. */
export function toolName(tool) {
  if (tool.startsWith("search_")) return `Search ${tool.slice(7).replaceAll("_", " ")}`;
  return { read_document: "Read", find_in_document: "Look inside", list_documents: "List documents", follow_leads: "Follow leads" }[tool] ?? tool.replaceAll("_", " ");
}

/** A document's id where there is little room: its source and its name, without the folders between them. */
export function shortId(id) {
  const parts = id.split("/");
  return parts.length > 3 ? `${parts[0]}/…/${parts.at(-1)}` : id;
}

export function place({ document, section, page }) {
  return `${document}${section ? ` §${section}` : ""}${page ? `, page ${page}` : ""}`;
}

/** Why a claim is not verified, each reason once. */
export function reasons(claim) {
  const found = claim.citations.filter((c) => c.status !== "verified" && c.reason).map((c) => `${c.document}: ${c.reason}`);
  const notes = claim.warnings.filter((w) => !w.startsWith("clipped") && !w.startsWith("converted"));
  return [...new Set(found.length ? found : notes)];
}

/** What makes an answer less than complete, as sentences. */
export function caveats(answer) {
  const found = [];
  if (STOPPED[answer.stop_reason]) found.push(STOPPED[answer.stop_reason]);
  const of = (status) => answer.claims.filter((c) => c.status === status).length;
  const are = (n, one, many) => (n === 1 ? one : many.replace("#", n));
  if (of("unverified")) found.push(are(of("unverified"), "One claim could not be verified.", "# claims could not be verified."));
  if (of("uncited")) found.push(are(of("uncited"), "One claim has no citation.", "# claims have no citation."));
  const unchecked = answer.missing.filter((gap) => gap.status === "unchecked").length;
  if (unchecked) found.push(are(unchecked, "One missing thing was not searched for.", "# missing things were not searched for."));
  return found;
}

// Markdown ------------------------------------------------------------------------------------------------------------

/** Text that Markdown shows as it is: no markup, no picture, no link, also none that a reader makes of an address. */
export function plain(text) {
  return text
    .replace(/\s+/g, " ")
    .trim()
    .replace(/[\\`*_[\]<>|~#!$&]/g, "\\$&")
    .replace(/:\/\//g, "\\://")
    .replace(/\b(www)\./gi, "$1\\.")
    .replace(/@/g, "\\@");
}

function line(answer, claim, number, refer) {
  const marks = claim.citations.filter((c) => c.status === "verified").map(refer);
  const parts = [`${number}. ${plain(claim.text)}`];
  if (marks.length) parts.push([...new Set(marks)].join(" "));
  if (claim.kind === "conclusion" && claim.premises.length) parts.push(`(from ${claim.premises.join(", ")})`);
  if (claim.kind === "absence" && claim.terms?.length) parts.push(`(looked for: ${claim.terms.map(plain).join(", ")})`);
  const labels = [...new Set(claim.citations.flatMap((c) => c.labels ?? []))];
  if (labels.length) parts.push(`(${plain(labels.join("; "))})`);
  if (claim.status !== "verified") {
    const why = reasons(claim);
    parts.push(`**(${VERDICT[claim.status].toLowerCase()}${why.length ? `: ${plain(why.join("; "))}` : ""})**`);
  }
  return parts.join(" ");
}

/** The answer as Markdown, with numbered references that name document, section, page and quote. */
export function markdown(answer) {
  const references = [];
  const known = new Map();
  const refer = (citation) => {
    const key = JSON.stringify([citation.document, citation.section, citation.start, citation.end]);
    if (!known.has(key)) {
      references.push(citation);
      known.set(key, references.length);
    }
    return `\\[${known.get(key)}\\]`;
  };
  const out = [`## ${plain(answer.question)}`, ""];
  out.push(`**${STATUS[answer.status] ?? answer.status}.** ${[STATUS_MEANS[answer.status] ?? "", ...caveats(answer)].join(" ").trim()}`, "");
  if (answer.claims.length) out.push(...answer.claims.map((claim, at) => line(answer, claim, at + 1, refer)));
  else if (answer.clarification || answer.status === "direct") out.push(plain(answer.clarification || answer.text));
  if (answer.rows?.length) {
    const columns = answer.rows[0].cells.map((cell) => plain(cell.column));
    out.push("", `| document | ${columns.join(" | ")} |`, `| --- | ${columns.map(() => "---").join(" | ")} |`);
    for (const row of answer.rows) {
      const cells = row.cells.map((cell) => (cell.status === "found" ? `${plain(cell.text)} (${cell.claims.join(", ")})` : `*${CELL[cell.status]}*${cell.text ? ` ${plain(cell.text)}` : ""}`));
      out.push(`| ${plain(row.document)} | ${cells.join(" | ")} |`);
    }
  }
  if (answer.missing.length) {
    if (out.at(-1) !== "") out.push("");
    out.push("**Missing**", "");
    for (const gap of answer.missing) {
      const where = gap.sources.length ? ` in ${plain(gap.sources.join(", "))}` : "";
      const terms = gap.queries.length ? `: ${gap.queries.map((q) => `"${plain(q)}"`).join(", ")}` : "";
      out.push(`- ${plain(gap.what)} ${gap.status === "checked" ? `(searched${where}${terms})` : "**(not searched)**"}`);
    }
  }
  if (references.length) {
    out.push("", "**References**", "");
    references.forEach((c, at) => out.push(`${at + 1}. ${plain(place(c))}: "${plain(c.quote)}"`));
  }
  out.push("", `*Citehound, ${plain(answer.model)}, run ${plain(answer.run_id)}. Verified means quoted word for word from what was read; it does not mean true.*`, "");
  return out.join("\n");
}
