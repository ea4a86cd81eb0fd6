// @ts-check
// One version of a model: what it does now, and what can be done with it.

import { announce } from "../shared/announce.js";
import { button, element } from "../shared/dom.js";
import { request } from "../shared/server.js";
import { confirmed } from "./confirm.js";
import { Curve } from "./rates.js";
import { BUSY, count, duration, fullName, rate, several, size } from "./words.js";

/** @typedef {import("./words.js").Model} Model */

const BAD = ["failed", "unhealthy"];

export class ModelRow {
  /** @param {() => void} changed called when the model was changed */
  constructor(changed) {
    this.changed = changed;
    /** @type {Model | null} */
    this.model = null;
    /** @type {Model[]} */
    this.versions = [];
    this.isBusy = false; // a request that changes the model runs
    this.name = element("div", { class: "name" });
    this.facts = element("div", { class: "quiet-text" });
    this.state = element("span", { class: "badge" });
    this.reason = element("p", { class: "reason", hidden: true });
    this.progress = element("progress", { hidden: true, max: 1 });
    this.warnings = element("ul", { class: "quiet-text" });
    this.warned = element("details", { hidden: true }, element("summary", {}), this.warnings);
    this.queue = element("div");
    this.size = element("div", { class: "quiet-text" });
    this.rate = element("span", { class: "number" });
    this.curve = new Curve(120, 26);
    this.tokens = element("div", { class: "quiet-text" });
    this.requests = element("div");
    this.failed = element("div", { class: "quiet-text" });
    this.memory = element("div");
    this.workers = element("div", { class: "quiet-text" });
    this.adapters = element("div");
    this.unloadButton = button("Unload", () => void this.unload());
    this.defaultButton = button("Make default", () => void this.makeDefault(), { class: "quiet" });
    this.actions = element("div", { class: "actions" }, this.unloadButton, this.defaultButton);
    this.wrong = element("p", { class: "wrong", role: "alert", hidden: true });
    this.element = element("tr", {},
      element("th", { scope: "row" }, this.name, this.facts),
      cell("State", this.state, this.progress, this.reason, this.warned),
      cell("Queue", this.queue, this.size),
      cell("Tokens per second", element("div", { class: "rate" }, this.rate, this.curve.element), this.tokens),
      cell("Requests", this.requests, this.failed),
      cell("Memory", this.memory, this.workers),
      cell("Adapters", this.adapters),
      cell("", this.actions, this.wrong));
  }

  /**
   * @param {Model} model
   * @param {Model[]} versions all versions of the same name
   * @param {number[]} rates tokens per second, the newest last
   */
  show(model, versions, rates) {
    this.model = model;
    this.versions = versions;
    this.#showName(model);
    this.#showState(model);
    write(this.queue, `${count(model.running)} running, ${count(model.waiting)} waiting`);
    write(this.size, model.queueSize ? `up to ${count(model.queueSize)}` : "");
    write(this.rate, rate(rates.at(-1) ?? 0));
    this.curve.show(rates);
    write(this.tokens, `${count(model.generatedTokens)} generated, ${count(model.promptTokens)} in prompts`);
    write(this.requests, several(model.requests, "request"));
    write(this.failed, model.failedRequests ? `${count(model.failedRequests)} failed` : "");
    this.#showMemory(model);
    write(this.adapters, model.adapters.join(", ") || "none");
    this.#showActions(model);
  }

