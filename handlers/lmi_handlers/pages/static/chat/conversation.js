// @ts-check
// The turns of a conversation, and the messages that a request has of them.

import { Answer } from "./answer.js";

/**
 * @typedef {{ role: "user", text: string, images: import("./images.js").Image[] }} UserTurn
 * @typedef {{ role: "assistant", name: string, answer: Answer }} AssistantTurn
 * @typedef {{ role: "tool", id: string, name: string, text: string }} ToolTurn
 * @typedef {UserTurn | AssistantTurn | ToolTurn} Turn
 */

/**
 * Return the messages in the form of OpenAI's API.
 * @param {Turn[]} turns
 * @param {string} system
 * @returns {any[]}
 */
export function messages(turns, system) {
  const first = system.trim() ? [{ role: "system", content: system }] : [];
  return [...first, ...turns.filter((turn) => turn.role !== "assistant" || turn.answer.hasContent).map(message)];
}

/** @param {Turn} turn */
function message(turn) {
  if (turn.role === "user") return { role: "user", content: turn.images.length ? parts(turn) : turn.text };
  if (turn.role === "tool") return { role: "tool", tool_call_id: turn.id, content: turn.text };
  const { text, calls } = turn.answer;
  if (!calls.length) return { role: "assistant", content: text };
  const written = calls.map((call) => ({
    id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
  }));
  return { role: "assistant", content: text || null, tool_calls: written };
}

/** @param {UserTurn} turn */
function parts(turn) {
  const images = turn.images.map((image) => ({ type: "image_url", image_url: { url: image.url } }));
  return [...images, ...(turn.text ? [{ type: "text", text: turn.text }] : [])];
}
