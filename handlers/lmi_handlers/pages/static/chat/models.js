// @ts-check
// Which models are served, their adapters, and what each can do.

import { byId, element } from "../shared/dom.js";
import { get, ServerError } from "../shared/server.js";

/**
 * What requests may ask of a model, from `GET /v1/models`.
 * @typedef {{ completion: boolean, chat: boolean, tools: boolean, reasoning: boolean, logprobs: boolean,
 *   images: number, embeddings: boolean }} Capabilities
 * @typedef {{ id: string, parent: string | null, max_model_len: number | null, engine: string, example_questions: string[],
 *   capabilities: Capabilities | null }} Model
 */

const AGAIN_MS = 2000;

export class Models {
  /** @param {() => void} changed called when another model is chosen, or one can do what was not known before */
  constructor(changed) {
    this.changed = changed;
    /** @type {Model[]} */
    this.all = [];
    this.ready = false;
    /** @type {{ model: string, adapter: string | null } | null} chosen before the models are known */
    this.wanted = null;
    this.picker = byId("model");
    this.adapters = byId("adapter");
    this.picker.addEventListener("change", () => this.#chosen());
    this.adapters.addEventListener("change", () => this.changed());
  }

  /** Read the models, again and again until all are loaded. Returns why they are not ready, "" once they are. */
  async load(/** @type {(notice: string) => void} */ tell) {
    for (;;) {
      const notice = await this.#read();
      tell(notice);
      if (!notice) return;
      await new Promise((resume) => setTimeout(resume, AGAIN_MS));
    }
  }

  async #read() {
    try {
      this.all = (await get("/v1/models")).data;
      await get("/ping");
      this.ready = true;
    } catch (error) {
      this.ready = false;
      this.#show();
      return error instanceof ServerError ? `Not ready yet: ${error.message}` : String(error);
    }
    this.#show();
    return "";
  }

  /** The chosen model; undefined where there is none. */
  get model() {
    return this.all.find((each) => each.id === /** @type {HTMLSelectElement} */ (this.picker).value);
  }

  /** The chosen adapter's name, or null. */
  get adapter() {
    return /** @type {HTMLSelectElement} */ (this.adapters).value || null;
  }

  /** What the chosen model can do; null while that is not known. */
  get capabilities() {
    return this.model?.capabilities ?? null;
  }

  /** Whether requests must say which model they are for. */
  get several() {
    return new Set(this.#own().map((each) => /** @type {any} */ (each).root)).size > 1;
  }

  /**
   * Choose a model, now or once it is known.
   * @param {string} model
   * @param {string | null} adapter
   */
  choose(model, adapter) {
    this.wanted = { model, adapter };
    if (this.all.length) this.#show();
  }

  #own() {
    return this.all.filter((each) => each.parent === null);
  }

  #show() {
    const picker = /** @type {HTMLSelectElement} */ (this.picker);
    const before = this.wanted?.model ?? picker.value;
    picker.replaceChildren(...this.#own().map((each) => element("option", { value: each.id }, each.id)));
    if (before && this.#own().some((each) => each.id === before)) picker.value = before;
    this.#chosen();
  }

  #chosen() {
    const model = this.model;
    const root = /** @type {any} */ (model)?.root;
    const names = this.#own().filter((each) => /** @type {any} */ (each).root === root).map((each) => each.id);
    const found = this.all.filter((each) => each.parent !== null && names.includes(each.parent));
    const picker = /** @type {HTMLSelectElement} */ (this.adapters);
    const before = this.wanted ? (this.wanted.adapter ?? "") : picker.value;
    if (this.all.length) this.wanted = null;
    picker.replaceChildren(
      element("option", { value: "" }, "none"),
      ...found.map((each) => element("option", { value: each.id }, each.id)),
    );
    if (found.some((each) => each.id === before)) picker.value = before;
    byId("adapter-label").hidden = found.length === 0;
    this.changed();
  }
}
