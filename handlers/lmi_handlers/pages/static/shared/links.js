// @ts-check
// Links to the other pages, of which each address of the server has its own.

import { get } from "./server.js";

/** Show the links, marked by `data-page`, to the pages that can be reached from here. */
export async function showLinks() {
  const { pages } = await get("/pages");
  for (const link of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-page]"))) {
    link.hidden = !pages.includes(link.dataset.page);
  }
}
