// @ts-check
// An answer's Markdown as it comes: only its last block is rendered again when text is added.

import { element } from "../shared/dom.js";
import DOMPurify from "../vendor/dompurify.js";
import markdownit from "../vendor/markdown-it.js";
import { CodeBlock } from "./code_block.js";

/** @typedef {import("./answer.js").Piece} Piece */

const ALLOWED = {
  RETURN_DOM_FRAGMENT: true,
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["class", "href", "start", "title"],
};

// HTML in an answer is text: what a model writes must not become a part of the page.
const parser = markdownit({ html: false, linkify: true, breaks: true });
const { escapeHtml } = parser.utils;
// An image that the page fetches would report to another host what the chat is about, so it is a link.
parser.renderer.rules.image = (/** @type {any[]} */ tokens, /** @type {number} */ at) => {
  const address = tokens[at].attrGet("src") ?? "";
  return `<a href="${escapeHtml(address)}">${escapeHtml(tokens[at].content || address)}</a>`;
};
parser.renderer.rules.td_open = parser.renderer.rules.th_open = (/** @type {any[]} */ tokens, /** @type {number} */ at) => {
  const side = /right|center/.exec(tokens[at].attrGet("style") ?? "")?.[0]; // the policy forbids styles in the text
  return side ? `<${tokens[at].tag} class="${side}">` : `<${tokens[at].tag}>`;
};

export class MarkdownText {
  constructor() {
    this.element = element("div", { class: "said markdown" });
    this.#begin();
    this.text = "";
  }

  #begin() {
    this.element.replaceChildren();
    this.start = 0; // of the last block in the text
    this.html = ""; // of the blocks before it
    this.lastHtml = "";
    /** @type {ChildNode[]} */
    this.last = [];
    /** @type {CodeBlock | null} the last block, if it is code */
    this.code = null;
    this.links = {}; // the definitions of links so far
  }

  /** @param {Piece[]} pieces */
  add(pieces) {
    this.text += pieces.map((piece) => piece.text).join("").replaceAll("\r", "");
    this.#render();
  }

  /** Render once more in one go where a later line changed what an earlier one means, such as a link's address. */
  finish() {
    if (parser.render(this.text) !== this.html + this.lastHtml) {
      this.#begin();
      this.#render();
    }
    this.code?.finish();
  }

  #render() {
    const text = this.text.slice(this.start);
    const blocks = split(parser.parse(text, this.links));
    const last = blocks[blocks.length - 1];
    if (!last) return;
    if (blocks.length > 1) {
      this.html += this.#replaceLast(blocks.slice(0, -1));
      this.last = [];
      this.code?.finish();
      this.code = null;
      this.start += offset(text, last[0].map[0]);
    }
    this.lastHtml = this.#replaceLast([last]);
  }

  /** Render blocks in place of the last one, and return their HTML. */
  #replaceLast(/** @type {any[][]} */ blocks) {
    const html = blocks.map((block) => parser.renderer.render(block, parser.options, this.links)).join("");
    const fence = blocks.length === 1 && blocks[0][0].type === "fence" ? blocks[0][0] : null;
    if (fence && this.code?.language === language(fence)) {
      this.code.write(fence.content); // the same element, so that its button can be pressed while text comes
      return html;
    }
    this.code = fence && new CodeBlock(language(fence));
    this.code?.write(fence.content);
    const made = this.code ? [this.code.element] : [...rendered(html).childNodes];
    for (const node of this.last) node.remove();
    this.element.append(...made);
    this.last = made;
    return html;
  }
}

/**
 * Return the nodes of HTML without anything that could act by itself.
 * @param {string} html
 * @returns {DocumentFragment}
 */
function rendered(html) {
  const nodes = DOMPurify.sanitize(html, ALLOWED);
  for (const link of nodes.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const code of nodes.querySelectorAll("pre > code")) {
    const block = new CodeBlock(/(?:^| )language-(\S+)/.exec(code.className)?.[1] ?? "");
    block.write(code.textContent ?? "");
    block.finish();
    code.parentElement?.replaceWith(block.element);
  }
  for (const table of nodes.querySelectorAll("table")) {
    const scroller = element("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Table" });
    table.replaceWith(scroller);
    scroller.append(table);
  }
  return nodes;
}

/**
 * Return the tokens of each block that lies in no other one.
 * @param {any[]} tokens
 */
function split(tokens) {
  /** @type {any[][]} */
  const blocks = [];
  for (const token of tokens) {
    if (token.level === 0 && token.nesting >= 0) blocks.push([]);
    blocks[blocks.length - 1].push(token);
  }
  return blocks;
}

/**
 * Return where a line begins in a text.
 * @param {string} text
 * @param {number} line
 */
function offset(text, line) {
  let at = 0;
  for (let each = 0; each < line; each++) at = text.indexOf("\n", at) + 1;
  return at;
}

/** @param {any} fence */
function language(fence) {
  return fence.info.trim().split(/\s+/)[0];
}
