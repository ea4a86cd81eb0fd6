// @ts-check
// LMI's dialect, and SageMaker's, whose requests have LMI's bodies.

import { adapterField, lmiParameters, targetModel } from "./asked.js";
import { imports, KEY_VARIABLE, literal, posted } from "./python.js";

/** @typedef {import("./asked.js").Asked} Asked */

const ENDPOINT = "lmi"; // any name does
// The client's own `Authorization` is a signature, so that the key has a header of its own.
const SHOW_KEY = `

def show_key(request, **_):
    request.headers.add_header("x-api-key", os.environ["${KEY_VARIABLE}"])


client.meta.events.register("before-sign.sagemaker-runtime", show_key)
`;

/** @type {import("./asked.js").Dialect} */
export const lmi = {
  id: "lmi",
  label: "LMI",
  modes: ["chat", "text"],
  streams: true,
  request: (asked) => ({
    path: asked.several ? `/predictions/${encodeURIComponent(asked.model)}` : "/invocations",
    body: { ...body(asked), ...(asked.stream ? { stream: true } : {}) },
  }),
  text,
  python: (asked, request, origin) => posted(asked, request, origin, member(asked)),
};

/** @type {import("./asked.js").Dialect} */
export const sagemaker = {
  id: "sagemaker",
  label: "SageMaker's runtime",
  modes: ["chat", "text"],
  streams: false, // its streams have a binary frame, which only its own clients read
  request: (asked) => ({
    path: `/endpoints/${ENDPOINT}/invocations`,
    headers: targetModel(asked),
    body: body(asked),
  }),
  text,
  python: (asked, request, origin) => boto3(asked, request, origin),
};

/** @param {any} answer */
function text(answer) {
  return answer.choices ? answer.choices[0].message.content : answer.generated_text;
}

/** @param {Asked} asked */
function body(asked) {
  if (asked.mode === "text") return { inputs: asked.text, parameters: lmiParameters(asked), ...adapterField(asked) };
  const tools = asked.tools.length ? { tools: asked.tools, tool_choice: asked.choice } : {};
  return { messages: asked.messages, ...asked.values, ...tools, ...adapterField(asked) };
}

/** @param {Asked} asked */
function member(asked) {
  return asked.mode === "chat" ? `["choices"][0]["message"]["content"]` : `["generated_text"]`;
}

/**
 * @param {Asked} asked
 * @param {import("./asked.js").Request} request
 * @param {string} origin
 */
function boto3(asked, request, origin) {
  const target = asked.several ? `    TargetModel=${literal(asked.model)},\n` : "";
  return `${imports(asked, "import boto3", ["import json"])}client = boto3.client(
    "sagemaker-runtime",
    endpoint_url="${origin}",
    region_name="us-east-1",
    aws_access_key_id="none",
    aws_secret_access_key="none",
)
${asked.keyed ? SHOW_KEY : ""}
body = ${literal(request.body)}
answer = client.invoke_endpoint(
    EndpointName="${ENDPOINT}",
    ContentType="application/json",
${target}    Body=json.dumps(body),
)
print(json.loads(answer["Body"].read())${member(asked)})
`;
}
