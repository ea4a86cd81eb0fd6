// LangChain's chats, completions and embeddings of OpenAI.

import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI, OpenAI, OpenAIEmbeddings } from "@langchain/openai";

import { HELLO_URL, SAYING_URL, equal, feature, list, values } from "../cases.mjs";
import { PAINT, Paint } from "../paint.mjs";

export const PACKAGE = "@langchain/openai";

const { ANSWER, ANSWER_TOKENS, CHAT_TOKENS, CITY, HELLO, QUESTION, SAYING } = values;
const { WEATHER_ANSWER, WEATHER_QUESTION, WEATHER_RESULT, WEATHER_TOOL } = values;

function settings(url, model) {
  return { model, apiKey: "any", temperature: 0, maxTokens: 200, maxRetries: 0, configuration: { baseURL: `${url}/v1` } };
}

const hello = settings(HELLO_URL, HELLO);

feature("chat", "OpenAI chats", "answers", async () => {
  const answer = await new ChatOpenAI(hello).invoke(QUESTION);
  equal([answer.content, answer.response_metadata.finish_reason], [ANSWER, "stop"]);
  const { input_tokens, output_tokens } = answer.usage_metadata;
  equal([input_tokens, output_tokens], [CHAT_TOKENS, ANSWER_TOKENS]);
});

feature("chatStream", "OpenAI chats", "streams", async () => {
  const chunks = await list(await new ChatOpenAI(hello).stream(QUESTION));
  equal(chunks.map((chunk) => chunk.content).join(""), ANSWER);
  equal(chunks.at(-1).usage_metadata.output_tokens, ANSWER_TOKENS);
});

feature("structured", "OpenAI chats", "structured outputs", async () => {
  equal(await new ChatOpenAI(hello).withStructuredOutput(Paint, { method: "jsonSchema" }).invoke(QUESTION), PAINT);
});

feature("tools", "OpenAI chats", "tool calls and their results", async () => {
  const model = new ChatOpenAI(settings(SAYING_URL, SAYING)).bindTools([WEATHER_TOOL]);
  const question = new HumanMessage(WEATHER_QUESTION);
  const answer = await model.invoke([question]);
  const [call] = answer.tool_calls;
  equal([call.name, call.args], ["weather", CITY]);
  const result = new ToolMessage({ content: WEATHER_RESULT, tool_call_id: call.id });
  equal((await model.invoke([question, answer, result])).content, WEATHER_ANSWER);
  const streamed = (await list(await model.stream([question]))).reduce((sum, chunk) => sum.concat(chunk));
  equal([streamed.tool_calls[0].name, streamed.tool_calls[0].args], ["weather", CITY]);
});

feature("completion", "OpenAI completions", "answers, streams", async () => {
  equal(await new OpenAI(hello).invoke(QUESTION), ANSWER);
  equal((await list(await new OpenAI(hello).stream(QUESTION))).join(""), ANSWER);
});

feature("response", "OpenAI Responses", "answers, streams", async () => {
  const model = new ChatOpenAI({ ...hello, useResponsesApi: true });
  equal((await model.invoke(QUESTION)).text, ANSWER);
  equal((await list(await model.stream(QUESTION))).map((chunk) => chunk.text).join(""), ANSWER);
});

feature("embeddings", "OpenAI embeddings", "vectors", async () => {
  const vectors = await new OpenAIEmbeddings(hello).embedDocuments([QUESTION, ANSWER, QUESTION]);
  equal([vectors.length, vectors[2]], [3, vectors[0]]);
});
