// cases.py in JavaScript. Runs a client program: `node cases.mjs PROGRAM RESULTS CASE...`.

import { isDeepStrictEqual, inspect } from "node:util";
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

export const values = JSON.parse(process.env.LMI_VALUES);
export const HELLO_URL = process.env.LMI_HELLO_URL;
export const SAYING_URL = process.env.LMI_SAYING_URL;

const cases = new Map();

/** Declare a function that checks a feature of the client with a dialect; both are words for the page. */
export function feature(name, dialect, words, run) {
  cases.set(name, run);
}

/** Declare a function that shows what the client does wrong by itself, and that the workaround helps. */
export function fault(name, dialect, what, workaround, run) {
  cases.set(name, run);
}

/** Throw with both values unless they are equal. */
export function equal(found, expected) {
  if (!isDeepStrictEqual(found, expected)) {
    throw new Error(`found ${inspect(found, { depth: 9 })}, expected ${inspect(expected, { depth: 9 })}`);
  }
}

/** Return what the promise is rejected with; its text must contain `said`. */
export async function rejected(promise, said = "") {
  const error = await promise.then(
    () => null,
    (reason) => reason,
  );
  if (!String(error?.message).includes(said)) {
    throw new Error(`no error says ${inspect(said)}: ${inspect(error)}`);
  }
  return error;
}

/** Return the items of an asynchronous iterable. */
export async function list(items) {
  return await Array.fromAsync(items);
}

async function outcome(run) {
  try {
    await run();
    return null;
  } catch (error) {
    return inspect(error, { depth: 9 });
  }
}

const [, , program, results, ...names] = process.argv;
// Evaluated once this module is, as the program imports it.
setImmediate(async () => {
  await import(pathToFileURL(program).href);
  const outcomes = {};
  for (const name of names) {
    outcomes[name] = await outcome(cases.get(name));
  }
  writeFileSync(results, JSON.stringify(outcomes));
  process.exit(0); // and do not wait for connections that the client keeps
});
