// @ts-check
// A request to a model in no particular dialect, and what the dialects' requests have in common.

/**
 * `messages` are in OpenAI's form; `text` is what a text request continues; `longest` bounds prompt and answer together.
 * `prompt` is the text that the chat template renders from the messages, for dialects without chats. `keyed`: whether
 * requests need an API key, which programs read from the environment and never hold.
 * @typedef {{ mode: "chat" | "text", model: string, several: boolean, adapter: string | null, longest: number | null,
 *   messages: any[], text: string, values: Record<string, any>, tools: any[], choice: string, stream: boolean,
 *   keyed: boolean, prompt?: { text: string, tokens: number } }} Query
 *
 * A request as it is sent, the text in its whole answer, and the same in Python with the dialect's own client.
 * @typedef {{ path: string, headers?: Record<string, string>, body: Record<string, any> }} Request
 * @typedef {{ id: string, label: string, modes: ("chat" | "text")[], promptOnly?: boolean, streams: boolean,
 *   request: (query: Query) => Request, text: (answer: any) => string | undefined,
 *   python: (query: Query, request: Request, origin: string) => string }} Dialect
 */

/**
 * The model's name in dialects where adapters are models.
 * @param {Query} query
 */
export function modelOrAdapter(query) {
  return query.adapter ?? query.model;
}

/**
 * The header that chooses among several models, in dialects that have no other place for it.
 * @param {Query} query
 * @returns {Record<string, string>}
 */
export function targetModel(query) {
  return query.several ? { "X-Amzn-SageMaker-Target-Model": query.model } : {};
}

/** @param {Query} query */
export function adapterField(query) {
  return query.adapter ? { adapters: query.adapter } : {};
}

/**
 * The maximum number of tokens in an answer: the parameter, or the default of OpenAI's API.
 * @param {Query} query
 */
export function mostTokens(query) {
  if (query.values.max_tokens !== undefined) return query.values.max_tokens;
  if (query.mode === "text") return 16;
  return Math.max(1, (query.longest ?? 1024) - (query.prompt?.tokens ?? 0));
}

/**
 * The parameters with LMI's names, all of them: its defaults differ from those of OpenAI.
 * @param {Query} query
 */
export function lmiParameters(query) {
  const { temperature = 1, max_tokens: _, stop, ...same } = query.values;
  const isSampled = temperature > 0;
  return {
    max_new_tokens: mostTokens(query),
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
