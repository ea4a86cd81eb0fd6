// @ts-check
// Numbers, sizes and times as people read them.

/**
 * What the server tells, from `GET /console/state` and `GET /console/errors`.
 * @typedef {{ modelName: string, version?: string, modelUrl: string, state: string, default: boolean,
 *   loadedAtStartup: boolean, loadedAt: number | null, backend?: string, reason?: string,
 *   progress?: { what: string, share: number | null }, running: number, waiting: number, queueSize: number,
 *   promptTokens: number, generatedTokens: number, requests: number, failedRequests: number, cacheUsage: number | null,
 *   restarts: number, workers: { processId: number }[], memory: number | null, adapters: string[],
 *   warnings: string[] }} Model
 * @typedef {{ main: { total: number | null, free: number | null }, server: number | null,
 *   gpus: { number: number, name: string, used: number, total: number }[] }} Memory
 * @typedef {{ time: number, clock: number, startedAt: number, version: string, latestError: number,
 *   unchangeable: string | null, memory: Memory, models: Model[] }} State
 * @typedef {{ number: number, time: number, model: string, requestId: string, path: string, status: number,
 *   kind: string, ofServer: boolean, message: string, count: number }} RequestError
 */

export const BUSY = ["fetching", "loading", "unloading"]; // states that end by themselves
const UNITS = ["B", "kB", "MB", "GB", "TB"];
const STEPS = [
  { seconds: 86400, name: "day" },
  { seconds: 3600, name: "hour" },
  { seconds: 60, name: "minute" },
  { seconds: 1, name: "second" },
];

/**
 * A size of memory, such as 1.2 GB.
 * @param {number} bytes
 */
export function size(bytes) {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 99.5 || unit === 0 ? value.toFixed(0) : value.toPrecision(2)} ${UNITS[unit]}`;
}

/**
 * A number with its thousands apart.
 * @param {number} value
 */
export function count(value) {
  return value.toLocaleString("en-GB");
}

/**
 * A rate, with a digit behind the point where it is small.
 * @param {number} value
 */
export function rate(value) {
  return value >= 9.95 || value === 0 ? count(Math.round(value)) : value.toFixed(1);
}

/**
 * A duration in its largest unit, such as 3 hours.
 * @param {number} seconds
 */
export function duration(seconds) {
  const step = STEPS.find((each) => seconds >= each.seconds) ?? STEPS[STEPS.length - 1];
  return several(Math.max(0, Math.floor(seconds / step.seconds)), step.name);
}

/**
 * A number of things, such as 1 request or 2 requests.
 * @param {number} number
 * @param {string} name
 */
export function several(number, name) {
  return `${count(number)} ${name}${number === 1 ? "" : "s"}`;
}

/**
 * A model's name with its version, as requests name it.
 * @param {Model} model
 */
export function fullName(model) {
  return model.version === undefined ? model.modelName : `${model.modelName}:${model.version}`;
}
