// @ts-check
// An answer as it comes: its pieces of text with their tokens, its calls of tools, and how fast it was.

import { ServerError } from "../shared/server.js";
import { chatTokens, completionTokens } from "./token_facts.js";

/**
 * @typedef {import("./token_facts.js").TokenFacts} TokenFacts
 * @typedef {{ kind: "content" | "reasoning", text: string, tokens: TokenFacts[] }} Piece
 * @typedef {{ id: string, name: string, arguments: string }} ToolCall
 */

export class Answer {
  constructor() {
    /** @type {Piece[]} */
    this.pieces = [];
    /** @type {ToolCall[]} */
    this.calls = [];
    /** @type {string | null} */
    this.finish = null;
    /** @type {string | null} */
    this.error = null;
    this.stopped = false;
    this.isRestored = false;
    this.start = performance.now();
    /** @type {number | null} when the first text arrived */
    this.first = null;
    this.last = this.start;
    /** @type {number | null} */
    this.tokens = null;
    /** @type {number | null} tokens of the prompt and the answer together */
    this.used = null;
    /** @type {TokenFacts[]} the bytes of a character that is not complete yet */
    this.pending = [];
  }

  /** The text of the answer itself, without its reasoning. */
  get text() {
    return this.pieces.filter((piece) => piece.kind === "content").map((piece) => piece.text).join("");
  }

  get hasContent() {
    return this.calls.length > 0 || this.pieces.some((piece) => piece.kind === "content");
  }

  /**
   * Take a chunk of a stream of `/v1/chat/completions` or `/v1/completions`, and return the pieces that it brought.
   * @param {any} chunk
   * @returns {Piece[]}
   */
  read(chunk) {
    if (chunk.error) throw new ServerError(chunk.error.message ?? String(chunk.error), 200);
    if (!chunk.choices) return this.readOther(`${JSON.stringify(chunk)}\n`);
    if (chunk.usage) {
      this.tokens = chunk.usage.completion_tokens;
      this.used = chunk.usage.total_tokens;
    }
    return chunk.choices.flatMap((/** @type {any} */ choice) => this.#readChoice(choice));
  }

  /** @param {string} text that is no stream of OpenAI's, but what the model's own formatter wrote */
  readOther(text) {
    return this.#bring("content", text, []);
  }

  #readChoice(/** @type {any} */ choice) {
    this.finish = choice.finish_reason ?? this.finish;
    if (!choice.delta) return this.#bring("content", choice.text ?? "", completionTokens(choice.logprobs));
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
    const tokens = chatTokens(choice.logprobs);
    for (const call of calls ?? []) this.#readCall(call);
    return reasoning ? this.#bring("reasoning", reasoning, tokens) : this.#bring("content", content ?? "", tokens);
  }

  /**
   * @param {"content" | "reasoning"} kind
   * @param {string} text
   * @param {TokenFacts[]} tokens
   * @returns {Piece[]}
   */
  #bring(kind, text, tokens) {
    this.pending.push(...tokens.filter((token) => text || token.partial));
    if (!text) return [];
    this.last = performance.now();
    this.first ??= this.last;
    const piece = { kind, text, tokens: this.pending };
    this.pending = [];
    this.pieces.push(piece);
    return [piece];
  }

  #readCall(/** @type {any} */ delta) {
    this.last = performance.now();
    this.first ??= this.last;
    const call = (this.calls[delta.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= delta.id ?? "";
    call.name ||= delta.function?.name ?? "";
    call.arguments += delta.function?.arguments ?? "";
  }

  /** What a reload keeps: all but the tokens' probabilities, for which the browser has no room. */
  get stored() {
    const { calls, finish, error, stopped, start, first, last, used } = this;
    const pieces = /** @type {const} */ (["reasoning", "content"]).map((kind) => ({
      kind, text: this.pieces.filter((piece) => piece.kind === kind).map((piece) => piece.text).join(""), tokens: [],
    }));
    return { pieces: pieces.filter((piece) => piece.text), calls, finish, error, stopped, start, first, last, used,
      tokens: this.tokens ?? this.pieces.length };
  }

  /** @param {any} stored */
  static restored(stored) {
    const answer = Object.assign(new Answer(), stored, { isRestored: true });
    answer.stopped ||= !answer.finish && !answer.error; // the reload ended it
    return answer;
  }

  /** The number of tokens, their speed and the finish reason, as text. */
  get statistics() {
    const parts = [];
    const count = this.tokens ?? this.pieces.length;
    const seconds = (this.last - (this.first ?? this.last)) / 1000;
    if (this.first !== null) {
      parts.push(`${count} ${count === 1 ? "token" : "tokens"}`);
      if (count > 1 && seconds > 0) parts.push(`${((count - 1) / seconds).toFixed(1)} tokens/s`);
      parts.push(`first token after ${((this.first - this.start) / 1000).toFixed(2)} s`);
    }
    const ends = { length: "reached max tokens", context: "the context is full", stop: "complete", tool_calls: "calls a tool", abort: "aborted" };
    const reason = this.stopped ? "stopped" : this.error ? "failed" : (ends[/** @type {"stop"} */ (this.finish)] ?? this.finish);
    if (reason) parts.push(reason);
    return parts.join(" · ");
  }
}
