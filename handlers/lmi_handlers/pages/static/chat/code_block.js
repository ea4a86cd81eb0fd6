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

const LONGEST = 10_000; // characters: highlighting a longer block would hold up the frame

export class CodeBlock {
  /** @param {string} language as the fence names it, "" where it does not */
  constructor(language) {
    this.language = language;
    this.text = "";
    this.code = element("code");
    const copied = button("Copy code", () => copy(copied, this.text), { class: "quiet" });
    this.element = element("div", { class: "code-block" },
      element("div", { class: "code-head" }, element("span", {}, language || "code"), copied),
      element("pre", { tabindex: 0 }, this.code));
  }

  /** @param {string} text the whole code so far */
  write(text) {
    if (text === this.text) return;
    this.text = text;
    this.code.replaceChildren(this.#highlighted());
  }

  #highlighted() {
    if (!highlighter.getLanguage(this.language) || this.text.length > LONGEST) return document.createTextNode(this.text);
    const { value } = highlighter.highlight(this.text, { language: this.language, ignoreIllegals: true });
    return DOMPurify.sanitize(value, { RETURN_DOM_FRAGMENT: true, ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"] });
  }
}
