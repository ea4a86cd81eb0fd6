// @ts-check
// The tools that the model may call: a list in JSON, as OpenAI's API takes it.

import { button, element } from "../shared/dom.js";
import { field } from "./parameters.js";

const EXAMPLE = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Return the weather of a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

export class ToolForm {
  /** @param {() => void} changed */
  constructor(changed) {
    this.text = element("textarea", { id: "tools", rows: 8, class: "mono", spellcheck: "false", placeholder: "[ ]" });
    this.choice = element("select", { id: "tool-choice", change: changed },
      ...["auto", "required", "none"].map((name) => element("option", {}, name)));
    this.text.addEventListener("input", () => this.#check(changed));
    const example = button("Insert example", () => {
      this.text.value = JSON.stringify(EXAMPLE, null, 2);
      this.#check(changed);
    });
    this.element = element("details", { id: "tool-details", hidden: true },
      element("summary", {}, "Tools"),
      field("tools", "Functions", "A JSON list. The answer shows the model's calls; you enter their results.", this.text),
      element("div", { class: "buttons" }, example),
      field("tool-choice", "Choice", "Whether the model calls a function.", this.choice));
  }

  /** The tools; an empty list where there are none. */
  get tools() {
    return this.element.hidden ? [] : (readTools(this.text.value).tools ?? []);
  }

  /** The control whose content is wrong, if any. */
  get wrong() {
    return !this.element.hidden && readTools(this.text.value).wrong ? this.text : undefined;
  }

  #check(/** @type {() => void} */ changed) {
    const { wrong } = readTools(this.text.value);
    this.text.setAttribute("aria-invalid", String(Boolean(wrong)));
    const note = document.getElementById("tools-wrong");
    if (note) note.textContent = wrong ?? "";
    changed();
  }
}

/**
 * @param {string} text
 * @returns {{ tools?: any[], wrong?: string }}
 */
function readTools(text) {
  if (!text.trim()) return { tools: [] };
  let found;
  try {
    found = JSON.parse(text);
  } catch (error) {
    return { wrong: `Invalid JSON: ${/** @type {Error} */ (error).message}` };
  }
  if (!Array.isArray(found)) return { wrong: "The tools must be a list: [ ... ]" };
  const at = found.findIndex((tool) => typeof tool?.function?.name !== "string");
  return at < 0 ? { tools: found } : { wrong: `Tool ${at + 1} has no function.name` };
}
