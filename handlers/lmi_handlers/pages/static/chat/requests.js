// @ts-check
// The same request in every dialect that the server speaks: to copy, and to send beside the chat.

import { announce } from "../shared/announce.js";
import { copy } from "../shared/copy.js";
import { button, element } from "../shared/dom.js";
import { texts } from "../shared/events.js";
import { origin, request as sendRequest } from "../shared/server.js";
import { curl } from "../dialects/curl.js";
import { KEY_VARIABLE } from "../dialects/python.js";
import { renderedPrompt } from "../dialects/rendered.js";
import { DIALECTS } from "../dialects/table.js";

/**
 * @typedef {import("../dialects/query.js").Query} Query
 * @typedef {import("../dialects/query.js").Dialect} Dialect
 * @typedef {import("../dialects/query.js").Request} Request
 */

const LATER_MS = 250; // after the last change, because the server may have to render the prompt
const KEY_NOTE = `The API key is read from the environment variable ${KEY_VARIABLE}.`;
const LONGEST_STRING = 400; // characters of one text that are shown; images are longer

export class RequestsPanel {
  /** @param {() => Query} query */
  constructor(query) {
    this.query = query;
    this.isShown = false;
    this.code = "";
    this.writes = 0; // how often the request was written, to know the newest
    /** @type {{ dialect: Dialect, query: Query, request: Request } | null} */
    this.current = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.later = undefined;
    /** @type {AbortController | null} */
    this.sending = null;
    this.dialects = element("select", { id: "dialect", change: () => void this.write() });
    this.form = element("select", { id: "form", change: () => void this.write() },
      ...["curl", "Python", "JSON"].map((name) => element("option", {}, name)));
    this.stream = element("input", { type: "checkbox", id: "stream", change: () => void this.write() });
    this.shown = element("pre", { tabindex: 0, "aria-label": "Request" });
    this.place = element("div", { class: "code" }, this.shown);
    this.note = element("p", { class: "quiet-text" });
    this.copied = button("Copy", () => copy(this.copied, this.code));
    this.send = button("Send request", () => void this.#send(), { class: "main" });
    this.answer = element("section", { "aria-label": "Raw answer", hidden: true });
    this.element = element("div", {},
      element("p", { class: "quiet-text" }, "The chat's last request, or the one being written, in each of the server's dialects."),
      element("div", { class: "choices" },
        labelled("dialect", "Dialect", this.dialects), labelled("form", "Format", this.form)),
      element("label", { class: "check" }, this.stream, " Stream"),
      this.note,
      this.place,
      element("div", { class: "buttons" }, this.send, this.copied),
      this.answer);
  }

  /** @param {boolean} shown whether the panel can be seen */
  show(shown) {
    this.isShown = shown;
    if (shown) void this.write();
  }

  /** Write the request anew, soon. */
  changed() {
    clearTimeout(this.later);
    if (!this.isShown) return;
    this.#busy(true);
    this.later = setTimeout(() => void this.write(), LATER_MS);
  }

  /** The chosen dialect, if it fits the query. */
  get #dialect() {
    return DIALECTS.find((each) => each.id === this.dialects.value) ?? DIALECTS[0];
  }

  /** Write the request as it is now. */
  async write() {
    clearTimeout(this.later);
    const write = ++this.writes;
    this.#busy(true);
    const given = this.query();
    this.#offer(given);
    const dialect = this.#dialect;
    const query = { ...given, stream: this.stream.checked && dialect.streams };
    const { request, why } = await requestIn(dialect, query);
    if (write !== this.writes) return; // something was changed meanwhile
    const form = this.form.value;
    this.stream.disabled = !dialect.streams;
    this.note.textContent = why || (query.keyed && form !== "JSON" ? KEY_NOTE : "");
    this.current = request && { dialect, query, request };
    this.code = request ? written(form, dialect, query, request) : "";
    this.shown.textContent = request ? written(form, dialect, query, shortened(request)) : "";
    this.place.hidden = !request;
    this.#busy(false);
  }

