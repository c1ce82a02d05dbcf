// Opens a report in Chromium without a network, and notes what it says and asks for.
import { pathToFileURL } from "node:url";

import { inChromium } from "../../benchmarks/anywhere/chromium.mjs";

const SIZE = { width: 1480, height: 860 };

/** Calls `use(page, notes)` with the open report; `notes` are `said`, `requests` and `ready`, milliseconds until it was. */
export async function opened({ packages, chromium: executablePath, file, page: name = "", scheme: colorScheme = "light" }, use) {
  return inChromium(packages, executablePath, { offline: true, colorScheme, viewport: SIZE }, async (page) => {
    const notes = { said: [], requests: [], ready: 0 };
    page.on("console", (message) => notes.said.push(message.text()));
    page.on("pageerror", (error) => notes.said.push(error.stack));
    page.on("dialog", (dialog) => notes.said.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
    const url = pathToFileURL(file).href;
    page.on("request", (request) => request.url() !== url && notes.requests.push(request.url()));
    const start = Date.now();
    await page.goto(url + name);
    await page.waitForFunction(() => document.documentElement.dataset.ready === "true");
    notes.ready = Date.now() - start;
    return await use(page, notes);
  });
}
