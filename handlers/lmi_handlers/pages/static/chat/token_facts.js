// @ts-check
// What is known of a token: its probability, and the likeliest others at its place.

/**
 * @typedef {{ text: string, probability: number }} Alternative
 * @typedef {{ text: string, probability: number, partial: boolean, others: Alternative[] }} TokenFacts
 */

const PARTIAL = "bytes:"; // begins the name of a token that is a part of a character

/**
 * Read the log probabilities of a chunk of `/v1/chat/completions`.
 * @param {any} logprobs
 * @returns {TokenFacts[]}
 */
export function chatTokens(logprobs) {
  return (logprobs?.content ?? []).map((/** @type {any} */ token) => facts(
    token.token,
    token.logprob,
    (token.top_logprobs ?? []).map((/** @type {any} */ other) => [other.token, other.logprob]),
  ));
}

/**
 * Read the log probabilities of a chunk of `/v1/completions`.
 * @param {any} logprobs
 * @returns {TokenFacts[]}
 */
export function completionTokens(logprobs) {
  return (logprobs?.tokens ?? []).map((/** @type {string} */ text, /** @type {number} */ at) =>
    facts(text, logprobs.token_logprobs[at], Object.entries(logprobs.top_logprobs?.[at] ?? {})));
}

/**
 * @param {string} text
 * @param {number | null} logprob
 * @param {[string, number | null][]} others
 * @returns {TokenFacts}
 */
function facts(text, logprob, others) {
  const alternatives = others.map(([name, value]) => ({ text: name, probability: probability(value) }));
  alternatives.sort((one, other) => other.probability - one.probability);
  return { text, probability: probability(logprob), partial: text.startsWith(PARTIAL), others: alternatives };
}

/** @param {number | null} logprob null where it is minus infinity */
function probability(logprob) {
  return logprob === null || logprob === undefined ? 0 : Math.exp(logprob);
}

/**
 * Return how likely a piece of text was: that of its tokens together; null where it is not known.
 * @param {TokenFacts[]} tokens
 */
export function together(tokens) {
  return tokens.length ? tokens.reduce((product, token) => product * token.probability, 1) : null;
}

/**
 * Return how strongly a token is tinted: 0 for a likely one, 3 for a very unlikely one.
 * @param {number} probability
 */
export function doubt(probability) {
  return [0.9, 0.5, 0.2].filter((bound) => probability < bound).length;
}

/** @param {number} probability */
export function percent(probability) {
  const value = probability * 100;
  if (value > 99.95 || value === 0) return `${Math.round(value)} %`;
  return value < 0.1 ? "< 0.1 %" : `${value.toFixed(1)} %`;
}

/**
 * Return a token so that its blanks can be seen.
 * @param {string} text
 */
export function visible(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length)) || "(empty)";
}
