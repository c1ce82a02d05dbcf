// The machine's Chromium, driven by the playwright-core of a folder of packages.
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const SWITCHES = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Calls `use(page)` with a page in a profile of its own, which is removed; `options` are Playwright's of a context. */
export async function inChromium(packages, executablePath, options, use) {
  const { chromium } = createRequire(join(packages, "package.json"))("playwright-core");
  const profile = await mkdtemp(join(tmpdir(), "chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    args: SWITCHES,
    ...options,
  });
  try {
    return await use(await context.newPage());
  } finally {
    await context.close();
    await rm(profile, { recursive: true, force: true });
  }
}
