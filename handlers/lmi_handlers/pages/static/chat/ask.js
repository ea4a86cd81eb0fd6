// @ts-check
// One request for an answer: sent in OpenAI's form, read as it comes, and ended where it is stopped.

import { events, texts } from "../shared/events.js";
import { post } from "../shared/server.js";
import { chatBody, completionBody } from "../dialects/openai.js";

const TOP = 5; // likeliest tokens at each place

/**
 * Send the query, and report each part of the answer as it arrives. Throw ServerError on failure.
 * @param {import("../dialects/query.js").Query} query
 * @param {import("./answer.js").Answer} answer
 * @param {{ logprobs: boolean, signal: AbortSignal, onPieces: (pieces: import("./answer.js").Piece[]) => void }} how
 */
export async function ask(query, answer, { logprobs, signal, onPieces }) {
  const isChat = query.mode === "chat";
  const path = isChat ? "/v1/chat/completions" : "/v1/completions";
  const probabilities = isChat ? { logprobs: true, top_logprobs: TOP } : { logprobs: TOP };
  const body = {
    ...(isChat ? chatBody(query) : completionBody(query)),
    ...(logprobs ? probabilities : {}),
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
  const response = await post(path, body, signal);
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    for await (const text of texts(response)) onPieces(answer.readOther(text));
    return;
  }
  for await (const data of events(response)) {
    if (data !== "[DONE]") onPieces(answer.read(JSON.parse(data)));
  }
}
