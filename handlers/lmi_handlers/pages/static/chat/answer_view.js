// @ts-check
// One answer as it is read: its reasoning, folded, its text, its calls of tools, and how fast it came.

import { copy } from "../shared/copy.js";
import { button, element } from "../shared/dom.js";
import { TokenText } from "./tokens.js";

const TOLD_EVERY_MS = 250;

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
    this.content = new TokenText(shown.probabilities);
    this.reasoning = new TokenText(shown.probabilities);
    this.thinking = element("details", { class: "reasoning", hidden: true },
      element("summary", {}, "Reasoning"), this.reasoning.element);
    this.after = element("div");
    this.told = performance.now();
    this.element = element("article", { class: "turn assistant", "aria-label": turn.name },
      element("h2", {}, turn.name), this.thinking, this.content.element, this.after);
    this.content.element.classList.add("waiting");
    this.add(turn.answer.pieces);
    if (turn.answer.finish || turn.answer.error || turn.answer.stopped) this.finish();
  }

  /** @param {import("./answer.js").Piece[]} pieces */
  add(pieces) {
    this.#tellSpeed();
    for (const piece of pieces) {
      if (piece.kind === "reasoning") this.thinking.hidden = false;
      (piece.kind === "reasoning" ? this.reasoning : this.content).add(piece);
    }
  }

  /** @param {boolean} shown */
  showProbabilities(shown) {
    this.content.show(shown);
    this.reasoning.show(shown);
  }

  /** Tell how fast the answer comes, a few times a second; screen readers hear of its end only. */
  #tellSpeed() {
    const now = performance.now();
    if (now - this.told < TOLD_EVERY_MS) return;
    this.told = now;
    this.after.replaceChildren(element("div", { class: "row" }, element("span", { class: "speed" }, this.turn.answer.statistics)));
  }

  finish() {
    const { answer } = this.turn;
    this.content.element.classList.remove("waiting");
    this.content.element.hidden = !this.content.pieces.length;
    const error = answer.error ? [element("p", { class: "wrong", role: "alert" }, answer.error)] : [];
    const calls = answer.calls.map((call) => element("div", { class: "call" },
      element("h3", {}, `Calls ${call.name}`), element("pre", {}, indented(call.arguments))));
    const asks = answer.calls.length && this.shown.isLast && !answer.error ? [this.#resultForm()] : [];
    this.after.replaceChildren(...error, ...calls, ...asks, this.#row());
  }

  #row() {
    const { turn, actions } = this;
    const copied = button("Copy", () => copy(copied, turn.answer.text), { class: "quiet" });
    const goOn = this.shown.mode === "text" && turn.answer.text
      ? [button("Go on", () => actions.goOn(turn), { class: "quiet" })] : [];
    const again = this.shown.isLast ? [button("Again", () => actions.again(turn), { class: "quiet", title: "Generate this answer again" })] : [];
    return element("div", { class: "row" },
      element("span", { class: "stats" }, turn.answer.statistics), ...goOn, ...again, copied);
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

/** @param {string} json */
function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // as the model wrote it
  }
}
