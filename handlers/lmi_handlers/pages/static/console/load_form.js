// @ts-check
// The form that has the server load a model, with the fields of DJLServing's `POST /models`.

import { announce } from "../shared/announce.js";
import { element } from "../shared/dom.js";
import { get, post } from "../shared/server.js";
import { BUSY } from "./words.js";

/** @typedef {{ name: string, label: string, help: string, type?: string, min?: number, required?: boolean, choices?: string[] }} Field */

/** @type {Field[]} */
const FIELDS = [
  { name: "url", label: "Model", help: "A model directory or archive on the server's host, its web or S3 URL, or a model on the Hugging Face hub, such as org/name", required: true },
  { name: "model_name", label: "Name", help: "The name in requests; by default, the last part of the model's address" },
  { name: "model_version", label: "Version", help: "Several versions of a model can be loaded" },
];

/** @type {Field[]} */
const MORE = [
  { name: "engine", label: "Engine", help: "As in DJLServing; both have the same effect here", choices: ["Python", "MPI"] },
  { name: "device", label: "Device", help: "cpu, gpu0, or the number of a GPU" },
  { name: "job_queue_size", label: "Queue size", help: "Maximum number of waiting requests", type: "number", min: 1 },
  { name: "batch_size", label: "Batch size", help: "Maximum number of requests in a dynamic batch", type: "number", min: 1 },
  { name: "max_batch_delay", label: "Batch delay", help: "Milliseconds that a dynamic batch waits for more requests", type: "number", min: 0 },
  { name: "min_worker", label: "Min workers", help: "Processes of a model function", type: "number", min: 0 },
  { name: "max_worker", label: "Max workers", help: "Processes of a model function", type: "number", min: 1 },
  { name: "max_idle_time", label: "Idle time", help: "Seconds until idle workers are stopped", type: "number", min: 1 },
];
const AGAIN_MS = 200;
const SOON_MS = 2000; // a model that takes longer loads on in the table
const OPTION = /^\s*(option\.[^\s=:]+)\s*=\s*(.*?)\s*$/;

export class LoadForm {
  /** @param {() => void} changed called when a model is being loaded */
  constructor(changed) {
    this.changed = changed;
    this.wrong = element("p", { class: "wrong", role: "alert", hidden: true });
    this.send = element("button", { class: "main" }, "Load");
    this.options = element("textarea", { id: "load-options", rows: 3, class: "mono", "aria-describedby": "load-options-help" });
    this.unloads = element("input", { type: "checkbox", id: "load-unload_idle" });
    this.form = element("form", { method: "dialog" },
      element("h2", { id: "load-title" }, "Load a model"),
      element("p", { class: "quiet-text" }, "The model's own code, such as model.py, runs on the server. Other models keep serving."),
      ...FIELDS.map(field),
      element("div", { class: "field" },
        element("label", { for: "load-options" }, "Options"), this.options,
        element("div", { class: "help", id: "load-options-help" }, "One per line, overriding the model's own: option.dtype=bf16")),
      element("details", {}, element("summary", {}, "More settings"),
        element("div", { class: "pairs" }, ...MORE.map(field)),
        element("label", { class: "check" }, this.unloads, " Unload the model after the idle time; the next request loads it again")),
      this.wrong,
      element("p", { class: "buttons" }, this.send,
        element("button", { type: "button", click: () => this.dialog.close() }, "Cancel")));
    this.dialog = element("dialog", { "aria-labelledby": "load-title", class: "wide-dialog" }, this.form);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#load();
    });
    document.body.append(this.dialog);
  }

  open() {
    this.wrong.hidden = true;
    this.dialog.showModal();
  }

  async #load() {
    this.send.disabled = true;
    this.wrong.hidden = true;
    try {
      const body = this.#body();
      announce(`Loading ${body.model_name ?? body.url}`);
      await post("/models", body);
      const failure = await failureOf(body);
      if (failure) throw new Error(failure);
      this.form.reset();
      this.dialog.close();
      this.changed();
    } catch (error) {
      this.wrong.textContent = error instanceof Error ? error.message : String(error);
      this.wrong.hidden = false;
    }
    this.send.disabled = false;
  }

  /** What is filled in. Throws an error where a line is not an option. */
  #body() {
    const given = [...FIELDS, ...MORE].map(({ name, type }) => {
      const text = /** @type {HTMLInputElement} */ (this.form.elements.namedItem(name)).value.trim();
      return [name, type === "number" && text ? Number(text) : text];
    });
    return {
      ...Object.fromEntries(given.filter(([, value]) => value !== "")),
      ...(this.unloads.checked ? { unload_idle: true } : {}),
      ...options(this.options.value),
      synchronous: false,
    };
  }
}

/**
 * Return why the server cannot load a model if that fails soon.
 * @param {Record<string, any>} body of the request that registered it
 */
async function failureOf({ url, model_name: name, model_version: version }) {
  for (const end = performance.now() + SOON_MS; performance.now() < end;) {
    /** @type {import("./words.js").State} */
    const { models } = await get("/console/state");
    const found = models.find((each) => (name ? each.modelName === name : each.modelUrl === url) && each.version === version);
    if (!found || !BUSY.includes(found.state)) return found?.reason;
    await new Promise((resume) => setTimeout(resume, AGAIN_MS));
  }
}

/**
 * Return the options in a text, one in each line.
 * @param {string} text
 * @returns {Record<string, string>}
 */
function options(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(lines.map((line) => {
    const found = OPTION.exec(line);
    if (!found) throw new Error(`Each line of the options must be option.NAME=VALUE. Given: ${line.trim()}`);
    return [found[1], found[2]];
  }));
}

/** @param {Field} given */
function field({ name, label, help, type = "text", min, required = false, choices }) {
  const attributes = { id: `load-${name}`, name, "aria-describedby": `load-${name}-help` };
  const control = choices
    ? element("select", attributes, element("option", { value: "" }, "the model's own"), ...choices.map((each) => element("option", {}, each)))
    : element("input", { ...attributes, type, min, required, autocomplete: "off", spellcheck: "false" });
  return element("div", { class: "field" },
    element("label", { for: `load-${name}` }, label), control,
    element("div", { class: "help", id: `load-${name}-help` }, help));
}
