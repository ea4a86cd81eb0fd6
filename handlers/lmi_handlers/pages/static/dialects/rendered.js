// @ts-check
// The prompt that the model's chat template makes of a chat, for dialects that know no chats.

import { post } from "../shared/server.js";
import { modelOrAdapter } from "./query.js";

/**
 * Return a text whose tokens are exactly those of the chat, and their number; null where no text has these tokens.
 * A template often writes the token that begins a text, which the other dialects add once more: then it is left out.
 * @param {import("./query.js").Query} query
 * @returns {Promise<{ text: string, tokens: number } | null>}
 */
export async function renderedPrompt(query) {
  const model = modelOrAdapter(query);
  const tools = query.tools.length ? { tools: query.tools, tool_choice: query.choice } : {};
  const { tokens } = await sent("/tokenize", { model, messages: query.messages, ...tools });
  const { prompt } = await sent("/detokenize", { model, tokens });
  const first = (await sent("/detokenize", { model, tokens: tokens.slice(0, 1) })).prompt;
  const candidates = prompt.startsWith(first) && first ? [prompt, prompt.slice(first.length)] : [prompt];
  for (const text of candidates.filter(Boolean)) {
    const again = await sent("/tokenize", { model, prompt: text, add_special_tokens: true });
    if (String(again.tokens) === String(tokens)) return { text, tokens: tokens.length };
  }
  return null;
}

/**
 * @param {string} path
 * @param {unknown} body
 */
async function sent(path, body) {
  return (await post(path, body)).json();
}
