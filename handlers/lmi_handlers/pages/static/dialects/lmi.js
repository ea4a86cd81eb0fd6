// @ts-check
// LMI's dialect, and SageMaker's, whose requests have LMI's bodies.

import { adapterField, lmiParameters, targetModel } from "./query.js";
import { imports, KEY_VARIABLE, literal, posted } from "./python.js";

/** @typedef {import("./query.js").Query} Query */

const ENDPOINT = "lmi"; // any name does
// The client's own `Authorization` is a signature, so that the key has a header of its own.
const SHOW_KEY = `

def show_key(request, **_):
    request.headers.add_header("x-api-key", os.environ["${KEY_VARIABLE}"])


client.meta.events.register("before-sign.sagemaker-runtime", show_key)
`;

/** @type {import("./query.js").Dialect} */
export const lmi = {
  id: "lmi",
  label: "LMI",
  modes: ["chat", "text"],
  streams: true,
  request: (query) => ({
    path: query.several ? `/predictions/${encodeURIComponent(query.model)}` : "/invocations",
    body: { ...body(query), ...(query.stream ? { stream: true } : {}) },
  }),
  text,
  python: (query, request, origin) => posted(query, request, origin, member(query)),
};

/** @type {import("./query.js").Dialect} */
export const sagemaker = {
  id: "sagemaker",
  label: "SageMaker's runtime",
  modes: ["chat", "text"],
  streams: false, // its streams have a binary frame, which only its own clients read
  request: (query) => ({
    path: `/endpoints/${ENDPOINT}/invocations`,
    headers: targetModel(query),
    body: body(query),
  }),
  text,
  python: (query, request, origin) => boto3(query, request, origin),
};

/** @param {any} answer */
function text(answer) {
  return answer.choices ? answer.choices[0].message.content : answer.generated_text;
}

/** @param {Query} query */
function body(query) {
  if (query.mode === "text") return { inputs: query.text, parameters: lmiParameters(query), ...adapterField(query) };
  const tools = query.tools.length ? { tools: query.tools, tool_choice: query.choice } : {};
  return { messages: query.messages, ...query.values, ...tools, ...adapterField(query) };
}

/** @param {Query} query */
function member(query) {
  return query.mode === "chat" ? `["choices"][0]["message"]["content"]` : `["generated_text"]`;
}

/**
 * @param {Query} query
 * @param {import("./query.js").Request} request
 * @param {string} origin
 */
function boto3(query, request, origin) {
  const target = query.several ? `    TargetModel=${literal(query.model)},\n` : "";
  return `${imports(query, "import boto3", ["import json"])}client = boto3.client(
    "sagemaker-runtime",
    endpoint_url="${origin}",
    region_name="us-east-1",
    aws_access_key_id="none",
    aws_secret_access_key="none",
)
${query.keyed ? SHOW_KEY : ""}
body = ${literal(request.body)}
answer = client.invoke_endpoint(
    EndpointName="${ENDPOINT}",
    ContentType="application/json",
${target}    Body=json.dumps(body),
)
print(json.loads(answer["Body"].read())${member(query)})
`;
}
