// @ts-check
// Tabs: one tab stop, between which the arrow keys move; `aria-controls` of each names what it shows.

/**
 * @param {HTMLElement} list the element with the role tablist
 * @param {(name: string) => void} chosen called with the id of the panel that is shown
 */
export function tabs(list, chosen) {
  const all = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=tab]")]);
  const panelOf = (/** @type {HTMLElement} */ tab) => tab.getAttribute("aria-controls") || "";
  const choose = (/** @type {HTMLElement} */ tab) => {
    for (const each of all) {
      const isChosen = each === tab;
      each.setAttribute("aria-selected", String(isChosen));
      each.tabIndex = isChosen ? 0 : -1;
      document.getElementById(panelOf(each))?.toggleAttribute("hidden", !isChosen);
    }
    chosen(panelOf(tab));
  };
  for (const tab of all) tab.addEventListener("click", () => choose(tab));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = all.indexOf(/** @type {HTMLElement} */ (event.target));
    if (!step || at < 0) return;
    event.preventDefault();
    const next = all[(at + step + all.length) % all.length];
    next.focus();
    choose(next);
  });
  choose(all[0]);
}
