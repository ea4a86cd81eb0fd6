// @ts-check
// A block of code: its language, a button that copies it, and its highlighting.

import { copy } from "../shared/copy.js";
import { button, element } from "../shared/dom.js";
import DOMPurify from "../vendor/dompurify.js";
import highlighter from "../vendor/highlight.js";
import bash from "../vendor/highlight_bash.js";
import cpp from "../vendor/highlight_cpp.js";
import css from "../vendor/highlight_css.js";
import go from "../vendor/highlight_go.js";
import java from "../vendor/highlight_java.js";
import javascript from "../vendor/highlight_javascript.js";
import json from "../vendor/highlight_json.js";
import python from "../vendor/highlight_python.js";
import rust from "../vendor/highlight_rust.js";
import sql from "../vendor/highlight_sql.js";
import typescript from "../vendor/highlight_typescript.js";
import xml from "../vendor/highlight_xml.js";
import yaml from "../vendor/highlight_yaml.js";

const LANGUAGES = { bash, cpp, css, go, java, javascript, json, python, rust, sql, typescript, xml, yaml };
for (const [name, grammar] of Object.entries(LANGUAGES)) highlighter.registerLanguage(name, grammar);
highlighter.registerAliases(["c", "h"], { languageName: "cpp" });
highlighter.registerAliases(["console", "shell"], { languageName: "bash" });

const CHUNK = 2_000; // characters: one frame highlights and lays out at most so many
const LONGEST = 10_000; // characters: a whole block that is longer would hold up the frame

export class CodeBlock {
  /** @param {string} language as the fence names it, "" where it does not */
  constructor(language) {
    this.language = language;
    this.text = "";
    this.settled = 0; // characters before the chunk that may still change
    this.code = element("code", {}, element("span"));
    const copied = button("Copy code", () => copy(copied, this.text), { class: "quiet", "data-icon": "copy" });
    this.element = element("div", { class: "code-block" },
      element("div", { class: "code-head" }, element("span", {}, language || "code"), copied),
      element("pre", { tabindex: 0 }, this.code));
  }

  /**
   * Highlight code chunk by chunk, so that a frame costs the same however long the block is.
   * @param {string} text the whole code so far
   */
  write(text) {
    if (text === this.text) return;
    this.text = text;
    for (let end; (end = this.#chunkEnd()) > this.settled; this.settled = end + 1) {
      this.#highlight(text.slice(this.settled, end)); // without its last line feed: a chunk is a block by itself
      this.code.append(element("span"));
    }
    this.#highlight(text.slice(this.settled));
  }

  /** Highlight the block as a whole, because text that spans chunks, such as a long comment, has wrong colours so far. */
  finish() {
    if (!this.settled || this.text.length > LONGEST) return;
    this.settled = 0;
    this.code.replaceChildren(element("span"));
    this.#highlight(this.text);
  }

  /** Return the end of the last line that the next chunk has room for, if the text is longer than a chunk. */
  #chunkEnd() {
    const full = this.settled + CHUNK;
    if (this.text.length <= full) return 0;
    let end = this.text.lastIndexOf("\n", full - 1);
    if (end <= this.settled) end = this.text.indexOf("\n", full); // a line longer than a chunk
    while (this.text[end - 1] === "\n") end--; // the browser shows no empty line at the end of a block
    return end;
  }

  #highlight(/** @type {string} */ text) {
    /** @type {Element} */ (this.code.lastElementChild).replaceChildren(this.#highlighted(text));
  }

  #highlighted(/** @type {string} */ text) {
    if (!highlighter.getLanguage(this.language) || text.length > LONGEST) return document.createTextNode(text);
    const { value } = highlighter.highlight(text, { language: this.language, ignoreIllegals: true });
    return DOMPurify.sanitize(value, { RETURN_DOM_FRAGMENT: true, ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"] });
  }
}
