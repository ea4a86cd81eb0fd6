// @ts-check
// The conversation as it is read: a section for each turn, with what can be done with it.

import { copy } from "../shared/copy.js";
import { button, byId, element } from "../shared/dom.js";
import { AnswerView } from "./answer_view.js";

/**
 * @typedef {import("./answer.js").Piece} Piece
 * @typedef {import("./conversation.js").Turn} Turn
 * @typedef {import("./conversation.js").UserTurn} UserTurn
 * @typedef {import("./conversation.js").AssistantTurn} AssistantTurn
 * @typedef {{ resend: (turn: UserTurn, text: string) => void, regenerate: (turn: AssistantTurn) => void,
 *   continueFrom: (turn: AssistantTurn) => void, results: (turn: AssistantTurn, texts: string[]) => void,
 *   begin: () => void }} Actions
 */

const NEAR = 60; // pixels from the end: whoever reads further up is not moved

export class Transcript {
  /** @param {Actions} actions */
  constructor(actions) {
    this.element = byId("transcript");
    this.actions = actions;
    this.probabilities = false;
    /** @type {Map<Turn, AnswerView>} */
    this.views = new Map();
    /** @type {Piece[]} */
    this.coming = []; // pieces that the next frame shows
    this.frame = 0;
  }

  /**
   * Show the turns, or the welcome where there are none.
   * @param {Turn[]} turns
   * @param {"chat" | "text"} mode
   * @param {HTMLElement} welcome
   */
  show(turns, mode, welcome) {
    this.mode = mode;
    this.views.clear();
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.coming = [];
    const written = turns.map((turn) => this.#written(turn, turn === turns[turns.length - 1]));
    this.element.replaceChildren(...(turns.length ? written : [welcome]));
    this.#follow(true);
  }

  /** @param {boolean} shown whether the tokens show their probabilities */
  showProbabilities(shown) {
    this.probabilities = shown;
    this.coming = []; // each view writes its answer anew
    for (const view of this.views.values()) view.showProbabilities(shown);
  }

  /**
   * Show pieces of an answer, all those of one frame together.
   * @param {AssistantTurn} turn
   * @param {Piece[]} pieces
   */
  add(turn, pieces) {
    if (!this.views.has(turn)) return;
    this.coming.push(...pieces);
    this.frame ||= requestAnimationFrame(() => this.#flush(turn));
  }

  /** @param {AssistantTurn} turn */
  finish(turn) {
    if (!this.views.has(turn)) return;
    this.#flush(turn);
    const follows = this.#isAtEnd();
    this.views.get(turn)?.finish();
    this.#follow(follows);
  }

  #flush(/** @type {AssistantTurn} */ turn) {
    const follows = this.#isAtEnd();
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.views.get(turn)?.add(this.coming.splice(0));
    this.#follow(follows);
  }

  #written(/** @type {Turn} */ turn, /** @type {boolean} */ isLast) {
    if (turn.role === "user") return this.#user(turn);
    if (turn.role === "tool") return turnElement("tool", `Result of ${turn.name}`, element("pre", { class: "said" }, turn.text));
    const view = new AnswerView(turn, this.actions, { probabilities: this.probabilities, isLast, mode: this.mode ?? "chat" });
    this.views.set(turn, view);
    return view.element;
  }

  #user(/** @type {UserTurn} */ turn) {
    const images = turn.images.map((image) => element("img", { src: image.url, alt: image.name }));
    const said = element("div", { class: "said" }, turn.text);
    const copied = button("Copy", () => copy(copied, turn.text), { class: "quiet", "data-icon": "copy" });
    const row = element("div", { class: "row" },
      button("Edit", () => this.#edit(made, turn), { class: "quiet", "data-icon": "pencil" }), copied);
    const name = this.mode === "text" ? "Text" : "You";
    const made = turnElement("user", name, ...(images.length ? [element("div", { class: "images" }, ...images)] : []), said, row);
    return made;
  }

  #edit(/** @type {HTMLElement} */ made, /** @type {UserTurn} */ turn) {
    const text = element("textarea", { rows: Math.min(12, turn.text.split("\n").length + 1), "aria-label": "Edited message" });
    text.value = turn.text;
    const before = [...made.children];
    const cancel = () => {
      made.replaceChildren(...before);
      made.querySelector("button")?.focus();
    };
    const form = element("form", { submit: (event) => {
      event.preventDefault();
      this.actions.resend(turn, text.value);
    } }, text, element("div", { class: "row" },
      element("button", { class: "main" }, "Send again"), button("Cancel", cancel)));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === text) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    made.replaceChildren(before[0], form);
    text.focus();
  }

  #isAtEnd() {
    return this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < NEAR;
  }

  #follow(/** @type {boolean} */ follows) {
    if (follows) this.element.scrollTop = this.element.scrollHeight;
  }
}

/**
 * @param {string} kind
 * @param {string} name
 * @param {(Node | string)[]} children
 */
export function turnElement(kind, name, ...children) {
  return element("article", { class: `turn ${kind}`, "aria-label": name }, element("h2", {}, name), ...children);
}
