// @ts-check
// Tokens per second, from how much the server's own counters grow between two looks.

import { fullName } from "./words.js";

/** @typedef {import("./words.js").State} State */

const KEPT = 60; // looks
export const ALL = "\n"; // no model's name

export class Rates {
  constructor() {
    /** @type {Map<string, number[]>} of each model, and of all */
    this.history = new Map();
    /** @type {{ clock: number, counts: Map<string, number> } | null} */
    this.before = null;
  }

  /** @param {State} state */
  add(state) {
    const counts = new Map(state.models.map((model) => [fullName(model), model.generatedTokens]));
    const seconds = this.before ? state.clock - this.before.clock : 0;
    let sum = 0;
    for (const [name, now] of counts) {
      const last = this.before?.counts.get(name) ?? now; // a model that has come begins with what it has
      const grown = seconds > 0 ? Math.max(0, now - last) / seconds : 0;
      sum += grown;
      this.#keep(name, grown);
    }
    this.#keep(ALL, sum);
    for (const name of this.history.keys()) {
      if (name !== ALL && !counts.has(name)) this.history.delete(name);
    }
    this.before = { clock: state.clock, counts };
  }

  /** @param {string} name */
  now(name) {
    return this.of(name).at(-1) ?? 0;
  }

  /**
   * The latest rates, the newest last.
   * @param {string} name
   */
  of(name) {
    return this.history.get(name) ?? [];
  }

  /**
   * @param {string} name
   * @param {number} value
   */
  #keep(name, value) {
    const all = [...this.of(name), value];
    this.history.set(name, all.slice(-KEPT));
  }
}

/** A line of values over time, for the eye alone: the number beside it says the last one. */
export class Curve {
  /**
   * @param {number} width
   * @param {number} height
   */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    this.element = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.element.setAttribute("class", "curve");
    this.element.setAttribute("preserveAspectRatio", "none");
    this.element.setAttribute("aria-hidden", "true");
    this.element.append(this.line);
  }

  /** @param {number[]} values */
  show(values) {
    const most = Math.max(1, ...values);
    const step = this.width / (KEPT - 1);
    const begin = this.width - (values.length - 1) * step;
    const points = values.map((value, at) => {
      const y = this.height - 1 - (value / most) * (this.height - 2);
      return `${(begin + at * step).toFixed(1)},${y.toFixed(1)}`;
    });
    this.line.setAttribute("points", points.join(" "));
  }
}
