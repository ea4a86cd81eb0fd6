// @ts-check
// The parameters of the generation. Only those that are set are sent.

import { element } from "../shared/dom.js";

/**
 * @typedef {{ name: string, label: string, kind: "number" | "integer" | "lines", unset: string, help: string,
 *   min?: number, max?: number }} Parameter
 * @typedef {Record<string, number | string[]>} Values
 */

/** @type {Parameter[]} */
export const PARAMETERS = [
  { name: "temperature", label: "Temperature", kind: "number", unset: "1", min: 0, max: 2,
    help: "0 always chooses the most likely token." },
  { name: "max_tokens", label: "Max tokens", kind: "integer", unset: "", min: 1, help: "The answer's maximum length." },
  { name: "top_p", label: "Top p", kind: "number", unset: "1", min: 0, max: 1,
    help: "Sample from the most likely tokens with this total probability." },
  { name: "top_k", label: "Top k", kind: "integer", unset: "all", min: -1, help: "Sample from the k most likely tokens." },
  { name: "presence_penalty", label: "Presence penalty", kind: "number", unset: "0", min: -2, max: 2,
    help: "Values above 0 discourage repeated tokens." },
  { name: "frequency_penalty", label: "Frequency penalty", kind: "number", unset: "0", min: -2, max: 2,
    help: "Values above 0 discourage frequent tokens." },
  { name: "seed", label: "Seed", kind: "integer", unset: "random", help: "The same seed gives the same text." },
  { name: "stop", label: "Stop sequences", kind: "lines", unset: "none", help: "One per line. Each ends the answer." },
];
const UNSET_LENGTH = { chat: "as many as fit", text: "16" };

export class ParameterForm {
  /** @param {() => void} changed */
  constructor(changed) {
    this.system = element("textarea", { id: "system", rows: 3, placeholder: "none", input: changed });
    this.systemField = field("system", "System prompt", "Instructions at the start of the chat.", this.system);
    /** @type {Map<string, HTMLInputElement | HTMLTextAreaElement>} */
    this.inputs = new Map(PARAMETERS.map((each) => [each.name, control(each, () => this.#check(each, changed))]));
    const fields = PARAMETERS.map((each) =>
      field(`p-${each.name}`, each.label, each.help, /** @type {HTMLElement} */ (this.inputs.get(each.name))));
    const stop = /** @type {HTMLElement} */ (fields.pop());
    this.element = element("div", {}, this.systemField, element("div", { class: "pairs" }, ...fields), stop);
  }

  /** @param {"chat" | "text"} mode */
  show(mode) {
    this.systemField.hidden = mode === "text";
    const length = this.inputs.get("max_tokens");
    if (length) length.placeholder = UNSET_LENGTH[mode];
  }

  /**
   * The values that are set, without those that are wrong.
   * @returns {Values}
   */
  get values() {
    /** @type {Values} */
    const values = {};
    for (const each of PARAMETERS) {
      const { value, wrong } = read(each, this.inputs.get(each.name)?.value ?? "");
      if (value !== undefined && !wrong) values[each.name] = value;
    }
    return values;
  }

  /** The first value that is wrong, which prevents sending; undefined where all are right. */
  get wrong() {
    return [...this.inputs.values()].find((input) => input.getAttribute("aria-invalid") === "true");
  }

  #check(/** @type {Parameter} */ parameter, /** @type {() => void} */ changed) {
    const input = /** @type {HTMLInputElement} */ (this.inputs.get(parameter.name));
    const { wrong } = read(parameter, input.value);
    input.setAttribute("aria-invalid", String(Boolean(wrong)));
    const note = document.getElementById(`${input.id}-wrong`);
    if (note) note.textContent = wrong ?? "";
    changed();
  }
}

/**
 * A control with its label, its help and a place for its error message.
 * @param {string} id
 * @param {string} label
 * @param {string} help
 * @param {HTMLElement} input
 */
export function field(id, label, help, input) {
  input.setAttribute("aria-describedby", `${id}-help ${id}-wrong`);
  return element("div", { class: "field" },
    element("label", { for: id }, label),
    input,
    element("div", { class: "help", id: `${id}-help` }, help),
    element("div", { class: "wrong", id: `${id}-wrong` }));
}

/**
 * @param {Parameter} parameter
 * @param {() => void} changed
 */
function control(parameter, changed) {
  const shared = { id: `p-${parameter.name}`, placeholder: parameter.unset, input: changed };
  if (parameter.kind === "lines") return element("textarea", { ...shared, rows: 2 });
  return element("input", { ...shared, type: "text", inputmode: "decimal", autocomplete: "off" });
}

/**
 * Return the value of what was written, undefined for nothing, and its error message.
 * @param {Parameter} parameter
 * @param {string} text
 * @returns {{ value?: number | string[], wrong?: string }}
 */
function read(parameter, text) {
  if (parameter.kind === "lines") {
    const lines = text.split("\n").filter((line) => line !== "");
    return lines.length ? { value: lines } : {};
  }
  if (!text.trim()) return {};
  const value = Number(text.trim().replace(",", "."));
  const { label, min = -Infinity, max = Infinity } = parameter;
  if (!Number.isFinite(value)) return { wrong: `${label} must be a number` };
  if (parameter.kind === "integer" && !Number.isSafeInteger(value)) return { wrong: `${label} must be a whole number` };
  if (value < min || value > max) return { wrong: `${label} must be ${bounds(min, max)}` };
  return { value };
}

/**
 * @param {number} min
 * @param {number} max
 */
function bounds(min, max) {
  return max === Infinity ? `at least ${min}` : `from ${min} to ${max}`;
}