  /** @param {boolean} busy whether the request that is shown is not the newest */
  #busy(busy) {
    this.place.setAttribute("aria-busy", String(busy));
    this.send.disabled = this.copied.disabled = busy || !this.current;
  }

  #offer(/** @type {Query} */ query) {
    const fitting = DIALECTS.filter((each) => each.modes.includes(query.mode));
    const before = this.dialects.value;
    if (fitting.map((each) => each.id).join() === [...this.dialects.options].map((each) => each.value).join()) return;
    this.dialects.replaceChildren(...fitting.map((each) => element("option", { value: each.id }, each.label)));
    if (fitting.some((each) => each.id === before)) this.dialects.value = before;
  }

  async #send() {
    if (!this.current) return;
    const { dialect, query, request } = this.current;
    this.sending?.abort();
    const running = new AbortController();
    this.sending = running;
    const raw = element("pre", { class: "raw", tabindex: 0, "aria-label": "Body" });
    const facts = element("div", { class: "answer-facts" }, element("span", {}, "..."));
    this.answer.hidden = false;
    this.answer.replaceChildren(facts, element("div", { class: "code" }, raw));
    const start = performance.now();
    try {
      const headers = { "Content-Type": "application/json", ...request.headers };
      const response = await sendRequest(request.path, {
        method: "POST", headers, body: JSON.stringify(request.body), signal: running.signal,
      });
      for await (const text of texts(response)) raw.append(text);
      const seconds = ((performance.now() - start) / 1000).toFixed(2);
      const values = [`Status ${response.status}`, response.headers.get("content-type") ?? "", `${seconds} s`];
      facts.replaceChildren(...values.map((fact) => element("span", {}, fact)));
      if (!query.stream) this.#showText(dialect, raw);
      announce(`${dialect.label}: answer received`);
    } catch (error) {
      if (running.signal.aborted) return;
      facts.replaceChildren();
      const message = error instanceof Error ? error.message : String(error);
      this.answer.replaceChildren(element("p", { class: "wrong", role: "alert" }, message));
    }
  }

  /**
   * Show the text that the answer has, above the answer.
   * @param {Dialect} dialect
   * @param {HTMLElement} raw
   */
  #showText(dialect, raw) {
    try {
      const answer = JSON.parse(raw.textContent ?? "");
      const text = dialect.text(answer);
      raw.textContent = JSON.stringify(answer, null, 2);
      this.answer.insertBefore(element("h3", {}, "Text"), raw.parentElement);
      this.answer.insertBefore(element("div", { class: "text" }, text ?? ""), raw.parentElement);
      this.answer.insertBefore(element("h3", {}, "Body"), raw.parentElement);
    } catch {
      // The model's own formatter wrote it: the body is all there is to show.
    }
  }
}

/**
 * Return the request in this dialect, or why there is none.
 * @param {Dialect} dialect
 * @param {Query} query
 * @returns {Promise<{ request: Request | null, why: string }>}
 */
async function requestIn(dialect, query) {
  if (query.mode === "text" || !dialect.promptOnly) return { request: dialect.request(query), why: "" };
  if (query.messages.some((message) => Array.isArray(message.content))) {
    return { request: null, why: "This dialect accepts only text, and this chat has images." };
  }
  try {
    const prompt = await renderedPrompt(query);
    if (!prompt) return { request: null, why: "This chat's tokens cannot be written as text, so this dialect cannot send it." };
    const why = "This dialect has no chats: the prompt is this chat, rendered by the model's chat template.";
    return { request: dialect.request({ ...query, prompt }), why };
  } catch (error) {
    return { request: null, why: error instanceof Error ? error.message : String(error) };
  }
}

/**
 * @param {string} id
 * @param {string} label
 * @param {HTMLElement} control
 */
function labelled(id, label, control) {
  return element("div", { class: "field" }, element("label", { for: id }, label), control);
}

/**
 * @param {string} form
 * @param {import("../dialects/query.js").Dialect} dialect
 * @param {Query} query
 * @param {import("../dialects/query.js").Request} request
 */
function written(form, dialect, query, request) {
  if (form === "Python") return dialect.python(query, request, origin());
  if (form === "curl") return curl(request, origin(), query);
  return `${JSON.stringify(request.body, null, 2)}\n`;
}

/**
 * Return the request with its long strings, such as images, cut for the eye.
 * @template T
 * @param {T} value
 * @returns {T}
 */
function shortened(value) {
  const cut = (/** @type {string} */ _, /** @type {any} */ each) => (typeof each === "string" && each.length > LONGEST_STRING && !/\s/.test(each)
    ? `${each.slice(0, 40)}... (${each.length} characters)` : each);
  return JSON.parse(JSON.stringify(value, cut));
}
