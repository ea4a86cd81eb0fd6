// @ts-check
// Anthropic's dialect: messages of blocks, with the system prompt beside them.

import { imageData, modelOrAdapter, mostTokens, partsOf } from "./query.js";
import { called, imports, keyArgument, split } from "./python.js";

// What its client takes in `extra_body` only; older ones also knew the first three.
const EXTENSIONS = ["temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"];
const CHOICES = { auto: "auto", required: "any", none: "none" };

/** @type {import("./query.js").Dialect} */
export const anthropic = {
  id: "anthropic",
  label: "Anthropic: messages",
  modes: ["chat"],
  streams: true,
  request: (query) => ({ path: "/v1/messages", headers: { "anthropic-version": "2023-06-01" }, body: body(query) }),
  text: (answer) => answer.content.filter((/** @type {any} */ block) => block.type === "text")
    .map((/** @type {any} */ block) => block.text).join(""),
  python: (query, request, origin) => {
    const { stream: _, ...given } = request.body;
    const { known, extra } = split(given, EXTENSIONS);
    const client = `client = Anthropic(base_url="${origin}", ${keyArgument(query)})`;
    const setup = `${imports(query, "from anthropic import Anthropic")}${client}\n\n`;
    if (query.stream) {
      const call = called("client.messages.stream", { ...known, ...extra });
      return `${setup}with ${call} as stream:\n    for text in stream.text_stream:\n        print(text, end="", flush=True)\n`;
    }
    const call = called("client.messages.create", { ...known, ...extra });
    return `${setup}answer = ${call}\nprint("".join(block.text for block in answer.content if block.type == "text"))\n`;
  },
};

/** @param {import("./query.js").Query} query */
function body(query) {
  const { max_tokens: _, stop, ...values } = query.values;
  const system = query.messages[0]?.role === "system" ? { system: query.messages[0].content } : {};
  const tools = query.tools.map(({ function: { name, description, parameters } }) => (
    { name, ...(description ? { description } : {}), input_schema: parameters ?? { type: "object" } }));
  const choice = { type: CHOICES[/** @type {"auto"} */ (query.choice)] };
  return {
    model: modelOrAdapter(query),
    max_tokens: mostTokens(query),
    ...system,
    messages: messages(query.messages),
    ...values,
    ...(stop ? { stop_sequences: stop } : {}),
    ...(tools.length ? { tools, tool_choice: choice } : {}),
    ...(query.stream ? { stream: true } : {}),
  };
}

/**
 * The messages, those of one role behind each other being one.
 * @param {any[]} given
 */
function messages(given) {
  /** @type {any[]} */
  const found = [];
  for (const message of given.filter((each) => each.role !== "system")) {
    const role = message.role === "assistant" ? "assistant" : "user";
    const before = found[found.length - 1];
    if (before?.role === role) before.content.push(...blocks(message));
    else found.push({ role, content: blocks(message) });
  }
  return found.map(({ role, content }) => (
    { role, content: content.length === 1 && content[0].type === "text" ? content[0].text : content }));
}

/** @param {any} message */
function blocks(message) {
  if (message.role === "tool") return [{ type: "tool_result", tool_use_id: message.tool_call_id, content: message.content }];
  const calls = (message.tool_calls ?? []).map((/** @type {any} */ call) => (
    { type: "tool_use", id: call.id, name: call.function.name, input: JSON.parse(call.function.arguments || "{}") }));
  return [...partsOf(message.content).map(block), ...calls];
}

/** @param {any} part */
function block(part) {
  if (part.type === "text") return { type: "text", text: part.text };
  const { type, data } = imageData(part.image_url.url);
  return { type: "image", source: { type: "base64", media_type: type, data } };
}