  #showName(/** @type {Model} */ model) {
    const badges = [
      ...(model.version === undefined ? [] : [`version ${model.version}`]),
      ...(model.default && this.versions.length > 1 ? ["default"] : []),
    ];
    const shown = `${model.modelName}\n${badges.join("\n")}`;
    if (this.name.dataset.shown !== shown) {
      this.name.dataset.shown = shown;
      this.name.replaceChildren(element("span", { class: "title" }, model.modelName),
        ...badges.map((text) => element("span", { class: "badge" }, text)));
    }
    write(this.facts, [model.backend, model.modelUrl].filter(Boolean).join(" · "));
  }

  #showState(/** @type {Model} */ model) {
    write(this.state, model.state);
    this.state.className = BAD.includes(model.state) ? "badge bad" : BUSY.includes(model.state) ? "badge busy" : "badge good";
    const reason = model.reason ?? model.progress?.what ?? "";
    write(this.reason, reason);
    this.reason.hidden = !reason;
    const share = model.progress?.share ?? null;
    this.progress.hidden = !model.progress;
    if (share === null) this.progress.removeAttribute("value");
    else this.progress.value = share;
    this.progress.setAttribute("aria-label", `Progress of loading ${fullName(model)}`);
    this.warned.hidden = model.warnings.length === 0;
    const summary = /** @type {HTMLElement} */ (this.warned.firstElementChild);
    write(summary, several(model.warnings.length, "warning"));
    if (this.warnings.childElementCount !== model.warnings.length) {
      this.warnings.replaceChildren(...model.warnings.map((text) => element("li", {}, text)));
    }
  }

  #showMemory(/** @type {Model} */ model) {
    write(this.memory, model.memory === null ? (model.state === "ready" ? "in the server's process" : "none") : size(model.memory));
    const facts = [
      ...(model.workers.length === 1 ? [`process ${model.workers[0].processId}`] : []),
      ...(model.workers.length > 1 ? [`${model.workers.length} processes`] : []),
      ...(model.restarts ? [several(model.restarts, "restart")] : []),
      ...(model.cacheUsage === null ? [] : [`cache ${Math.round(100 * model.cacheUsage)} % in use`]),
      ...(model.loadedAt === null || model.state !== "ready" ? [] : [`loaded ${duration(Date.now() / 1000 - model.loadedAt)} ago`]),
    ];
    write(this.workers, facts.join(", "));
  }

  #showActions(/** @type {Model} */ model) {
    const name = fullName(model);
    write(this.unloadButton, model.state === "failed" ? "Remove" : "Unload");
    this.unloadButton.setAttribute("aria-label", `${this.unloadButton.textContent} ${name}`);
    const isBusy = this.isBusy || model.state === "unloading";
    // Not `disabled`, which would take the focus from the button that was pressed.
    for (const each of [this.unloadButton, this.defaultButton]) each.setAttribute("aria-disabled", String(isBusy));
    this.defaultButton.hidden = model.default || model.version === undefined || !["ready", "idle"].includes(model.state);
    this.defaultButton.setAttribute("aria-label", `Make default ${name}`);
  }

  /** The route of this version; one without a version has that of its name, which stands for all its versions. */
  get #route() {
    const model = /** @type {Model} */ (this.model);
    const path = `/models/${encodeURIComponent(model.modelName)}`;
    return model.version === undefined ? path : `${path}/${encodeURIComponent(model.version)}`;
  }

  async unload() {
    if (this.unloadButton.getAttribute("aria-disabled") === "true") return;
    const model = /** @type {Model} */ (this.model);
    const all = model.version === undefined && this.versions.length > 1;
    const what = all ? `${model.modelName} with all ${this.versions.length} versions` : fullName(model);
    const active = model.running + model.waiting;
    const facts = [
      "New requests will not find it.",
      ...(active ? [`${several(active, "request")} in progress may finish first.`] : []),
      ...(model.loadedAtStartup ? ["The server loads it again when it restarts."] : []),
    ];
    const word = model.state === "failed" ? "Remove" : "Unload";
    if (!(await confirmed(`${word} ${what}?`, facts.join(" "), word))) return;
    announce(`Unloading ${what}`);
    await this.#send("DELETE", this.#route);
  }

  async makeDefault() {
    if (this.defaultButton.getAttribute("aria-disabled") === "true") return;
    const model = /** @type {Model} */ (this.model);
    const done = await this.#send("PUT", `${this.#route}?default=true`);
    if (done) announce(`${fullName(model)} is now the default`);
  }

  /**
   * Send a request that changes the model, and return whether that was done.
   * @param {string} method
   * @param {string} path
   */
  async #send(method, path) {
    this.isBusy = true;
    this.wrong.hidden = true;
    this.changed();
    try {
      await request(path, { method });
      return true;
    } catch (error) {
      write(this.wrong, error instanceof Error ? error.message : String(error));
      this.wrong.hidden = false;
      return false;
    } finally {
      this.isBusy = false;
      this.changed();
    }
  }
}

/**
 * Write a text where it is not there already, so that what is selected, or read out, stays as it is.
 * @param {HTMLElement} place
 * @param {string} text
 */
function write(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/**
 * @param {string} label shown beside it where the table is narrow
 * @param {(Node | string)[]} children
 */
function cell(label, ...children) {
  return element("td", { "data-label": label }, element("div", {}, ...children));
}
