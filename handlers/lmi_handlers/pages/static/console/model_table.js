// @ts-check
// The models in a table, whose rows stay where they are while what is in them changes.

import { announce } from "../shared/announce.js";
import { byId } from "../shared/dom.js";
import { ModelRow } from "./model_row.js";
import { fullName } from "./words.js";

/** @typedef {import("./words.js").Model} Model */

const MANY = 8; // models, from which on one may want to look for one
const TOLD = ["ready", "failed", "unhealthy"]; // states that a screen reader says

export class ModelTable {
  /**
   * @param {import("./rates.js").Rates} rates
   * @param {() => void} changed called when a model was changed
   */
  constructor(rates, changed) {
    this.rates = rates;
    this.changed = changed;
    this.body = /** @type {HTMLElement} */ (byId("models").querySelector("tbody"));
    this.find = /** @type {HTMLInputElement} */ (byId("find"));
    /** @type {Map<string, ModelRow>} */
    this.rows = new Map();
    this.isFirst = true;
    this.find.addEventListener("input", () => this.#filter());
  }

  /**
   * @param {Model[]} models
   * @param {boolean} canChange whether models can be loaded and unloaded
   */
  show(models, canChange) {
    const focused = document.activeElement;
    const versions = (/** @type {Model} */ model) =>
      models.filter((each) => each.modelName === model.modelName && each.state !== "unloading");
    const keys = models.map(fullName);
    models.forEach((model, at) => {
      const row = this.rows.get(keys[at]) ?? this.#make(keys[at]);
      const before = row.model?.state;
      row.show(model, versions(model), this.rates.of(keys[at]));
      row.actions.hidden = !canChange;
      if (this.body.children[at] !== row.element) this.body.insertBefore(row.element, this.body.children[at] ?? null);
      if (before !== model.state && !this.isFirst && TOLD.includes(model.state)) this.#announce(model);
    });
    for (const [key, row] of this.rows) {
      if (keys.includes(key)) continue;
      const hadFocus = row.element.contains(focused);
      row.element.remove();
      this.rows.delete(key);
      announce(`${key} is unloaded`);
      if (hadFocus) byId("models-title").focus();
    }
    this.isFirst = false;
    byId("find-label").hidden = models.length < MANY && !this.find.value;
    byId("no-models").hidden = models.length > 0;
    byId("models").hidden = models.length === 0;
    this.#filter();
  }

  /** @param {string} key */
  #make(key) {
    const row = new ModelRow(this.changed);
    this.rows.set(key, row);
    return row;
  }

  /** @param {Model} model */
  #announce(model) {
    announce(model.reason ? `${fullName(model)} is ${model.state}: ${model.reason}` : `${fullName(model)} is ${model.state}`);
  }

  #filter() {
    const wanted = this.find.value.trim().toLowerCase();
    for (const [key, row] of this.rows) {
      row.element.hidden = Boolean(wanted) && !`${key} ${row.model?.modelUrl}`.toLowerCase().includes(wanted);
    }
  }
}
