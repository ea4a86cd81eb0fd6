// @ts-check
// What the chosen model is, and how much of its context the chat takes.

import { byId, element } from "../shared/dom.js";
import { post } from "../shared/server.js";

const KINDS = { chat: "chat", embeddings: "embeddings", reasoning: "reasoning", tools: "tools", images: "images" };

/** @param {number} count */
function written(count) {
  return count.toLocaleString("en");
}

export class ModelCard {
  constructor() {
    this.name = element("h2", {});
    this.facts = element("dl", {});
    this.element = element("section", { class: "model-card", "aria-label": "Model" }, this.name, this.facts);
    /** @type {Map<string, [string, string][]>} what the files say, by model */
    this.known = new Map();
  }

  /** @param {import("./models.js").Models} models */
  async show({ model, ready }) {
    this.element.hidden = !model;
    if (!model) return;
    this.#draw(model);
    if (!ready || !model.capabilities || this.known.has(model.id)) return;
    this.known.set(model.id, []);
    const shown = await post("/api/show", { model: model.id }).catch(() => null); // the card does without these facts
    if (!shown) return;
    const { details } = await shown.json();
    const facts = /** @type {[string, string][]} */ ([
      ["Architecture", details.family], ["Size", details.parameter_size], ["Precision", details.quantization_level],
    ]);
    this.known.set(model.id, facts.filter(([, value]) => value));
    if (this.name.textContent === model.id) this.#draw(model);
  }

  #draw(/** @type {import("./models.js").Model} */ model) {
    const can = model.capabilities;
    const type = Object.entries(KINDS).filter(([name]) => can?.[/** @type {"chat"} */ (name)]).map(([, word]) => word).join(", ");
    /** @type {[string, string][]} */
    const facts = [
      ["Context", model.max_model_len ? `${written(model.max_model_len)} tokens` : ""],
      ["Type", can ? type || "text" : ""], ["Engine", model.engine], ...(this.known.get(model.id) ?? []),
    ];
    this.name.textContent = model.id;
    this.facts.replaceChildren(...facts.filter(([, value]) => value).flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", {}, value)]));
  }
}

/**
 * Show how much of the context the chat took when its last answer ended.
 * @param {number | null} used
 * @param {number | null | undefined} length
 */
export function showContext(used, length) {
  const meter = byId("context");
  meter.hidden = !used || !length;
  if (!used || !length) return;
  meter.replaceChildren(
    element("meter", { min: 0, max: length, high: length * 0.9, value: Math.min(used, length), "aria-hidden": "true" }),
    element("span", {}, `${written(used)} of ${written(length)} tokens of context`));
}
