// @ts-check
// Ollama's dialect: parameters are options, images lie beside the text.

import { imageData, modelOrAdapter, mostTokens, partsOf } from "./asked.js";
import { called, imports, keyHeader, literal } from "./python.js";

/** @typedef {import("./asked.js").Asked} Asked */

/** @type {import("./asked.js").Dialect} */
export const ollamaChat = {
  id: "ollama",
  label: "Ollama: chat",
  modes: ["chat"],
  streams: true,
  request: (asked) => ({
    path: "/api/chat",
    body: {
      model: modelOrAdapter(asked),
      messages: messages(asked.messages),
      ...(asked.tools.length ? { tools: asked.tools } : {}),
      options: options(asked),
      stream: asked.stream,
    },
  }),
  text: (answer) => answer.message.content,
  python: (asked, { body }, origin) => python(asked, origin, called("client.chat", body), "message.content"),
};

/** @type {import("./asked.js").Dialect} */
export const ollamaGenerate = {
  id: "ollama-generate",
  label: "Ollama: generate",
  modes: ["text"],
  streams: true,
  request: (asked) => ({
    path: "/api/generate",
    body: { model: modelOrAdapter(asked), prompt: asked.text, raw: true, options: options(asked), stream: asked.stream },
  }),
  text: (answer) => answer.response,
  python: (asked, { body }, origin) => python(asked, origin, called("client.generate", body), "response"),
};

/**
 * The parameters, said in full: Ollama's own defaults are not those of OpenAI.
 * @param {Asked} asked
 */
function options(asked) {
  const { max_tokens: most, ...values } = asked.values;
  const length = most === undefined && asked.mode === "chat" ? {} : { num_predict: mostTokens(asked) };
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
 * @param {Asked} asked
 * @param {string} origin
 * @param {string} call
 * @param {string} member where an answer, or a part of one, has its text
 */
function python(asked, origin, call, member) {
  const headers = asked.keyed ? `, headers=${literal(keyHeader(asked))}` : "";
  const setup = `${imports(asked, "from ollama import Client")}client = Client(host="${origin}"${headers})\n\n`;
  if (!asked.stream) return `${setup}answer = ${call}\nprint(answer.${member})\n`;
  return `${setup}for part in ${call}:\n    print(part.${member}, end="", flush=True)\n`;
}
