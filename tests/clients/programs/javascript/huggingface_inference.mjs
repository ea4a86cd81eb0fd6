// Hugging Face's inference client.

import { InferenceClient } from "@huggingface/inference";

import { HELLO_URL, SAYING_URL, equal, feature, list, rejected, values } from "../cases.mjs";

export const PACKAGE = "@huggingface/inference";

const { ANSWER, ANSWER_TOKENS, CHAT_TOKENS, CITY, FIRST_TEXT, MESSAGES, QUESTION } = values;
const { WEATHER_ANSWER, WEATHER_MESSAGES, WEATHER_RESULT, WEATHER_TOOL } = values;
const GREEDY = { temperature: 0 };
const CHAT = { messages: MESSAGES, max_tokens: 64, ...GREEDY };

const client = new InferenceClient("any", { endpointUrl: HELLO_URL, retry_on_error: false });
const saying = new InferenceClient("any", { endpointUrl: SAYING_URL, retry_on_error: false });

feature("generate", "OpenAI completions", "answers of `textGeneration`", async () => {
  const answer = await client.textGeneration({ inputs: QUESTION, parameters: { ...GREEDY, max_new_tokens: 64 } });
  equal(answer.generated_text, ANSWER);
});

feature("generateStream", "OpenAI completions", "streams of `textGenerationStream`", async () => {
  const asked = { inputs: QUESTION, parameters: { ...GREEDY, max_new_tokens: 4 }, stream: true };
  const chunks = await list(client.textGenerationStream(asked));
  equal(chunks.map((chunk) => chunk.choices[0].text).join(""), FIRST_TEXT);
  equal(chunks.at(-1).choices[0].finish_reason, "length");
});

feature("errors", "OpenAI completions", "errors", async () => {
  const error = await rejected(client.textGeneration({ inputs: QUESTION, parameters: { temperature: -1 } }));
  equal([error.httpResponse.status, error.httpResponse.body.error.param], [400, "temperature"]);
});

feature("chat", "OpenAI chats", "answers", async () => {
  const answer = await client.chatCompletion(CHAT);
  equal([answer.choices[0].message.content, answer.choices[0].finish_reason], [ANSWER, "stop"]);
  equal([answer.usage.prompt_tokens, answer.usage.completion_tokens], [CHAT_TOKENS, ANSWER_TOKENS]);
});

feature("chatStream", "OpenAI chats", "streams", async () => {
  const chunks = await list(client.chatCompletionStream(CHAT));
  equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), ANSWER);
});

feature("tools", "OpenAI chats", "tool calls and their results", async () => {
  const asked = { messages: WEATHER_MESSAGES, tools: [WEATHER_TOOL] };
  const { message } = (await saying.chatCompletion(asked)).choices[0];
  const [call] = message.tool_calls;
  equal([call.function.name, JSON.parse(call.function.arguments)], ["weather", CITY]);
  const result = { role: "tool", tool_call_id: call.id, content: WEATHER_RESULT };
  const last = await saying.chatCompletion({ ...asked, messages: [...WEATHER_MESSAGES, message, result] });
  equal(last.choices[0].message.content, WEATHER_ANSWER);
});
