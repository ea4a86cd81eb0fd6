// @ts-check
// Elements made of names, attributes and children. Children that are strings become text, never HTML.

/**
 * Make an element: functions among the attributes are listeners, true and false set or leave out an attribute.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number | boolean | null | undefined | EventListener>} [attributes]
 * @param {(Node | string)[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

/**
 * Return the element of the page with this id.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return /** @type {T} */ (found);
}

/**
 * Make a button with a text.
 * @param {string} text
 * @param {() => void} pressed
 * @param {Record<string, string | boolean>} [attributes]
 */
export function button(text, pressed, attributes = {}) {
  return element("button", { type: "button", click: pressed, ...attributes }, text);
}
