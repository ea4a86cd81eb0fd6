// @ts-check
// OpenAI's dialects: chats, completions and responses.

import { modelOrAdapter, partsOf } from "./query.js";
import { called, imports, keyArgument, program, split } from "./python.js";

/** @typedef {import("./query.js").Query} Query */

const CLIENT = "from openai import OpenAI";
const EXTENSIONS = ["top_k"]; // what its client takes in `extra_body` only

/** @param {Query} query */
export function chatBody(query) {
  const tools = query.tools.length ? { tools: query.tools, tool_choice: query.choice } : {};
  return { model: modelOrAdapter(query), messages: query.messages, ...query.values, ...tools };
}

/** @param {Query} query */
export function completionBody(query) {
  return { model: modelOrAdapter(query), prompt: query.text, ...query.values };
}

/** @type {import("./query.js").Dialect} */
export const openaiChat = {
  id: "openai",
  label: "OpenAI: chat completions",
  modes: ["chat"],
  streams: true,
  request: (query) => ({ path: "/v1/chat/completions", body: { ...chatBody(query), ...streamed(query) } }),
  text: (answer) => answer.choices[0].message.content,
  python: (query, { body }, origin) => program(origin, query, {
    imports: CLIENT,
    call: "client.chat.completions.create",
    body,
    shown: "answer.choices[0].message.content",
    part: "part.choices[0].delta.content",
  }, client, EXTENSIONS),
};

/** @type {import("./query.js").Dialect} */
export const openaiCompletions = {
  id: "completions",
  label: "OpenAI: completions",
  modes: ["text"],
  streams: true,
  request: (query) => ({ path: "/v1/completions", body: { ...completionBody(query), ...streamed(query) } }),
  text: (answer) => answer.choices[0].text,
  python: (query, { body }, origin) => program(origin, query, {
    imports: CLIENT,
    call: "client.completions.create",
    body,
    shown: "answer.choices[0].text",
    part: "part.choices[0].text",
  }, client, EXTENSIONS),
};

const RESPONSE_EXTENSIONS = ["top_k", "seed", "stop", "presence_penalty", "frequency_penalty"];

/** @type {import("./query.js").Dialect} */
export const openaiResponses = {
  id: "responses",
  label: "OpenAI: responses",
  modes: ["chat"],
  streams: true,
  request: (query) => ({ path: "/v1/responses", body: responseBody(query) }),
  text: (answer) => answer.output.filter((/** @type {any} */ item) => item.type === "message")
    .flatMap((/** @type {any} */ item) => item.content).map((/** @type {any} */ part) => part.text).join(""),
  python: (query, { body }, origin) => {
    const { known, extra } = split(body, RESPONSE_EXTENSIONS);
    const call = called("client.responses.create", { ...known, ...extra });
    const shown = query.stream
      ? `for event in ${call}:\n    if event.type == "response.output_text.delta":\n        print(event.delta, end="", flush=True)\n`
      : `answer = ${call}\nprint(answer.output_text)\n`;
    return `${imports(query, CLIENT)}${client(origin, query)}\n\n${shown}`;
  },
};

/**
 * @param {string} origin
 * @param {Query} query
 */
function client(origin, query) {
  return `client = OpenAI(base_url="${origin}/v1", ${keyArgument(query)})`;
}

/** @param {Query} query */
function streamed(query) {
  return query.stream ? { stream: true } : {};
}

/** @param {Query} query */
function responseBody(query) {
  const { max_tokens: most, ...values } = query.values;
  const system = query.messages[0]?.role === "system" ? { instructions: query.messages[0].content } : {};
  const rest = query.messages.filter((message) => message.role !== "system");
  const tools = query.tools.map(({ function: definition }) => ({ type: "function", ...definition }));
  return {
    model: modelOrAdapter(query),
    ...system,
    input: rest.flatMap(items),
    store: false,
    ...values,
    ...(most === undefined ? {} : { max_output_tokens: most }),
    ...(tools.length ? { tools, tool_choice: query.choice } : {}),
    ...streamed(query),
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
