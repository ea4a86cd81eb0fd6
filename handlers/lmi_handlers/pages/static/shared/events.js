// @ts-check
// Server-sent events, as they come.

import { ServerError } from "./server.js";

/**
 * Yield the data of each event of a response.
 * @param {Response} response
 * @returns {AsyncGenerator<string>}
 */
export async function* events(response) {
  let waiting = "";
  for await (const text of texts(response)) {
    const parts = (waiting + text).split(/\r?\n\r?\n/);
    waiting = parts.pop() ?? "";
    for (const part of parts) yield* dataOf(part);
  }
  yield* dataOf(waiting);
}

/**
 * Yield the text of a response, as it comes.
 * @param {Response} response
 * @returns {AsyncGenerator<string>}
 */
export async function* texts(response) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
  } catch (error) {
    throw error instanceof TypeError ? new ServerError("The connection was lost: the answer is incomplete.", 0) : error;
  } finally {
    await reader.cancel().catch(() => {}); // whoever stops reading wants no more of it
  }
}

/** @param {string} event */
function* dataOf(event) {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
}
