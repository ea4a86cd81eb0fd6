// @ts-check
// The welcome with its examples, the legend of colours, and the keys.

import { button, element } from "../shared/dom.js";

const QUESTIONS = {
  chat: [
    "What can you help me with?", "Explain how a language model works, in three sentences.",
    "Write a Python function that finds prime numbers.", "Compare tea and coffee in a table.",
  ],
  text: ["Once upon a time,", "The three laws of motion are", "def is_prime(n):"],
};

/**
 * @param {import("./models.js").Models} models
 * @param {"chat" | "text"} mode
 * @param {(text: string) => void} ask
 */
export function welcome(models, mode, ask) {
  const model = models.model;
  if (!model) return element("div", { class: "welcome" }, element("p", {}, "No model is available yet."));
  const paragraphs = sentences(models, mode).map((sentence) => element("p", {}, sentence));
  const own = mode === "chat" ? model.example_questions : [];
  const shown = models.ready && model.capabilities?.completion ? (own.length ? own : QUESTIONS[mode]) : [];
  const questions = element("div", { class: "questions", role: "group", "aria-label": "Examples" },
    ...shown.map((text) => button(text, () => ask(text))));
  return element("div", { class: "welcome" }, element("h2", {}, model.id), ...paragraphs, questions);
}

/**
 * @param {import("./models.js").Models} models
 * @param {"chat" | "text"} mode
 */
function sentences(models, mode) {
  const can = models.capabilities;
  if (!models.ready && !can) return ["The model is loading."];
  if (!can) return ["The model's own function answers requests and defines their form. Requests shows an example."];
  if (can.embeddings) return ["The model returns vectors instead of text: use POST /v1/embeddings, as described under API."];
  const takes = [can.images && `up to ${can.images} images`, can.tools && "tools"].filter(Boolean).join(" and ");
  const first = mode === "chat"
    ? `Ask a question.${takes ? ` The model also accepts ${takes}.` : ""}`
    : "Write some text, and the model continues it.";
  const none = can.chat ? [] : ["The model has no chat template, so it accepts only plain text."];
  return [first, ...none];
}

/** The colours of tokens, and the probabilities that they stand for. */
export function legend() {
  const bounds = ["90% or more", "50 to 90%", "20 to 50%", "less than 20%"];
  const lost = element("p", { class: "quiet-text", id: "lost-probabilities", hidden: true },
    "A reload keeps the text of answers, not their probabilities.");
  const list = element("ul", { class: "legend", "aria-label": "Colour legend" },
    ...bounds.map((text, at) => element("li", {}, element("span", { class: `token doubt-${at}` }, text))));
  return [list, lost];
}

export function keys() {
  return element("details", {},
    element("summary", {}, "Keyboard shortcuts"),
    element("p", { class: "quiet-text" },
      "Enter sends, Shift+Enter starts a new line, Esc stops the answer, Ctrl+Shift+O starts a new chat. With Probabilities, the arrow keys move between tokens."));
}
