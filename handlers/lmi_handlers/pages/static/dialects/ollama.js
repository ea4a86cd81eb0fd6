// @ts-check
// Ollama's dialect: parameters are options, images lie beside the text.

import { imageData, modelOrAdapter, mostTokens, partsOf } from "./query.js";
import { called, imports, keyHeader, literal } from "./python.js";

/** @typedef {import("./query.js").Query} Query */

/** @type {import("./query.js").Dialect} */
export const ollamaChat = {
  id: "ollama",
  label: "Ollama: chat",
  modes: ["chat"],
  streams: true,
  request: (query) => ({
    path: "/api/chat",
    body: {
      model: modelOrAdapter(query),
      messages: messages(query.messages),
      ...(query.tools.length ? { tools: query.tools } : {}),
      options: options(query),
      stream: query.stream,
    },
  }),
  text: (answer) => answer.message.content,
  python: (query, { body }, origin) => python(query, origin, called("client.chat", body), "message.content"),
};

/** @type {import("./query.js").Dialect} */
export const ollamaGenerate = {
  id: "ollama-generate",
  label: "Ollama: generate",
  modes: ["text"],
  streams: true,
  request: (query) => ({
    path: "/api/generate",
    body: { model: modelOrAdapter(query), prompt: query.text, raw: true, options: options(query), stream: query.stream },
  }),
  text: (answer) => answer.response,
  python: (query, { body }, origin) => python(query, origin, called("client.generate", body), "response"),
};

/**
 * All parameters: Ollama's defaults differ from those of OpenAI.
 * @param {Query} query
 */
function options(query) {
  const { max_tokens: most, ...values } = query.values;
  const length = most === undefined && query.mode === "chat" ? {} : { num_predict: mostTokens(query) };
  return { temperature: 1, top_k: 0, top_p: 1, ...values, ...length };
}

/** @param {any[]} given */
function messages(given) {
  return given.map((message) => {
    const parts = partsOf(message.content);
    const images = parts.filter((part) => part.type === "image_url").map((part) => imageData(part.image_url.url).data);
    const content = parts.filter((part) => part.type === "text").map((part) => part.text).join("\n");
    const calls = message.tool_calls?.map((/** @type {any} */ call) => (
      { function: { name: call.function.name, arguments: JSON.parse(call.function.arguments || "{}") } }));
    return {
      role: message.role,
      content,
      ...(images.length ? { images } : {}),
      ...(calls ? { tool_calls: calls } : {}),
      ...(message.role === "tool" ? { tool_name: nameOfCall(given, message.tool_call_id) } : {}),
    };
  });
}

/**
 * @param {any[]} given
 * @param {string} id
 */
function nameOfCall(given, id) {
  const calls = given.flatMap((message) => message.tool_calls ?? []);
  return calls.find((call) => call.id === id)?.function.name ?? "";
}

/**
 * @param {Query} query
 * @param {string} origin
 * @param {string} call
 * @param {string} member where an answer, or a part of one, has its text
 */
function python(query, origin, call, member) {
  const headers = query.keyed ? `, headers=${literal(keyHeader(query))}` : "";
  const setup = `${imports(query, "from ollama import Client")}client = Client(host="${origin}"${headers})\n\n`;
  if (!query.stream) return `${setup}answer = ${call}\nprint(answer.${member})\n`;
  return `${setup}for part in ${call}:\n    print(part.${member}, end="", flush=True)\n`;
}
