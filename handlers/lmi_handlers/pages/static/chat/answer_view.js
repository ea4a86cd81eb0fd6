// @ts-check
// One answer as it is read: its reasoning, folded, its text, its calls of tools, and its speed.

import { copy } from "../shared/copy.js";
import { button, element } from "../shared/dom.js";
import { MarkdownText } from "./markdown.js";
import { hideDetails, TokenText } from "./tokens.js";

const SPEED_EVERY_MS = 250;
const TOO_LONG = "maximum context length"; // in the server's message, as clients of OpenAI's API expect

/**
 * @typedef {import("./conversation.js").AssistantTurn} AssistantTurn
 * @typedef {{ probabilities: boolean, isLast: boolean, mode: "chat" | "text" }} Shown
 */

export class AnswerView {
  /**
   * @param {AssistantTurn} turn
   * @param {import("./transcript.js").Actions} actions
   * @param {Shown} shown
   */
  constructor(turn, actions, shown) {
    this.turn = turn;
    this.actions = actions;
    this.shown = shown;
    this.content = this.#text();
    this.reasoning = this.#text();
    this.thinking = element("details", { class: "reasoning", hidden: true },
      element("summary", {}, "Reasoning"), this.reasoning.element);
    this.after = element("div");
    this.speedShown = performance.now();
    this.element = element("article", { class: "turn assistant", "aria-label": turn.name },
      element("h2", {}, turn.name), this.thinking, this.content.element, this.after);
    this.content.element.classList.add("waiting");
    this.#write(turn.answer.pieces);
    if (turn.answer.finish || turn.answer.error || turn.answer.stopped) this.finish();
  }

  /** @param {import("./answer.js").Piece[]} pieces */
  add(pieces) {
    this.#showSpeed();
    this.#write(pieces);
  }

  #write(/** @type {import("./answer.js").Piece[]} */ pieces) {
    const [reasoning, content] = [pieces.filter(isReasoning), pieces.filter((piece) => !isReasoning(piece))];
    if (reasoning.length) this.thinking.hidden = false;
    if (reasoning.length) this.reasoning.add(reasoning);
    if (content.length) this.content.add(content);
  }

  /** A place for text: Markdown in a chat, unless its tokens are shown; a completion stays as it is. */
  #text() {
    const { mode, probabilities } = this.shown;
    return mode === "chat" && !probabilities ? new MarkdownText() : new TokenText(probabilities);
  }

  /** @param {boolean} shown */
  showProbabilities(shown) {
    hideDetails();
    this.shown.probabilities = shown;
    const before = [this.content.element, this.reasoning.element];
    this.content = this.#text();
    this.reasoning = this.#text();
    this.content.element.className += before[0].classList.contains("waiting") ? " waiting" : "";
    this.content.element.hidden = before[0].hidden;
    before[0].replaceWith(this.content.element);
    before[1].replaceWith(this.reasoning.element);
    this.#write(this.turn.answer.pieces);
  }

  /** Tell how fast the answer comes, a few times a second; screen readers hear of its end only. */
  #showSpeed() {
    const now = performance.now();
    if (now - this.speedShown < SPEED_EVERY_MS) return;
    this.speedShown = now;
    this.after.replaceChildren(element("div", { class: "row" }, element("span", { class: "speed" }, this.turn.answer.statistics)));
  }

  finish() {
    const { answer } = this.turn;
    this.content.element.classList.remove("waiting");
    this.content.element.hidden = answer.pieces.every(isReasoning);
    this.content.finish();
    this.reasoning.finish();
    const error = answer.error ? [element("p", { class: "wrong", role: "alert" }, answer.error)] : [];
    if (answer.error?.includes(TOO_LONG)) {
      error.push(element("p", { class: "buttons" }, button("Start a new chat", () => this.actions.begin(), { class: "main" })));
    }
    const calls = answer.calls.map((call) => element("div", { class: "call" },
      element("h3", {}, `Calls ${call.name}`), element("pre", {}, indented(call.arguments))));
    const asks = answer.calls.length && this.shown.isLast && !answer.error ? [this.#resultForm()] : [];
    this.after.replaceChildren(...error, ...calls, ...asks, this.#row());
  }

  #row() {
    const { turn, actions } = this;
    const copied = button("Copy", () => copy(copied, turn.answer.text), { class: "quiet", "data-icon": "copy" });
    const continues = this.shown.mode === "text" && turn.answer.text
      ? [button("Continue from here", () => actions.continueFrom(turn), { class: "quiet", "data-icon": "step-forward" })] : [];
    const regenerate = this.shown.isLast ? [button("Regenerate", () => actions.regenerate(turn), { class: "quiet", "data-icon": "refresh-cw" })] : [];
    return element("div", { class: "row" },
      element("span", { class: "stats" }, turn.answer.statistics), ...continues, ...regenerate, copied);
  }

  #resultForm() {
    const { calls } = this.turn.answer;
    const fields = calls.map((call) => element("textarea", { rows: 2, class: "mono" }));
    return element("form", { class: "call", submit: (event) => {
      event.preventDefault();
      this.actions.results(this.turn, fields.map((each) => each.value));
    } },
    ...calls.map((call, at) => element("label", {}, `Result of ${call.name}`, fields[at])),
    element("div", { class: "row" }, element("button", { class: "main" }, calls.length > 1 ? "Send the results" : "Send the result")));
  }
}

/** @param {import("./answer.js").Piece} piece */
function isReasoning(piece) {
  return piece.kind === "reasoning";
}

/** @param {string} json */
function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // as the model wrote it
  }
}
