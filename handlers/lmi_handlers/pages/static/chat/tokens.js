// @ts-check
// An answer's text, a span for each token: tinted by its probability, with the likeliest others on hover and focus.
// All tokens together are one tab stop, in which the arrow keys move.

import { byId, element } from "../shared/dom.js";
import { doubt, percent, together, visible } from "./token_facts.js";

/** @typedef {import("./answer.js").Piece} Piece */

const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
/** @type {WeakMap<Element, Piece>} */
const pieceOf = new WeakMap();

export class TokenText {
  /** @param {boolean} shown whether probabilities are shown */
  constructor(shown) {
    this.element = element("div", { class: "said" });
    this.shown = shown;
    this.element.addEventListener("keydown", (event) => this.#move(event));
    this.element.addEventListener("pointerover", (event) => showDetails(event.target));
    this.element.addEventListener("pointerout", (event) => leave(event));
    this.element.addEventListener("focusin", (event) => this.#focused(event.target));
    this.element.addEventListener("focusout", () => hideDetails());
  }

  /** @param {Piece[]} pieces */
  add(pieces) {
    for (const piece of pieces) this.element.append(this.#written(piece));
  }

  finish() {} // nothing in a text of tokens depends on a later one

  #written(/** @type {Piece} */ piece) {
    const probability = together(piece.tokens);
    if (!this.shown || probability === null) return document.createTextNode(piece.text);
    const isFirst = this.element.querySelector(".token") === null;
    const span = element("span", { class: `token known doubt-${doubt(probability)}`, tabindex: isFirst ? 0 : -1 }, piece.text);
    pieceOf.set(span, piece);
    return span;
  }

  #move(/** @type {KeyboardEvent} */ event) {
    const all = /** @type {HTMLElement[]} */ ([...this.element.querySelectorAll(".token")]);
    const at = all.indexOf(/** @type {HTMLElement} */ (event.target));
    const ends = { Home: 0, End: all.length - 1 };
    const step = STEPS[/** @type {"ArrowUp"} */ (event.key)];
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey || !(step || event.key in ends)) return;
    event.preventDefault();
    const to = step ? at + step : ends[/** @type {"End"} */ (event.key)];
    all[Math.max(0, Math.min(all.length - 1, to))].focus();
  }

  #focused(/** @type {EventTarget | null} */ target) {
    if (!(target instanceof HTMLElement) || !pieceOf.has(target)) return;
    for (const each of this.element.querySelectorAll(".token[tabindex='0']")) each.setAttribute("tabindex", "-1");
    target.tabIndex = 0;
    showDetails(target);
  }
}

/** @param {EventTarget | null} target */
function showDetails(target) {
  const piece = target instanceof HTMLElement ? pieceOf.get(target) : undefined;
  if (!piece || !(target instanceof HTMLElement)) return;
  const details = byId("token-details");
  details.replaceChildren(...described(piece));
  details.hidden = false;
  for (const each of document.querySelectorAll("[aria-describedby='token-details']")) each.removeAttribute("aria-describedby");
  target.setAttribute("aria-describedby", "token-details");
  place(details, target);
}

/** Hide the details of a token, and return whether they were shown. */
export function hideDetails() {
  const details = byId("token-details");
  const wasShown = !details.hidden;
  details.hidden = true;
  return wasShown;
}

/** @param {PointerEvent} event */
function leave(event) {
  const to = event.relatedTarget;
  if (!(to instanceof Element) || !to.closest("#token-details, .token")) hideDetails();
}

/** @param {Piece} piece */
function described(piece) {
  const token = piece.tokens[piece.tokens.length - 1];
  const rows = token.others.length ? token.others : [{ text: token.text, probability: token.probability }];
  const table = element("table", {},
    ...rows.map((each) => element("tr", each.text === token.text ? { class: "taken" } : {},
      element("th", { scope: "row" }, visible(each.text)),
      element("td", {}, bar(each.probability), element("span", {}, percent(each.probability))))));
  const notes = piece.tokens.length > 1 ? [`This text has ${piece.tokens.length} tokens; the last one is shown.`] : [];
  if (!rows.some((each) => each.text === token.text)) notes.push(`${visible(token.text)}: ${percent(token.probability)}`);
  return [table, ...notes.map((note) => element("p", {}, note))];
}

/** @param {number} probability */
function bar(probability) {
  return element("meter", { min: 0, max: 1, value: Math.min(1, probability), "aria-hidden": "true" });
}

/**
 * @param {HTMLElement} details
 * @param {HTMLElement} target
 */
function place(details, target) {
  const at = target.getClientRects()[0] ?? target.getBoundingClientRect();
  const below = at.bottom + 6;
  const fits = below + details.offsetHeight < innerHeight;
  details.style.top = `${fits ? below : Math.max(4, at.top - details.offsetHeight - 6)}px`;
  details.style.left = `${Math.max(8, Math.min(at.left, innerWidth - details.offsetWidth - 8))}px`;
}
