// @ts-check
// OpenAI's dialects: chats, completions and responses.

import { modelOrAdapter, partsOf } from "./asked.js";
import { called, imports, keyArgument, program, split } from "./python.js";

/** @typedef {import("./asked.js").Asked} Asked */

const CLIENT = "from openai import OpenAI";
const EXTENSIONS = ["top_k"]; // what its client takes in `extra_body` only

/** @param {Asked} asked */
export function chatBody(asked) {
  const tools = asked.tools.length ? { tools: asked.tools, tool_choice: asked.choice } : {};
  return { model: modelOrAdapter(asked), messages: asked.messages, ...asked.values, ...tools };
}

/** @param {Asked} asked */
export function completionBody(asked) {
  return { model: modelOrAdapter(asked), prompt: asked.text, ...asked.values };
}

/** @type {import("./asked.js").Dialect} */
export const openaiChat = {
  id: "openai",
  label: "OpenAI: chat completions",
  modes: ["chat"],
  streams: true,
  request: (asked) => ({ path: "/v1/chat/completions", body: { ...chatBody(asked), ...streamed(asked) } }),
  text: (answer) => answer.choices[0].message.content,
  python: (asked, { body }, origin) => program(origin, asked, {
    imports: CLIENT,
    call: "client.chat.completions.create",
    body,
    shown: "answer.choices[0].message.content",
    part: "part.choices[0].delta.content",
  }, client, EXTENSIONS),
};

/** @type {import("./asked.js").Dialect} */
export const openaiCompletions = {
  id: "completions",
  label: "OpenAI: completions",
  modes: ["text"],
  streams: true,
  request: (asked) => ({ path: "/v1/completions", body: { ...completionBody(asked), ...streamed(asked) } }),
  text: (answer) => answer.choices[0].text,
  python: (asked, { body }, origin) => program(origin, asked, {
    imports: CLIENT,
    call: "client.completions.create",
    body,
    shown: "answer.choices[0].text",
    part: "part.choices[0].text",
  }, client, EXTENSIONS),
};

const RESPONSE_EXTENSIONS = ["top_k", "seed", "stop", "presence_penalty", "frequency_penalty"];

/** @type {import("./asked.js").Dialect} */
export const openaiResponses = {
  id: "responses",
  label: "OpenAI: responses",
  modes: ["chat"],
  streams: true,
  request: (asked) => ({ path: "/v1/responses", body: responseBody(asked) }),
  text: (answer) => answer.output.filter((/** @type {any} */ item) => item.type === "message")
    .flatMap((/** @type {any} */ item) => item.content).map((/** @type {any} */ part) => part.text).join(""),
  python: (asked, { body }, origin) => {
    const { known, extra } = split(body, RESPONSE_EXTENSIONS);
    const call = called("client.responses.create", { ...known, ...extra });
    const shown = asked.stream
      ? `for event in ${call}:\n    if event.type == "response.output_text.delta":\n        print(event.delta, end="", flush=True)\n`
      : `answer = ${call}\nprint(answer.output_text)\n`;
    return `${imports(asked, CLIENT)}${client(origin, asked)}\n\n${shown}`;
  },
};

/**
 * @param {string} origin
 * @param {Asked} asked
 */
function client(origin, asked) {
  return `client = OpenAI(base_url="${origin}/v1", ${keyArgument(asked)})`;
}

/** @param {Asked} asked */
function streamed(asked) {
  return asked.stream ? { stream: true } : {};
}

/** @param {Asked} asked */
function responseBody(asked) {
  const { max_tokens: most, ...values } = asked.values;
  const system = asked.messages[0]?.role === "system" ? { instructions: asked.messages[0].content } : {};
  const rest = asked.messages.filter((message) => message.role !== "system");
  const tools = asked.tools.map(({ function: definition }) => ({ type: "function", ...definition }));
  return {
    model: modelOrAdapter(asked),
    ...system,
    input: rest.flatMap(items),
    store: false,
    ...values,
    ...(most === undefined ? {} : { max_output_tokens: most }),
    ...(tools.length ? { tools, tool_choice: asked.choice } : {}),
    ...streamed(asked),
  };
}

/**
 * The items of a response's input that a message is.
 * @param {any} message
 */
function items(message) {
  if (message.role === "tool") {
    return [{ type: "function_call_output", call_id: message.tool_call_id, output: message.content }];
  }
  const calls = (message.tool_calls ?? []).map((/** @type {any} */ call) => (
    { type: "function_call", call_id: call.id, name: call.function.name, arguments: call.function.arguments }));
  if (!message.content) return calls;
  const content = Array.isArray(message.content) ? partsOf(message.content).map(responsePart) : message.content;
  return [{ role: message.role, content }, ...calls];
}

/** @param {any} part */
function responsePart(part) {
  if (part.type === "text") return { type: "input_text", text: part.text };
  return { type: "input_image", image_url: part.image_url.url, detail: "auto" };
}
