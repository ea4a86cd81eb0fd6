// @ts-check
// One request for an answer: sent in OpenAI's form, read as it comes, and ended where it is stopped.

import { events, texts } from "../shared/events.js";
import { post } from "../shared/server.js";
import { chatBody, completionBody } from "../dialects/openai.js";

const TOP = 5; // likeliest tokens at each place

/**
 * Send what is asked, and tell of each part of the answer as it comes. Throw ServerError where it fails.
 * @param {import("../dialects/asked.js").Asked} asked
 * @param {import("./answer.js").Answer} answer
 * @param {{ logprobs: boolean, signal: AbortSignal, came: (pieces: import("./answer.js").Piece[]) => void }} how
 */
export async function ask(asked, answer, { logprobs, signal, came }) {
  const isChat = asked.mode === "chat";
  const path = isChat ? "/v1/chat/completions" : "/v1/completions";
  const probabilities = isChat ? { logprobs: true, top_logprobs: TOP } : { logprobs: TOP };
  const body = {
    ...(isChat ? chatBody(asked) : completionBody(asked)),
    ...(logprobs ? probabilities : {}),
    stream: true,
    stream_options: { include_usage: true },
  };
  const response = await post(path, body, signal);
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    for await (const text of texts(response)) came(answer.readOther(text));
    return;
  }
  for await (const data of events(response)) {
    if (data !== "[DONE]") came(answer.read(JSON.parse(data)));
  }
}
