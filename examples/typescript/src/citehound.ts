// Citehound's HTTP API as far as a loop of your own needs it: search, read, and the check of the answer.

export interface Hit {
  document: string;
  section: string | null;
  title: string;
  snippet: string;
  current: boolean;
  labels: string[];
}

export interface Passage {
  document: string;
  section: string | null;
  title: string;
  text: string;
  start: number;
  end: number;
  next_start: number | null;
  current: boolean;
}

export interface DraftClaim {
  text: string;
  kind?: "quoted" | "conclusion" | "absence";
  citations?: readonly { document: string; quote: string }[];
  premises?: readonly number[];
}

export interface Claim {
  text: string;
  status: "verified" | "unverified" | "uncited";
  warnings: string[];
  citations: { document: string; section: string | null; quote: string; status: string; reason: string | null }[];
}

export interface Checked {
  status: string;
  claims: Claim[];
  missing: { what: string; status: string }[];
  feedback: string[];
}

export interface Place {
  document: string;
  start: number;
  end: number;
}

export class Citehound {
  // What this conversation has read: a quote counts only where the text around it was.
  readonly read: Place[] = [];

  constructor(
    private readonly base: string,
    private readonly token?: string,
  ) {}

  async search(source: string | undefined, query: string): Promise<Hit[]> {
    const found = await this.post<{ hits: Hit[] }>("/v1/search", { query, ...(source ? { source } : {}) });
    return found.hits.map(({ document, section, title, snippet, current, labels }) => {
      return { document, section, title, snippet, current, labels };
    });
  }

  async readDocument(document: string, section?: string, start?: number): Promise<Passage> {
    const query = new URLSearchParams();
    if (section) query.set("section", section);
    if (start) query.set("start", String(start));
    const path = document.split("/").map(encodeURIComponent).join("/");
    const passage = await this.request<Passage>(`/v1/documents/${path}?${query}`, {});
    this.read.push({ document: passage.document, start: passage.start, end: passage.end });
    return passage;
  }

  async sources(): Promise<{ name: string; description: string }[]> {
    return (await this.request<{ sources: { name: string; description: string }[] }>("/v1/sources", {})).sources;
  }

  async verify(question: string, claims: readonly DraftClaim[], missing: readonly { what: string }[]): Promise<Checked> {
    return this.post<Checked>("/v1/verify", { question, claims, missing, read: this.read });
  }

  private post<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  }

  private async request<T>(path: string, init: RequestInit): Promise<T> {
    const headers = { ...init.headers, ...(this.token ? { authorization: `Bearer ${this.token}` } : {}) };
    const answer = await fetch(this.base + path, { ...init, headers });
    const body = (await answer.json()) as T & { error?: { message: string } };
    if (!answer.ok) throw new Error(body.error?.message ?? `HTTP ${answer.status}`);
    return body;
  }
}
