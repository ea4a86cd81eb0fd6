// @ts-check
// What is asked of a model, whichever dialect says it, and what the dialects' requests have in common.

/**
 * `messages` are in OpenAI's form; `text` is what a text request continues; `longest` bounds prompt and answer together.
 * `prompt` is the text that the chat template made of the messages, for dialects that know no chats. `keyed` tells whether
 * requests need an API key, which programs read from the environment and never hold.
 * @typedef {{ mode: "chat" | "text", model: string, several: boolean, adapter: string | null, longest: number | null,
 *   messages: any[], text: string, values: Record<string, any>, tools: any[], choice: string, stream: boolean,
 *   keyed: boolean, prompt?: { text: string, tokens: number } }} Asked
 *
 * A request as it is sent, the text in its whole answer, and the same in Python with the dialect's own client.
 * @typedef {{ path: string, headers?: Record<string, string>, body: Record<string, any> }} Request
 * @typedef {{ id: string, label: string, modes: ("chat" | "text")[], promptOnly?: boolean, streams: boolean,
 *   request: (asked: Asked) => Request, text: (answer: any) => string | undefined,
 *   python: (asked: Asked, request: Request, origin: string) => string }} Dialect
 */

/**
 * The name by which dialects that know adapters as models ask for the model.
 * @param {Asked} asked
 */
export function modelOrAdapter(asked) {
  return asked.adapter ?? asked.model;
}

/**
 * The header that chooses among several models, in dialects that have no other place for it.
 * @param {Asked} asked
 * @returns {Record<string, string>}
 */
export function targetModel(asked) {
  return asked.several ? { "X-Amzn-SageMaker-Target-Model": asked.model } : {};
}

/** @param {Asked} asked */
export function adapterField(asked) {
  return asked.adapter ? { adapters: asked.adapter } : {};
}

/**
 * The most tokens of an answer: what is set, or what OpenAI's API means by nothing.
 * @param {Asked} asked
 */
export function mostTokens(asked) {
  if (asked.values.max_tokens !== undefined) return asked.values.max_tokens;
  if (asked.mode === "text") return 16;
  return Math.max(1, (asked.longest ?? 1024) - (asked.prompt?.tokens ?? 0));
}

/**
 * The parameters by the names of LMI, said in full: its own defaults are not those of OpenAI.
 * @param {Asked} asked
 */
export function lmiParameters(asked) {
  const { temperature = 1, max_tokens: _, stop, ...same } = asked.values;
  const isSampled = temperature > 0;
  return {
    max_new_tokens: mostTokens(asked),
    do_sample: isSampled,
    ...(isSampled ? { temperature } : {}),
    ...same,
    ...(stop ? { stop_sequences: stop } : {}),
  };
}

/**
 * The data of an image's data URL.
 * @param {string} url
 */
export function imageData(url) {
  const [, type = "image/png", data = ""] = /^data:([^;,]+);base64,(.*)$/s.exec(url) ?? [];
  return { type, data };
}

/**
 * The parts of a message's content, a text being one part.
 * @param {any} content
 * @returns {any[]}
 */
export function partsOf(content) {
  if (Array.isArray(content)) return content;
  return content ? [{ type: "text", text: content }] : [];
}
